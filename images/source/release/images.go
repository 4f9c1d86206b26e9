package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/source"
)

// platform is the guest's.
var platform = v1.Platform{OS: "linux", Architecture: "amd64"}

// The images of k3s's own that the guest needs, by their repositories in its archive.
var fromK3s = []string{"rancher/mirrored-pause", "rancher/mirrored-coredns-coredns"}

// PullError says that a registry did not give an image.
type PullError struct {
	Image, Registry string
	Err             error
	hint            string
}

func (e *PullError) Error() string {
	return fmt.Sprintf("image %s from %s: %v", e.Image, e.Registry, e.Err)
}
func (e *PullError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *PullError) Hint() string { return e.hint }

// fetchContainers pulls the images that Argo CD's manifests and the labs name, takes k3s's own out of its archive, and makes the git daemon's out of
// Argo CD's, which has git.
func (s *Source) fetchContainers(ctx context.Context, needs map[string]string, out string, progress func(string)) (err error) {
	core, err := os.ReadFile(filepath.Join(needs[source.ArgoCD], source.CoreManifest))
	if err != nil {
		return err
	}
	names, err := s.wanted(core, progress)
	if err != nil {
		return err
	}
	var list []container.Named
	m := &puller{say: progress}
	for _, n := range names {
		img, err := s.pull(ctx, n, progress, m.moved)
		if err != nil {
			return err
		}
		list = append(list, container.Named{Name: n, Image: img})
	}
	git, err := gitImage(list[0].Image)
	if err != nil {
		return err
	}
	list = append(list, container.Named{Name: s.Pins.Images.Gitd, Image: git})
	archive := filepath.Join(out, "k3s.tar")
	own, err := fromArchive(filepath.Join(needs[source.Server], k3sImages), archive)
	if err != nil {
		return err
	}
	// Whole layers stay here when the network goes away in between.
	layers := filepath.Join(s.fetch.downloads, "layers")
	if err := os.MkdirAll(layers, 0o700); err != nil {
		return err
	}
	// A cut connection ends one layer; those that are whole do not come again.
	if err := s.fetch.telling(progress).retry(ctx, func() error {
		err := container.WriteImages(filepath.Join(out, source.Archive), layers, append(list, own...), m.next)
		if err == nil {
			return nil
		}
		if !passing(err) {
			return backoff.Permanent(s.layerError(ctx, m.now(), err))
		}
		return s.layerError(ctx, m.now(), err)
	}); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(layers), os.Remove(archive))
}

// passing says that an error may pass by itself: the connection was cut, or the registry was in trouble.
func passing(err error) bool {
	if errors.As(err, new(*fs.PathError)) {
		return false // this machine's disk
	}
	var network net.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.As(err, &network) ||
		statusOf(err) >= 500 || strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) || strings.Contains(err.Error(), "nothing came for")
}

// wanted are the images that Argo CD's manifests and the labs name. Of a mirror that none of them comes from it says so: its registry may be misspelt,
// and the right one be asked instead of it.
func (s *Source) wanted(core []byte, progress func(string)) ([]string, error) {
	names, err := namesOf(core)
	if err != nil {
		return nil, err
	}
	names = append(names, s.Pins.Images.Lab...)
	registries := map[string]bool{}
	for _, n := range names {
		registries[upstreamRegistry(n)] = true
	}
	for _, registry := range slices.Sorted(maps.Keys(s.Mirrors.Registries)) {
		if !registries[registry] {
			progress(fmt.Sprintf("no image comes from %s, which image.registryMirrors has a mirror of; they come from %s",
				registry, strings.Join(slices.Sorted(maps.Keys(registries)), " and ")))
		}
	}
	return names, nil
}

// mirrored is where an image is pulled from: its own registry, or the mirror that is set for it.
func (s *Source) mirrored(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	mirror, ok := s.Mirrors.Registries[upstreamRegistry(image)]
	if !ok {
		return ref, nil
	}
	var options []name.Option
	mirror, plain := strings.CutPrefix(mirror, "http://")
	if plain {
		options = append(options, name.Insecure)
	}
	mirror = strings.TrimSuffix(strings.TrimPrefix(mirror, "https://"), "/")
	separator := ":"
	if _, byDigest := ref.(name.Digest); byDigest {
		separator = "@"
	}
	return name.ParseReference(mirror+"/"+ref.Context().RepositoryStr()+separator+ref.Identifier(), options...)
}

