// Package ground is what lab rev's checks stand on: where its things are in the guest, and what has been read of them in one pass of
// verification.
package ground

import (
	"path/filepath"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Lab is the lab's id.
const Lab = "rev"

// The lab's fixed names.
const (
	// The Applications, and the namespaces that they deploy to.
	BranchApp = "rev-branch"
	TagApp    = "rev-tag"
	SHAApp    = "rev-sha"

	ConfigMap   = "release"
	Folder      = "app"
	ReleasePath = "app/release.yaml"
	Main        = "refs/heads/main"
	TagName     = "v1"
	Tag         = "refs/tags/v1"
	// The versions that the ConfigMap gets.
	First  = "v1"
	Second = "v2"
)

// Apps are the Applications in the order of the text.
func Apps() []string { return []string{BranchApp, TagApp, SHAApp} }

// Paths are the lab's places in the guest.
type Paths struct{ ground.Places }

// Guest are the places of the guest contract.
func Guest() Paths { return Paths{ground.Guest(Lab)} }

// SHAFile and the others are the lab's files.
func (p Paths) SHAFile() string     { return filepath.Join(p.Work, "v1.sha") }
func (p Paths) AppsFile() string    { return filepath.Join(p.Work, "apps.yaml") }
func (p Paths) AfterCommit() string { return filepath.Join(p.Work, "after-commit.json") }
func (p Paths) TagHistory() string  { return filepath.Join(p.Work, "tag-history.json") }
func (p Paths) Guard() string       { return filepath.Join(p.Work, "guard.txt") }
func (p Paths) Rollback() string    { return filepath.Join(p.Work, "rollback.json") }
func (p Paths) Refused() string     { return filepath.Join(p.Work, "rollback-refused.txt") }

// Wanted is what the lab asks of one of its Applications; pinned is the commit that rev-sha tracks.
func (p Paths) Wanted(app, pinned string) argo.Wanted {
	revisions := map[string][]string{BranchApp: argo.Branch("main"), TagApp: argo.Tag(TagName), SHAApp: argo.Commit(pinned)}
	return argo.Wanted{RepoURL: p.GitURL, Path: Folder, Revisions: revisions[app], Project: bootstrap.DefaultProject, Namespace: app}
}

// Ground is the guest as one program sees it.
type Ground struct {
	*ground.Ground
	Paths
}

// New is a Ground on the given places.
func New(p Paths, r run.Runner) *Ground { return &Ground{Ground: ground.New(p.Places, r), Paths: p} }
