package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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

	"github.com/cgoa-labs/labctl/bootstrap/argocd"
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
	names, err := argocd.Images(core)
	if err != nil {
		return err
	}
	argo := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, "/argocd:") })
	if argo < 0 {
		return fmt.Errorf("Argo CD's manifests name no image of its own, only %v", names)
	}
	var list []container.Named
	m := &puller{say: progress}
	for _, n := range append(names, s.Pins.Images.Lab...) {
		img, err := s.pull(ctx, n, m.moved)
		if err != nil {
			return err
		}
		list = append(list, container.Named{Name: n, Image: img})
	}
	git, err := gitImage(list[argo].Image)
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
	if err := s.fetch.retry(ctx, func() error {
		err := container.WriteImages(filepath.Join(out, source.Archive), layers, append(list, own...), m.next)
		if err != nil && !passing(err) {
			err = backoff.Permanent(err)
		}
		return err
	}); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(layers), os.Remove(archive))
}

// passing says that an error may pass by itself: the connection was cut, or the registry was in trouble.
func passing(err error) bool {
	var network net.Error
	var refused *transport.Error
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.As(err, &network) ||
		errors.As(err, &refused) && (refused.StatusCode >= 500 || refused.StatusCode == http.StatusTooManyRequests)
}

// mirrored is where an image is pulled from: its own registry, or the mirror that is set for it.
func (s *Source) mirrored(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	registry := ref.Context().RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	mirror, ok := s.Mirrors.Registries[registry]
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

// pull finds an image for the guest's platform, by the lock's digest where there is a lock. Its layers are read later; moved is told every
// byte that comes.
func (s *Source) pull(ctx context.Context, image string, moved func(n int64)) (v1.Image, error) {
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
	img, err := remote.Image(ref, remote.WithContext(ctx), remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithTransport(counting{base, moved}),
		remote.WithRetryBackoff(remote.Backoff{Duration: s.fetch.pause, Factor: 3, Jitter: 0.1, Steps: fetchTries}),
		remote.WithRetryStatusCodes(http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout))
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

// counting tells how much comes through it.
type counting struct {
	http.RoundTripper
	moved func(n int64)
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := c.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{progressReader{res.Body, func(n int) { c.moved(int64(n)) }}, res.Body}
	}
	return res, err
}

// pullError says what to do about it.
func (s *Source) pullError(ctx context.Context, image string, ref name.Reference, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := &PullError{Image: image, Registry: ref.Context().RegistryStr(), Err: err, hint: "try again, or set a mirror with image.registryMirrors"}
	var refused *transport.Error
	if !errors.As(err, &refused) {
		return e
	}
	// Its own text repeats the whole request.
	e.Err = &StatusError{URL: ref.String(), Code: refused.StatusCode}
	switch refused.StatusCode {
	case http.StatusTooManyRequests:
		e.hint = e.Registry + " limits pulls of those who are not logged in: wait, log in with `docker login`, or set a mirror with image.registryMirrors"
	case http.StatusUnauthorized, http.StatusForbidden:
		e.hint = "log in with `docker login " + e.Registry + "`, or set a mirror with image.registryMirrors"
	case http.StatusNotFound:
		e.hint = "the registry has no such image: where it is a mirror, fill it first"
	}
	return e
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

func (p *puller) moved(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.come += n; p.name != "" && time.Since(p.last) > time.Second {
		p.last = time.Now()
		p.say(fmt.Sprintf("%s %d MiB", p.name, p.come>>20))
	}
}
