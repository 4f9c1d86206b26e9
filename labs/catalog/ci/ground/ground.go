// Package ground is what lab ci's checks stand on: where things are in the guest, and what has been read of them in one pass of
// verification.
package ground

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/kube"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/provision/run"
)

// The lab's fixed names.
const (
	App        = "ci-web"
	Production = "ci-web" // the namespace
	Web        = "web"    // the Deployment
	DryRun     = "ci-dryrun"
	CI         = "ci"
	Role       = "dryrun-deployments"
	Binding    = "validator-dryrun"
	WebPath    = "deploy/web.yaml"
	Main       = "refs/heads/main"
	FirstImage = "nginx:1.27-alpine"
	NewTag     = "1.28-alpine"
	Replicas   = 2
)

// Validator is the account that CI validates with.
var Validator = kube.Account{Namespace: CI, Name: "validator"}

// Paths are the places in the guest; tests have their own.
type Paths struct {
	// Home is root's home; Work the lab's folder in it; GitRoot where bare repositories are.
	Home, Work, GitRoot string
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Scratch is where verify keeps its scratch folders: on the guest's disk, outside Copied.
	Scratch string
	// Copied are the folders that a learner's program may write to without effect while it is verified.
	Copied []string
	// GitURL is how Argo CD reads the bare repositories.
	GitURL string
	// Lock is the lab's lock file.
	Lock string
}

// Guest are the places of the guest contract.
func Guest() Paths {
	return Paths{
		Home: "/root", Work: "/root/cgoa-ci", GitRoot: bootstrap.GitRoot, Kubeconfig: bootstrap.Kubeconfig,
		Scratch: "/var/tmp", Copied: []string{"/root", "/srv", "/tmp", "/opt", "/home", "/var/log"},
		GitURL: fmt.Sprintf("git://%s:%d/ci.git", bootstrap.GitHost, bootstrap.GitPort),
		Lock:   "/run/labctl/lab-ci.lock",
	}
}

// Bare and the others are the lab's files.
func (p Paths) Bare() string         { return filepath.Join(p.GitRoot, "ci.git") }
func (p Paths) Clone() string        { return filepath.Join(p.Work, "repo") }
func (p Paths) AppFile() string      { return filepath.Join(p.Work, "app.yaml") }
func (p Paths) Broken() string       { return filepath.Join(p.Work, "broken.json") }
func (p Paths) AdminCopy() string    { return filepath.Join(p.Work, "kubeconfig") }
func (p Paths) CIKubeconfig() string { return filepath.Join(p.Work, "ci-kubeconfig") }
func (p Paths) Validate() string     { return filepath.Join(p.Work, "validate.sh") }
func (p Paths) Hook() string         { return filepath.Join(p.Bare(), "hooks", "pre-receive") }
func (p Paths) Blocked() string      { return filepath.Join(p.Work, "blocked.txt") }
func (p Paths) Bump() string         { return filepath.Join(p.Work, "bump.sh") }
func (p Paths) Report() string       { return filepath.Join(p.Work, "report.json") }

// ScratchPrefix starts the names of this lab's scratch folders.
const ScratchPrefix = "labctl-verify-ci"

// Ground is the guest as one program sees it. Open the cluster with Kube.
type Ground struct {
	Paths
	// Runner runs the guest's git.
	Runner run.Runner

	kube    *kube.Client
	mu      sync.Mutex
	scratch *sandbox.Scratch
	memo    map[string]any
}

// New is a Ground on the given places.
func New(p Paths, r run.Runner) *Ground { return &Ground{Paths: p, Runner: r} }

// Kube is the client of the guest's cluster.
func (g *Ground) Kube() (*kube.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kube == nil {
		client, err := kube.Open(g.Kubeconfig)
		if err != nil {
			return nil, err
		}
		g.kube = client
	}
	return g.kube, nil
}

// Argo is the client of Argo CD's Applications.
func (g *Ground) Argo() (argo.Client, error) {
	client, err := g.Kube()
	if err != nil {
		return argo.Client{}, err
	}
	return argo.Client{API: client, Namespace: bootstrap.ArgoNamespace, GitNamespace: bootstrap.GitNamespace, GitDaemon: bootstrap.GitDaemon}, nil
}

// Wanted is what the lab asks of its Application.
func (p Paths) Wanted() argo.Wanted {
	return argo.Wanted{RepoURL: p.GitURL, Path: "deploy", Revisions: argo.Branch("main"), Project: bootstrap.DefaultProject, Namespace: Production}
}

// BareRepo and CloneRepo are the lab's repositories.
func (g *Ground) BareRepo() git.Repo  { return git.Repo{Dir: g.Bare(), Runner: g.Runner} }
func (g *Ground) CloneRepo() git.Repo { return git.Repo{Dir: g.Clone(), Runner: g.Runner} }

// Begin starts a pass of verification; see labs.Lab.Begin.
func (g *Ground) Begin(ctx context.Context) (end func(), err error) {
	scratch, err := sandbox.New(g.Scratch, ScratchPrefix)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.scratch, g.memo = scratch, map[string]any{}
	g.mu.Unlock()
	end = func() {
		g.mu.Lock()
		closers := g.memo
		g.scratch, g.memo = nil, nil
		g.mu.Unlock()
		for _, v := range closers {
			if c, ok := v.(interface{ Close() error }); ok {
				_ = c.Close()
			}
		}
		_ = scratch.Close()
	}
	client, err := g.Kube()
	if err == nil {
		err = client.Ready(ctx)
	}
	return end, err
}

// Trouble returns an error where the guest itself is in trouble: no room, or an API server that does not answer. It is asked before
// a learner's program is blamed for failing.
func (g *Ground) Trouble(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	scratch, err := g.scratchNow()
	if err != nil {
		return err
	}
	if err := scratch.Probe(); err != nil {
		return err
	}
	client, err := g.Kube()
	if err != nil {
		return err
	}
	return client.Ready(ctx)
}

func (g *Ground) scratchNow() (*sandbox.Scratch, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.scratch == nil {
		return nil, fmt.Errorf("lab ci: no pass of verification has begun")
	}
	return g.scratch, nil
}

// Once gives f's value, called at most once in a pass of verification. What f could not find out is asked again.
func Once[T any](g *Ground, key string, f func() (T, error)) (T, error) {
	g.mu.Lock()
	v, ok := g.memo[key]
	g.mu.Unlock()
	if ok {
		return v.(T), nil
	}
	value, err := f()
	if err != nil {
		return value, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.memo != nil {
		g.memo[key] = value
	}
	return value, nil
}

// Exists reports whether something is at path.
func Exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}
