// Package modules is the source that builds every part on the spot, from Go modules and Debian packages.
package modules

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Source builds parts from the nested modules below Dir.
type Source struct {
	dir    string
	mirror string
	pins   versions.Versions
	runner run.Runner
}

// New returns a source that builds the modules below dir. mirror is the Debian mirror, empty for the tools' default.
func New(dir, mirror string, pins versions.Versions, runner run.Runner) *Source {
	return &Source{dir: dir, mirror: mirror, pins: pins, runner: runner}
}

// Name implements source.Source.
func (s *Source) Name() images.SourceName { return images.Modules }

// Versions implements source.Source.
func (s *Source) Versions() map[string]string {
	out := map[string]string{"go": s.pins.Modules.Go, "debian": s.pins.Modules.DebianSuite}
	for name, part := range s.pins.Modules.Parts {
		out[name] = part.Version
	}
	return out
}

// StandIns implements source.Source.
func (s *Source) StandIns() map[string]string {
	kubernetes := s.pins.Modules.Parts["kubernetes"].Version
	standIns := map[string]string{
		"k3s":                 "Kubernetes " + kubernetes + " and kine in one process, laid out like k3s; not the k3s project's release",
		"argocd":              s.argoVersion() + ", built from its module, instead of " + s.pins.Release.Parts["argocd"].Version,
		s.pins.Images.Pause:   "a Go program that does what pause does",
		s.pins.Images.CoreDNS: "CoreDNS " + s.pins.Modules.Parts["coredns"].Version + " with a cluster's plugins only",
		"redis":               "Debian's redis-server under the name that Argo CD's manifests use",
	}
	for _, name := range s.pins.Images.Lab {
		standIns[name] = "Debian's nginx under this name; it answers with the name's version in its default page"
	}
	return standIns
}

func (s *Source) argoVersion() string { return s.pins.Modules.Parts["argocd"].Version }

// Preflight implements source.Source.
func (s *Source) Preflight(context.Context) []check.Result {
	var results []check.Result
	add := func(id, title string, err error, got string) {
		r := check.Result{ID: id, Title: title, State: check.Passed, Got: got}
		if err != nil {
			r.State, r.Got = check.Failed, err.Error()
			if hinted, ok := err.(interface{ Hint() string }); ok {
				r.Hint = hinted.Hint()
			}
		}
		results = append(results, r)
	}
	program, err := exec.LookPath("go")
	if err != nil {
		err = &source.MissingToolError{Program: "go", Package: "golang (1.21 or newer; it fetches " + s.pins.Modules.Go + " itself)"}
	}
	add("tool-go", "go", err, program)
	var noTree error
	if _, err := os.Stat(filepath.Join(s.dir, "k3s", "go.mod")); err != nil {
		noTree = &NoSourceTreeError{Dir: s.dir}
	}
	add("modules-dir", "nested modules", noTree, s.dir)
	return results
}

// NoSourceTreeError says that the nested modules are not where they were looked for.
type NoSourceTreeError struct{ Dir string }

func (e *NoSourceTreeError) Error() string {
	return fmt.Sprintf("the modules source needs labctl's source tree, and there is none at %q", e.Dir)
}

// Hint is the next action.
func (e *NoSourceTreeError) Hint() string {
	return "run labctl from its checkout, or set image.modulesDir to the checkout's images/modules"
}

// Parts implements source.Source.
func (s *Source) Parts() []source.Part {
	return []source.Part{
		{Name: source.Server, Key: s.goKey(source.Server), Build: s.buildServer},
		{Name: source.ArgoCD, Key: s.goKey(source.ArgoCD), Build: s.buildArgoCD},
		{Name: partCoreDNS, Key: s.goKey(partCoreDNS), Build: s.buildSmall(partCoreDNS, ".")},
		{Name: partPause, Key: s.goKey(partPause), Build: s.buildSmall(partPause, ".")},
		{Name: partDebian, Key: s.debianKey, Build: s.buildDebian},
		{Name: source.Containers, Needs: []string{source.ArgoCD, partCoreDNS, partPause, partDebian}, Key: s.containersKey, Build: s.buildContainers},
	}
}

// Unpacker is the part with source.Unpacker alone, for sources that do not make it: it is built from the module of the server.
func (s *Source) Unpacker() source.Part {
	return source.Part{Name: partUnpack, Key: s.goKey(source.Server), Build: func(ctx context.Context, _ map[string]string, out string, report func(string)) error {
		return s.goBuild(ctx, source.Server, filepath.Join(out, source.Unpacker), report, nil, "./cmd/image-unpack")
	}}
}

// Parts that only this source has.
const (
	partUnpack  = "unpack"
	partCoreDNS = "coredns"
	partPause   = "pause"
	partDebian  = "debian-apps"
)

// goKey digests a nested module: its sources and pins, the toolchain and the recipe below.
func (s *Source) goKey(part string) func(map[string]cache.Key) (cache.Key, error) {
	return func(map[string]cache.Key) (cache.Key, error) {
		return cache.NewHash(part).Strings(recipe, s.pins.Modules.Go, runtime.GOARCH, fmt.Sprint(s.Versions())).Tree(filepath.Join(s.dir, part)).Key()
	}
}
