// Package solution is lab ci's reference solution, done with the commands that the text teaches, and the lab's reset.
package solution

import (
	"context"
	"embed"
	"errors"
	"os"
	"path/filepath"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/prompt"
)

//go:embed files
var files embed.FS

// Solution solves lab ci on a ground.
type Solution struct{ g *ground.Ground }

// New is the solution on the ground.
func New(g *ground.Ground) *Solution { return &Solution{g: g} }

// work is one step's solution at work.
type work struct {
	*ground.Ground
	*prompt.Prompt
}

func (s *Solution) start(log func(string)) work { return work{s.g, prompt.New(s.g.Ground, log)} }

// file is a file of the solution, with the places filled in.
func (w work) file(name string) ([]byte, error) {
	data, err := files.ReadFile("files/" + name)
	return prompt.Fill(data, w.Places), err
}

// write puts a file of the solution at path.
func (w work) write(name, path string, mode os.FileMode) error {
	data, err := w.file(name)
	if err != nil {
		return err
	}
	return w.Write(path, data, mode)
}

// commit writes deploy/web.yaml, commits it and, with push, pushes main.
func (w work) commit(ctx context.Context, content, message string, push bool) error {
	return w.Commit(ctx, ground.WebPath, content, message, push)
}

// webText is deploy/web.yaml in the clone's work tree.
func (w work) webText() (string, error) {
	data, err := os.ReadFile(filepath.Join(w.Clone(), ground.WebPath))
	return string(data), err
}

// follow has Argo CD look again and waits until ci-web is in step with main. meanwhile runs for every look that is not yet so.
func (w work) follow(ctx context.Context, meanwhile func(ctx context.Context, s argo.Standing) error) error {
	if err := w.Refresh(ctx, ground.App); err != nil {
		return err
	}
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	return w.WaitInStep(ctx, ground.App, main.Tip(), meanwhile)
}

// Reset puts the lab back to its start; see labs.Lab.Reset.
func (s *Solution) Reset(ctx context.Context, log func(string)) error {
	w := s.start(log)
	// What can be taken away is taken away also where something else resists.
	return errors.Join(
		w.RemoveApps(ctx, ground.App),
		w.RemoveNamespaces(ctx, ground.Namespaces()...),
		w.revokeOthers(ctx, ""),
		w.RemoveFiles(),
	)
}
