// Package ground is what lab ci's checks stand on: where its things are in the guest, and what has been read of them in one pass of
// verification.
package ground

import (
	"path/filepath"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/kube"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Lab is the lab's id.
const Lab = "ci"

// The lab's fixed names.
const (
	App        = "ci-web"
	Production = "ci-web" // the namespace
	Web        = "web"    // the Deployment
	DryRun     = "ci-dryrun"
	CI         = "ci"

	Role    = "dryrun-deployments"
	Binding = "validator-dryrun"

	Folder     = "deploy"
	WebPath    = "deploy/web.yaml"
	Main       = "refs/heads/main"
	FirstImage = "nginx:1.27-alpine"
	NewTag     = "1.28-alpine"
	Replicas   = 2
)

// Validator is the account that CI validates with.
var Validator = kube.Account{Namespace: CI, Name: "validator"}

// Namespaces are those that the lab brings into being.
func Namespaces() []string { return []string{Production, CI, DryRun} }

// Paths are the lab's places in the guest.
type Paths struct{ ground.Places }

// Guest are the places of the guest contract.
func Guest() Paths { return Paths{ground.Guest(Lab)} }

// AppFile and the others are the lab's files.
func (p Paths) AppFile() string      { return filepath.Join(p.Work, "app.yaml") }
func (p Paths) Broken() string       { return filepath.Join(p.Work, "broken.json") }
func (p Paths) CIKubeconfig() string { return filepath.Join(p.Work, "ci-kubeconfig") }
func (p Paths) Validate() string     { return filepath.Join(p.Work, "validate.sh") }
func (p Paths) Blocked() string      { return filepath.Join(p.Work, "blocked.txt") }
func (p Paths) Bump() string         { return filepath.Join(p.Work, "bump.sh") }

// Wanted is what the lab asks of its Application.
func (p Paths) Wanted() argo.Wanted {
	return argo.Wanted{RepoURL: p.GitURL, Path: Folder, Revisions: argo.Branch("main"), Project: bootstrap.DefaultProject, Namespace: Production}
}

// Ground is the guest as one program sees it.
type Ground struct {
	*ground.Ground
	Paths
}

// New is a Ground on the given places.
func New(p Paths, r run.Runner) *Ground { return &Ground{Ground: ground.New(p.Places, r), Paths: p} }
