// Package release is the source that takes every part from its upstream's own release: k3s and Argo CD's command line by the checksums that
// upstream publishes, container images from their registries, and, where there is a lock, nothing but what is locked.
package release

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/sync/errgroup"

	"github.com/cgoa-labs/labctl/bootstrap/argocd"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Mirrors are where upstream's files are fetched from instead of where upstream publishes them.
type Mirrors struct {
	// Releases serves the same paths as both of upstream's hosts, PROJECT/releases/download/VERSION/FILE and PROJECT/VERSION/PATH; empty for
	// upstream itself.
	Releases string
	// Registries are the registries, such as quay.io, with what is asked instead: HOST or HOST/PATH, after http:// where it has no TLS.
	Registries map[string]string
}

// Upstream's hosts: releases, and the files of a repository at a tag.
const (
	releaseHost = "https://github.com"
	rawHost     = "https://raw.githubusercontent.com"
)

// ProbeTime is how long Reachable waits for an answer.
const ProbeTime = 2 * time.Second

// Options say from where and what to fetch.
type Options struct {
	Pins    versions.Versions
	Mirrors Mirrors
	// Lock is what may be fetched, nil for whatever upstream has under the pinned versions.
	Lock *Lock
	// Downloads is the folder of downloads that are not whole yet.
	Downloads string
	// Unpacker is the part that makes source.Unpacker: no release has it.
	Unpacker source.Part
	Client   *http.Client
}

// Source fetches upstream's releases.
type Source struct {
	Options
	fetch fetcher
}

// New returns a source that fetches from upstream or its mirrors.
func New(o Options) *Source {
	o.Mirrors.Releases = strings.TrimSuffix(o.Mirrors.Releases, "/")
	return &Source{Options: o, fetch: fetcher{client: o.Client, pause: 500 * time.Millisecond, stall: stallTime, downloads: o.Downloads}}
}

// Name implements source.Source.
func (s *Source) Name() images.SourceName { return images.Release }

// Versions implements source.Source.
func (s *Source) Versions() map[string]string {
	out := map[string]string{"debian": s.Pins.Modules.DebianSuite}
	for name, part := range s.Pins.Release.Parts {
		out[name] = part.Version
	}
	return out
}

// StandIns implements source.Source: upstream's own parts stand in for nothing.
func (s *Source) StandIns() map[string]string { return nil }

// Inside implements source.Source.
func (s *Source) Inside(dirs map[string]string) (map[string]string, error) {
	core, err := os.ReadFile(filepath.Join(dirs[source.ArgoCD], source.CoreManifest))
	if err != nil {
		return nil, err
	}
	names, err := argocd.Images(core)
	if err != nil {
		return nil, err
	}
	tags := map[string][]string{}
	for _, image := range append(names, s.Pins.Images.Lab...) {
		ref, err := name.NewTag(image)
		if err != nil {
			continue // by its digest, which has no version's name
		}
		repository := path.Base(ref.RepositoryStr())
		tags[repository] = append(tags[repository], ref.TagStr())
	}
	return map[string]string{"nginx": strings.Join(tags["nginx"], ", "), "redis": strings.Join(tags["redis"], ", ")}, nil
}

// host is where what upstream serves at one of its hosts is fetched from.
func (s *Source) host(upstream string) string {
	if s.Mirrors.Releases != "" {
		return s.Mirrors.Releases
	}
	return upstream
}

// Reachable asks the release host for k3s's checksum list, or for k3s itself where a lock has its checksum, for ProbeTime at most.
func (s *Source) Reachable(ctx context.Context) error {
	host, probed := s.host(releaseHost), k3sSums
	if s.Lock != nil {
		probed = k3sBinary
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ProbeTime, fmt.Errorf("%s did not answer within %s", shown(host), ProbeTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, s.at(s.k3s(probed)), nil)
	if err != nil {
		return err
	}
	res, err := s.fetch.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s cannot be reached: %w", shown(host), bare(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return &StatusError{URL: req.URL.String(), Code: res.StatusCode}
	}
	return nil
}

