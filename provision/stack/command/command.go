// Package command finds Pulumi's command line, or builds it once into the cache.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Oldest is the oldest Pulumi that is used where it is found: the first with all that the stack asks of it.
const Oldest = "v3.200.0"

// part is both the nested module and the cache's name of what it makes.
const part = "pulumi"

// Finder finds or builds.
type Finder struct {
	// Modules is the folder of nested modules, empty where there is none.
	Modules string
	Cache   cache.Cache
	// Go is the version of the toolchain to build with, such as go1.27.3.
	Go     string
	Runner run.Runner
}

// MissingError says that there is no Pulumi and none can be built.
type MissingError struct{ Why string }

func (e *MissingError) Error() string {
	return "fleets need Pulumi's command line, and " + e.Why
}

// Hint is the next action.
func (e *MissingError) Hint() string {
	return fmt.Sprintf("put pulumi %s or newer on the path, or run labctl from its source tree with go installed, which builds it once", Oldest)
}

// Find returns the path of a Pulumi: the one on the path where it is new enough, else the one in the cache, which is built where it is
// not there (*MissingError where it cannot be). say tells how that goes.
func (f Finder) Find(ctx context.Context, say func(string)) (string, error) {
	why := "there is none on the path"
	if path, err := exec.LookPath(part); err == nil {
		version, err := f.version(ctx, path)
		if err != nil {
			return "", err
		}
		if semver.Compare(version, Oldest) >= 0 {
			return path, nil
		}
		why = fmt.Sprintf("%s is %s, older than %s", path, version, Oldest)
	}
	if f.Modules == "" {
		return "", &MissingError{Why: why + ", nor labctl's source tree to build it from"}
	}
	module := filepath.Join(f.Modules, part)
	key, err := cache.NewHash(part).Strings(f.Go).File(filepath.Join(module, "go.mod")).File(filepath.Join(module, "go.sum")).Key()
	if err != nil {
		return "", err
	}
	dir, _, err := f.Cache.Get(ctx, part, key, func() { say("waiting for another labctl that builds Pulumi") }, func(ctx context.Context, dir string) error {
		say("build Pulumi's command line, once: some minutes")
		return f.build(ctx, module, filepath.Join(dir, part))
	})
	if errors.Is(err, exec.ErrNotFound) {
		return "", &MissingError{Why: why + ", nor go to build it with"}
	}
	return filepath.Join(dir, part), err
}

func (f Finder) version(ctx context.Context, path string) (string, error) {
	res, err := f.Runner.Run(ctx, run.Cmd{Argv: []string{path, "version", "--non-interactive"}, Env: []string{"PULUMI_SKIP_UPDATE_CHECK=true"}})
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}

func (f Finder) build(ctx context.Context, module, out string) error {
	pinned, err := pin(filepath.Join(module, "go.mod"))
	if err != nil {
		return err
	}
	_, err = f.Runner.Run(ctx, run.Cmd{
		Argv: []string{"go", "build", "-C", module, "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", "-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=" + pinned, "-o", out, upstream + "/cmd/pulumi"},
		Env:  []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=" + f.Go},
	})
	if err != nil {
		return fmt.Errorf("build Pulumi's command line: %w", err)
	}
	return nil
}

// upstream is the module of the command line.
const upstream = "github.com/pulumi/pulumi/pkg/v3"

// pin is the version of the command line that a go.mod names.
func pin(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return "", err
	}
	for _, r := range file.Require {
		if r.Mod.Path == upstream {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("%s does not name %s", path, upstream)
}
