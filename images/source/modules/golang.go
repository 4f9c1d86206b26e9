package modules

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/provision/run"
)

// recipe changes when the way parts are built changes in a way that their inputs do not show.
const recipe = "2"

const (
	binDir   = "usr/local/bin"
	k3sData  = "var/lib/rancher/k3s/data/current/bin"
	mode     = 0o755
	standIn  = "+labctl1"
	progress = 50 // packages between two progress messages
)

// goBuild builds packages of the nested module part into out, with the same settings for every part, so that parts share the build cache.
func (s *Source) goBuild(ctx context.Context, part, out string, report func(string), ldflags []string, packages ...string) error {
	argv := []string{"go", "build", "-C", filepath.Join(s.dir, part), "-v", "-trimpath", "-mod=readonly", "-buildvcs=false",
		"-ldflags", strings.Join(append([]string{"-s", "-w"}, ldflags...), " "), "-o", out}
	counter := newCounter(part, report)
	defer counter.Close()
	_, err := s.runner.Run(ctx, run.Cmd{
		Argv:   append(argv, packages...),
		Env:    []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=" + s.pins.Modules.Go},
		Stderr: counter,
	})
	if err != nil {
		return fmt.Errorf("build %s: %w", part, err)
	}
	return nil
}

// counter turns `go build -v`, a package a line, into a progress message now and then.
type counter struct{ *io.PipeWriter }

func newCounter(part string, report func(string)) counter {
	r, w := io.Pipe()
	go func() {
		n, scanner := 0, bufio.NewScanner(r)
		for scanner.Scan() {
			if n++; n%progress == 0 {
				report(fmt.Sprintf("%d packages compiled, now %s", n, scanner.Text()))
			}
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	return counter{w}
}

func (s *Source) buildServer(ctx context.Context, _ map[string]string, out string, report func(string)) error {
	version := s.pins.Modules.Parts["kubernetes"].Version + standIn
	ldflags := []string{
		"-X k8s.io/component-base/version.gitVersion=" + version, "-X k8s.io/client-go/pkg/version.gitVersion=" + version,
		"-X k8s.io/component-base/version.gitMajor=1", "-X k8s.io/component-base/version.gitMinor=" + strings.Split(version, ".")[1],
		"-X k8s.io/component-base/version.gitTreeState=clean", "-X main.version=" + version,
	}
	data := filepath.Join(out, source.RootDir, k3sData)
	bin := filepath.Join(out, source.RootDir, binDir)
	for _, dir := range []string{data, bin} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return err
		}
	}
	const containerd = "github.com/containerd/containerd/v2/cmd/"
	if err := s.goBuild(ctx, source.Server, data+"/", report, ldflags, "./cmd/k3s-server", "./cmd/k3s", "k8s.io/kubernetes/cmd/kubectl",
		"sigs.k8s.io/cri-tools/cmd/crictl", containerd+"containerd", containerd+"containerd-shim-runc-v2", containerd+"ctr", "./cmd/image-unpack"); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(data, source.Unpacker), filepath.Join(out, source.Unpacker)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(data, "k3s"), filepath.Join(bin, "k3s")); err != nil {
		return err
	}
	for _, name := range []string{"kubectl", "crictl", "ctr"} {
		if err := os.Symlink("k3s", filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) buildArgoCD(ctx context.Context, _ map[string]string, out string, report func(string)) error {
	bin := filepath.Join(out, source.RootDir, binDir)
	if err := os.MkdirAll(bin, mode); err != nil {
		return err
	}
	version := strings.TrimPrefix(s.argoVersion(), "v")
	ldflags := []string{"-X github.com/argoproj/argo-cd/v3/common.version=" + version, "-X github.com/argoproj/argo-cd/v3/common.gitTreeState=clean"}
	if err := s.goBuild(ctx, source.ArgoCD, filepath.Join(bin, "argocd"), report, ldflags, "github.com/argoproj/argo-cd/v3/cmd"); err != nil {
		return err
	}
	dir, err := s.moduleDir(ctx, source.ArgoCD, s.pins.Modules.Parts["argocd"].Module)
	if err != nil {
		return err
	}
	for _, name := range argoScripts {
		if err := copyFile(filepath.Join(dir, "hack", name), filepath.Join(out, name), 0o755); err != nil {
			return err
		}
	}
	return copyFile(filepath.Join(dir, "manifests", source.CoreManifest), filepath.Join(out, source.CoreManifest), 0o644)
}

// argoScripts are what upstream's image has beside the binary; without the first, the repo-server refuses every commit.
var argoScripts = []string{"git-verify-wrapper.sh", "gpg-wrapper.sh"}

// buildSmall builds a nested module of one program into out/NAME.
func (s *Source) buildSmall(part, pkg string) func(context.Context, map[string]string, string, func(string)) error {
	return func(ctx context.Context, _ map[string]string, out string, report func(string)) error {
		return s.goBuild(ctx, part, filepath.Join(out, part), report, nil, pkg)
	}
}

// moduleDir is where the module proxy's copy of a module lies.
func (s *Source) moduleDir(ctx context.Context, part, module string) (string, error) {
	res, err := s.runner.Run(ctx, run.Cmd{
		Argv: []string{"go", "list", "-C", filepath.Join(s.dir, part), "-mod=readonly", "-m", "-f", "{{.Dir}}", module},
		Env:  []string{"GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=" + s.pins.Modules.Go},
	})
	if err != nil {
		return "", err
	}
	dir := strings.TrimSpace(string(res.Stdout))
	if dir == "" {
		return "", fmt.Errorf("go list names no folder for %s", module)
	}
	return dir, nil
}

func copyFile(from, to string, perm os.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