// pull finds an image for the guest's platform, by the lock's digest where there is a lock. Its layers are read later; say is told of
// what is waited for, moved of every byte that comes.
func (s *Source) pull(ctx context.Context, image string, say func(string), moved func(n int64)) (v1.Image, error) {
	ref, err := s.mirrored(image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	digest, err := s.Lock.image(image)
	if err != nil {
		return nil, err
	}
	if digest != "" {
		ref = ref.Context().Digest(digest)
	}
	base := s.fetch.client.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(patient{base, s.fetch.pause, s.fetch.stall, say, moved}),
		remote.WithRetryBackoff(remote.Backoff{Duration: s.fetch.pause, Factor: 3, Jitter: 0.1, Steps: fetchTries}),
		remote.WithRetryStatusCodes(http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout))
	if err != nil {
		return nil, s.pullError(ctx, image, ref, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, s.pullError(ctx, image, ref, err)
	}
	if config.OS != platform.OS || config.Architecture != platform.Architecture {
		return nil, s.pullError(ctx, image, ref, fmt.Errorf("it is for %s/%s, the guest for %s", config.OS, config.Architecture, platform))
	}
	return img, nil
}

// patient is a transport for registries: it tells how much comes, ends what sends nothing for a while, and waits as long as a registry that
// limits its askers wants, where that is not too long.
type patient struct {
	http.RoundTripper
	// pause is the first one where a registry does not say how long to wait.
	pause, stall time.Duration
	say          func(string)
	moved        func(n int64)
}

func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		res, err := p.once(req)
		if err != nil || res.StatusCode != http.StatusTooManyRequests || try == fetchTries {
			return res, err
		}
		after := retryAfter(res)
		if after > longest {
			return res, nil
		}
		if after == 0 {
			after = p.pause << (2 * try)
		}
		_ = res.Body.Close()
		if after >= worthTelling {
			p.say(fmt.Sprintf("%s limits how often it is asked; again in %s", req.URL.Host, after.Round(time.Second)))
		}
		select {
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		case <-time.After(after):
		}
	}
}

func (p patient) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	late := fmt.Errorf("%s: nothing came for %s", req.URL.Redacted(), p.stall)
	timer := time.AfterFunc(p.stall, func() { cancel(late) })
	end := func() { timer.Stop(); cancel(nil) }
	res, err := p.RoundTripper.RoundTrip(req.Clone(ctx))
	if err != nil {
		defer end()
		if errors.Is(context.Cause(ctx), late) {
			return nil, late
		}
		return nil, err
	}
	res.Body = &watched{ReadCloser: res.Body, end: end, read: func(n int) { timer.Reset(p.stall); p.moved(int64(n)) }, why: func() error { return context.Cause(ctx) }}
	return res, nil
}