// Preflight implements source.Source.
func (s *Source) Preflight(ctx context.Context) []check.Result {
	reach := check.Check{ID: "release-host", Title: "release host", Ask: func(ctx context.Context) (check.Outcome, error) {
		host := s.host(releaseHost)
		if err := s.Reachable(ctx); err != nil {
			return check.Fail("an answer from "+shown(host), err.Error(), "set a mirror with image.releaseMirror, or use `--source modules` where upstream cannot be reached"), nil
		}
		return check.Pass(shown(host)), nil
	}}.Run(ctx)
	return []check.Result{reach}
}

// The files of upstream's releases.
const (
	k3sBinary = "k3s"
	k3sImages = "k3s-airgap-images-amd64.tar.zst"
	k3sSums   = "sha256sum-amd64.txt"
	argoCLI   = "argocd-linux-amd64"
	argoSums  = "cli_checksums.txt"
)

// The projects, as upstream's hosts name them.
const (
	k3sProject  = "k3s-io/k3s"
	argoProject = "argoproj/argo-cd"
)

// k3s, argo and core are the addresses at upstream of a file of k3s's release, of one of Argo CD's release, and of Argo CD's manifests.
func (s *Source) k3s(file string) string {
	return releaseHost + "/" + k3sProject + "/releases/download/" + url.PathEscape(s.Pins.Release.Parts["k3s"].Version) + "/" + file
}

func (s *Source) argo(file string) string {
	return releaseHost + "/" + argoProject + "/releases/download/" + s.Pins.Release.Parts["argocd"].Version + "/" + file
}

func (s *Source) core() string {
	return rawHost + "/" + argoProject + "/" + s.Pins.Release.Parts["argocd"].Version + "/manifests/" + source.CoreManifest
}

// at is the address that an address at upstream is fetched from.
func (s *Source) at(upstream string) string {
	for _, host := range []string{releaseHost, rawHost} {
		if rest, ok := strings.CutPrefix(upstream, host+"/"); ok {
			return s.host(host) + "/" + rest
		}
	}
	return upstream
}

// recipe changes when parts are put together in a way that their versions do not show.
const recipe = "1"

// Parts implements source.Source.
func (s *Source) Parts() []source.Part {
	unpacker := s.Unpacker
	return []source.Part{
		unpacker,
		{Name: source.Server, Needs: []string{unpacker.Name}, Key: s.key(source.Server, unpacker.Name), Build: s.fetchServer},
		{Name: source.ArgoCD, Key: s.key(source.ArgoCD), Build: s.fetchArgoCD},
		{Name: source.Containers, Needs: []string{source.Server, source.ArgoCD}, Key: s.key(source.Containers, source.Server, source.ArgoCD), Build: s.fetchContainers},
	}
}

// key digests what a part depends on. Mirrors are no part of it: they serve what upstream does.
func (s *Source) key(part string, needs ...string) func(map[string]cache.Key) (cache.Key, error) {
	return func(keys map[string]cache.Key) (cache.Key, error) {
		h := cache.NewHash("release-"+part).Strings(recipe, s.Pins.Release.Parts["k3s"].Version, s.Pins.Release.Parts["argocd"].Version, fmt.Sprint(s.Pins.Images), s.Lock.fingerprint())
		for _, need := range needs {
			h.Strings(need, string(keys[need]))
		}
		return h.Key()
	}
}

const binDir = "usr/local/bin"

