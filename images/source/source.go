// Package source is the contract of where a golden image's parts come from.
package source

import (
	"context"
	"fmt"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/labs/check"
)

// The names of the parts that every source makes. A part's folder may hold RootDir, Archive and Manifests.
const (
	Server     = "k3s"        // RootDir: k3s and its command line
	ArgoCD     = "argocd"     // RootDir: the argocd command line; CoreManifest
	Containers = "containers" // Archive: every container image, with Server's Unpacker able to unpack it
)

// The files of a part's folder.
const (
	// RootDir is copied onto the guest's root.
	RootDir = "root"
	// Archive is an OCI archive with all container images.
	Archive = "images.tar"
	// CoreManifest is Argo CD's core-install.yaml as upstream ships it.
	CoreManifest = "core-install.yaml"
	// Unpacker, a program in Server's folder, unpacks Archive into a guest's root on the build machine.
	Unpacker = "image-unpack"
)

// Part is one cached unit of a source's work.
type Part struct {
	Name  string
	Needs []string
	// Key digests everything that the result depends on, given the keys of Needs.
	Key func(needs map[string]cache.Key) (cache.Key, error)
	// Build fills out, given the folders of Needs.
	Build func(ctx context.Context, needs map[string]string, out string, progress func(detail string)) error
}

// Source makes the parts of a golden image.
type Source interface {
	Name() images.SourceName
	// Preflight checks, changing nothing, that this machine can make the parts.
	Preflight(ctx context.Context) []check.Result
	// Parts are in an order in which each comes after what it needs.
	Parts() []Part
	// Versions names every part's version; StandIns the parts that take another's place, with what they really are.
	Versions() map[string]string
	StandIns() map[string]string
	// Inside names the versions of what is in the parts that were made, in these folders by name, where no pin tells them.
	Inside(dirs map[string]string) (map[string]string, error)
}

// MissingToolError says that a program is not on this machine.
type MissingToolError struct{ Program, Package string }

func (e *MissingToolError) Error() string { return fmt.Sprintf("%s is not installed", e.Program) }

// Hint is the next action.
func (e *MissingToolError) Hint() string { return "install it: apt-get install " + e.Package }