// watched is a body that is watched while it comes.
type watched struct {
	io.ReadCloser
	read func(n int)
	why  func() error
	end  func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if n > 0 {
		w.read(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if why := w.why(); why != nil {
			err = why
		}
	}
	return n, err
}

func (w *watched) Close() error {
	w.end()
	return w.ReadCloser.Close()
}

// pullError says what to do about it.
func (s *Source) pullError(ctx context.Context, image string, ref name.Reference, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	registry := ref.Context().RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	_, mirrored := s.Mirrors.Registries[upstreamRegistry(image)]
	e := &PullError{Image: image, Registry: registry, Err: shortened(err), hint: "try again, or set a mirror with image.registryMirrors"}
	code := statusOf(err)
	if code == 0 {
		switch text := err.Error(); {
		case strings.Contains(text, "error verifying"):
			e.hint = "nothing of it was kept; try again, and if it happens again do not trust the registry or the proxy in between"
		case strings.Contains(text, "no child with platform"), strings.Contains(text, "it is for "):
			e.hint = "the image is not made for the guest's platform; where the registry is a mirror, fill it with " + platform.String()
		case strings.Contains(text, "no space left"):
			e.hint = "make room for the cache, or name another with cacheDir"
		case strings.Contains(text, "credential"), strings.Contains(text, "config.json"):
			e.hint = "see to ~/.docker/config.json, whose credentials are used"
		}
		return e
	}
	// Its own text repeats the whole request and the answer's body.
	e.Err = &StatusError{Code: code}
	switch code {
	case http.StatusTooManyRequests:
		e.hint = registry + " limits how often it is asked: wait, log in with `docker login " + registry + "`, or set a mirror with image.registryMirrors"
		if mirrored {
			e.hint = "the mirror " + registry + " limits how often it is asked: wait, or set another with image.registryMirrors"
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		e.hint = "log in with `docker login " + registry + "`, or set a mirror with image.registryMirrors"
	case http.StatusNotFound:
		e.hint = "the registry has no such image: where it is a mirror, fill it first"
		if s.Lock != nil {
			e.hint = "the registry does not have the image that is locked any more: use a mirror that has it, or write the lock anew with `labctl image lock`"
		}
	}
	return e
}

// statusOf is the registry's status behind an error, 0 where there is none. The library that writes layers tells it in words only.
func statusOf(err error) int {
	var refused *transport.Error
	if errors.As(err, &refused) {
		return refused.StatusCode
	}
	said := saidStatus.FindStringSubmatch(err.Error())
	if said == nil {
		return 0
	}
	code, _ := strconv.Atoi(said[1]) // three digits
	return code
}

var saidStatus = regexp.MustCompile(`unexpected status code (\d{3})`)

// upstreamRegistry is the registry that an image's name leads to, as mirrors are set for it.
func upstreamRegistry(image string) string {
	ref, err := name.ParseReference(image)
	if err != nil {
		return ""
	}
	if registry := ref.Context().RegistryStr(); registry != name.DefaultRegistry {
		return registry
	}
	return "docker.io"
}

// shortened is an error in one line that a person can read: registries send whole pages.
func shortened(err error) error {
	const most = 300
	line := strings.Join(strings.Fields(err.Error()), " ")
	if len(line) <= most {
		return err
	}
	return &longError{text: line[:most] + "…", err: err}
}

type longError struct {
	text string
	err  error
}

func (e *longError) Error() string { return e.text }
func (e *longError) Unwrap() error { return e.err }

// layerError says whose layer it was, and what to do about it.
func (s *Source) layerError(ctx context.Context, image string, err error) error {
	ref, parseErr := s.mirrored(image)
	if parseErr != nil {
		return err
	}
	return s.pullError(ctx, image, ref, err)
}

// gitImage is an image with git as the git daemon's: of any user, with no program of its own.
func gitImage(argo v1.Image) (v1.Image, error) {
	file, err := argo.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := *file.Config.DeepCopy()
	config.User, config.Entrypoint, config.Cmd = "", nil, []string{"git", "daemon"}
	return mutate.Config(argo, config)
}

// fromArchive takes the images of fromK3s out of k3s's archive. to is where it is unpacked for as long as they are read.
func fromArchive(archive, to string) ([]container.Named, error) {
	if err := unzstd(archive, to); err != nil {
		return nil, fmt.Errorf("%s: %w", k3sImages, err)
	}
	open := func() (io.ReadCloser, error) { return os.Open(to) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k3sImages, err)
	}
	var list []container.Named
	for _, repository := range fromK3s {
		found := ""
		for _, d := range manifest {
			for _, tag := range d.RepoTags {
				if strings.HasPrefix(strings.TrimPrefix(tag, "docker.io/"), repository+":") {
					found = tag
				}
			}
		}
		if found == "" {
			return nil, fmt.Errorf("%s holds no image %s", k3sImages, repository)
		}
		tag, err := name.NewTag(found)
		if err != nil {
			return nil, err
		}
		img, err := tarball.Image(open, &tag)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", k3sImages, found, err)
		}
		list = append(list, container.Named{Name: strings.TrimPrefix(found, "docker.io/"), Image: img})
	}
	return list, nil
}

func unzstd(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	reader, err := zstd.NewReader(in)
	if err != nil {
		return err
	}
	defer reader.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, reader)
	return errors.Join(err, out.Close())
}

// puller says how far the pull of images is, now and then.
type puller struct {
	say  func(string)
	mu   sync.Mutex
	name string
	come int64
	last time.Time
}

func (p *puller) next(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.come, p.last = name, 0, time.Now()
	p.say(name)
}

// now is the image that is being read.
func (p *puller) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.name
}

func (p *puller) moved(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.come += n; p.name != "" && time.Since(p.last) > time.Second {
		p.last = time.Now()
		p.say(fmt.Sprintf("%s %d MiB", p.name, p.come>>20))
	}
}
