// Package release is the source that takes every part from its upstream's own release, by checksum. In this version it fetches
// k3s and the argocd command line; container images are still to come, so it cannot make a whole image yet and says so.
package release

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Hosts are where upstream publishes. A mirror serves the same paths below another base.
type Hosts struct {
	// Releases serves PROJECT/releases/download/VERSION/FILE.
	Releases string
	// Raw serves PROJECT/VERSION/PATH, the files of a repository at a tag.
	Raw string
}

// Upstream is where the projects themselves publish.
var Upstream = Hosts{Releases: "https://github.com", Raw: "https://raw.githubusercontent.com"}

// ProbeTime is how long Reachable waits for an answer.
const ProbeTime = 2 * time.Second

// Source fetches upstream's releases.
type Source struct {
	hosts Hosts
	pins  versions.Versions
	fetch fetcher
}

// New returns a source that fetches from hosts.
func New(hosts Hosts, pins versions.Versions, client *http.Client) *Source {
	return &Source{hosts: hosts, pins: pins, fetch: fetcher{client: client, pause: 500 * time.Millisecond}}
}

// Name implements source.Source.
func (s *Source) Name() images.SourceName { return images.Release }

// Versions implements source.Source.
func (s *Source) Versions() map[string]string {
	out := map[string]string{}
	for name, part := range s.pins.Release.Parts {
		out[name] = part.Version
	}
	return out
}

// StandIns implements source.Source: upstream's own parts stand in for nothing.
func (s *Source) StandIns() map[string]string { return nil }

// IncompleteError says that this source cannot make a whole image yet.
type IncompleteError struct{}

func (*IncompleteError) Error() string {
	return "the release source cannot fetch container images in this version"
}

// Hint is the next action.
func (*IncompleteError) Hint() string {
	return "build with `--source modules`, which makes every part on this machine"
}

// Reachable asks the release host for k3s's checksum list, for ProbeTime at most.
func (s *Source) Reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, ProbeTime, fmt.Errorf("%s did not answer within %s", s.hosts.Releases, ProbeTime))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, s.k3sURL(k3sSums), nil)
	if err != nil {
		return err
	}
	res, err := s.fetch.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var request *url.Error // it repeats the whole address
		if errors.As(err, &request) {
			err = request.Err
		}
		var lookup *net.DNSError // it names the resolver, which tells nobody anything
		if errors.As(err, &lookup) {
			err = errors.New(lookup.Err)
		}
		return fmt.Errorf("%s cannot be reached: %w", s.hosts.Releases, err)
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
		if err := s.Reachable(ctx); err != nil {
			return check.Fail("an answer from "+s.hosts.Releases, err.Error(), "use `--source modules` where upstream cannot be reached"), nil
		}
		return check.Pass(s.hosts.Releases), nil
	}}.Run(ctx)
	missing := &IncompleteError{}
	return []check.Result{reach, {ID: "release-images", Title: "container images", State: check.Failed, Wanted: "a way to fetch them", Got: missing.Error(), Hint: missing.Hint()}}
}

// The files of upstream's releases.
const (
	k3sBinary = "k3s"
	k3sImages = "k3s-airgap-images-amd64.tar.zst"
	k3sSums   = "sha256sum-amd64.txt"
	argoCLI   = "argocd-linux-amd64"
	argoSums  = "cli_checksums.txt"
)

func (s *Source) k3sURL(file string) string {
	return s.hosts.Releases + "/k3s-io/k3s/releases/download/" + url.PathEscape(s.pins.Release.Parts["k3s"].Version) + "/" + file
}

func (s *Source) argoURL(file string) string {
	return s.hosts.Releases + "/argoproj/argo-cd/releases/download/" + s.pins.Release.Parts["argocd"].Version + "/" + file
}

// Parts implements source.Source.
func (s *Source) Parts() []source.Part {
	key := func(part string) func(map[string]cache.Key) (cache.Key, error) {
		return func(map[string]cache.Key) (cache.Key, error) {
			return cache.NewHash("release-"+part).Strings(s.pins.Release.Parts["k3s"].Version, s.pins.Release.Parts["argocd"].Version).Key()
		}
	}
	return []source.Part{
		{Name: source.Server, Key: key(source.Server), Build: s.fetchK3s},
		{Name: source.ArgoCD, Key: key(source.ArgoCD), Build: s.fetchArgoCD},
		{Name: source.Containers, Key: key(source.Containers), Build: func(context.Context, map[string]string, string, func(string)) error { return &IncompleteError{} }},
	}
}

func (s *Source) fetchK3s(ctx context.Context, _ map[string]string, out string, progress func(string)) error {
	bin := filepath.Join(out, source.RootDir, "usr/local/bin")
	archives := filepath.Join(out, source.RootDir, "var/lib/rancher/k3s/agent/images")
	for _, dir := range []string{bin, archives} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	sums, err := s.fetch.sums(ctx, s.k3sURL(k3sSums))
	if err != nil {
		return err
	}
	progress(k3sBinary + " " + s.pins.Release.Parts["k3s"].Version)
	if err := s.fetch.file(ctx, s.k3sURL(k3sBinary), sums[k3sBinary], filepath.Join(bin, "k3s"), 0o755); err != nil {
		return err
	}
	progress(k3sImages)
	if err := s.fetch.file(ctx, s.k3sURL(k3sImages), sums[k3sImages], filepath.Join(archives, k3sImages), 0o600); err != nil {
		return err
	}
	for _, name := range []string{"kubectl", "crictl", "ctr"} {
		if err := os.Symlink("k3s", filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) fetchArgoCD(ctx context.Context, _ map[string]string, out string, progress func(string)) error {
	bin := filepath.Join(out, source.RootDir, "usr/local/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	sums, err := s.fetch.sums(ctx, s.argoURL(argoSums))
	if err != nil {
		return err
	}
	progress(argoCLI + " " + s.pins.Release.Parts["argocd"].Version)
	return s.fetch.file(ctx, s.argoURL(argoCLI), sums[argoCLI], filepath.Join(bin, "argocd"), 0o755)
}