func (s *Source) fetchServer(ctx context.Context, needs map[string]string, out string, progress func(string)) error {
	bin := filepath.Join(out, source.RootDir, binDir)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	// The archive is not for the guest, which would unpack it at every first boot: its images are taken out below.
	if err := s.files(ctx, s.k3s(k3sSums), progress, wanted{s.k3s(k3sBinary), filepath.Join(bin, k3sBinary), 0o755}, wanted{s.k3s(k3sImages), filepath.Join(out, k3sImages), 0o600}); err != nil {
		return err
	}
	for _, name := range []string{"kubectl", "crictl", "ctr"} {
		if err := os.Symlink(k3sBinary, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return os.Link(filepath.Join(needs[s.Unpacker.Name], source.Unpacker), filepath.Join(out, source.Unpacker))
}

func (s *Source) fetchArgoCD(ctx context.Context, _ map[string]string, out string, progress func(string)) error {
	bin := filepath.Join(out, source.RootDir, binDir)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	if err := s.files(ctx, s.argo(argoSums), progress, wanted{s.argo(argoCLI), filepath.Join(bin, "argocd"), 0o755}); err != nil {
		return err
	}
	core, err := s.manifests(ctx, progress)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, source.CoreManifest), core, 0o644)
}

// manifests are Argo CD's. Upstream publishes no checksum of them; a lock has one.
func (s *Source) manifests(ctx context.Context, progress func(string)) ([]byte, error) {
	want := ""
	if s.Lock != nil {
		var err error
		if want, err = s.Lock.file(s.core()); err != nil {
			return nil, err
		}
	}
	core, err := s.fetch.telling(progress).text(ctx, s.at(s.core()))
	if err != nil {
		return nil, err
	}
	if got := digestBytes(core.Bytes()); want != "" && got != want {
		return nil, &ChecksumError{URL: s.at(s.core()), Want: want, Got: got, Locked: true}
	}
	if _, err := namesOf(core.Bytes()); err != nil {
		return nil, &ContentError{URL: s.at(s.core()), Err: err}
	}
	return core.Bytes(), nil
}

// namesOf are the images that Argo CD's manifests name, its own first.
func namesOf(core []byte) ([]string, error) {
	names, err := argocd.Images(core)
	if err != nil {
		return nil, err
	}
	own := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, "/argocd:") })
	if own < 0 {
		return nil, fmt.Errorf("they name no image of Argo CD's own, only %v", names)
	}
	names[0], names[own] = names[own], names[0]
	return names, nil
}

// wanted is a file of a release and where it goes.
type wanted struct {
	url, to string
	perm    os.FileMode
}

// files downloads files, all at once, each by its checksum in the lock or, where there is none, in the list that upstream publishes at this address.
func (s *Source) files(ctx context.Context, list string, progress func(string), all ...wanted) error {
	fetch, sums := s.fetch.telling(progress), map[string]string{}
	var err error
	if s.Lock == nil {
		if sums, err = fetch.sums(ctx, s.at(list)); err != nil {
			return err
		}
	} else {
		for _, w := range all {
			if sums[path.Base(w.url)], err = s.Lock.file(w.url); err != nil {
				return err
			}
		}
	}
	meter := &meter{say: progress, names: make([]string, len(all)), done: make([]int64, len(all)), total: make([]int64, len(all))}
	group, ctx := errgroup.WithContext(ctx)
	for i, w := range all {
		meter.names[i] = path.Base(w.url)
		group.Go(func() error {
			err := fetch.file(ctx, s.at(w.url), sums[path.Base(w.url)], w.to, w.perm, func(done, total int64) { meter.moved(i, done, total) })
			if wrong := (*ChecksumError)(nil); errors.As(err, &wrong) {
				wrong.Locked = s.Lock != nil
			}
			return err
		})
	}
	return group.Wait()
}

// meter says how far several downloads are, now and then.
type meter struct {
	say         func(string)
	names       []string
	mu          sync.Mutex
	done, total []int64
	last        time.Time
}

func (m *meter) moved(i int, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[i], m.total[i] = done, total
	if time.Since(m.last) < time.Second {
		return
	}
	m.last = time.Now()
	var said []string
	for i, name := range m.names {
		if m.total[i] > 0 && m.done[i] < m.total[i] {
			said = append(said, fmt.Sprintf("%s %d of %d MiB", name, m.done[i]>>20, m.total[i]>>20))
		}
	}
	if len(said) > 0 {
		m.say(strings.Join(said, ", "))
	}
}
