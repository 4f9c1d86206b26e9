// Package solution is lab rev's reference solution, done with the commands that the text teaches, and the lab's reset.
package solution

import (
	"context"
	"embed"
	"errors"

	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/prompt"
)

//go:embed files
var files embed.FS

// Solution solves lab rev on a ground.
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

// status reads one field of an Application's status, such as .status.sync.revision.
func (w work) status(ctx context.Context, app, field string) (string, error) {
	return w.Kubectl(ctx, "", "-n", "argocd", "get", "app", app, "-o", "jsonpath={"+field+"}")
}

// history is what Argo CD remembers of an Application.
func (w work) history(ctx context.Context, name string) (ground.History, error) {
	client, err := w.Argo()
	if err != nil {
		return nil, err
	}
	app, err := client.Application(ctx, name)
	if err != nil {
		return nil, err
	}
	if app == nil {
		return nil, errors.New("there is no Application " + name)
	}
	return w.HistoryOf(ctx, app)
}

// newest is the newest commit of main that says version.
func newest(main ground.MainHistory, version string) (string, error) {
	if found := main.With(version); len(found) > 0 {
		return found[0], nil
	}
	return "", errors.New("main has no commit with version " + version)
}

// follow has Argo CD look again and waits until each Application is in step with what it tracks.
func (w work) follow(ctx context.Context, apps ...string) error {
	for _, app := range apps {
		if err := w.Refresh(ctx, app); err != nil {
			return err
		}
	}
	for _, app := range apps {
		want, err := w.target(ctx, app)
		if err != nil {
			return err
		}
		if err := w.WaitInStep(ctx, app, want, nil); err != nil {
			return err
		}
	}
	return nil
}

// target is the commit that an Application is to be at now.
func (w work) target(ctx context.Context, app string) (string, error) {
	switch app {
	case ground.BranchApp:
		main, err := w.ReadMain(ctx)
		return main.Tip(), err
	case ground.TagApp:
		sha, _, err := w.TagCommit(ctx)
		return sha, err
	}
	return w.First()
}

// moveTag moves the tag v1, here and in the bare repository, where step 5's hook may be in the way.
func (w work) moveTag(ctx context.Context, commit string) (err error) {
	restore, err := w.OpenDoor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	return prompt.All(
		func() error { _, err := w.Git(ctx, "fetch", "--quiet", "--no-tags", "origin", "main"); return err },
		func() error { _, err := w.Git(ctx, "tag", "--force", ground.TagName, commit); return err },
		func() error { _, err := w.Git(ctx, "push", "--quiet", "--force", "origin", ground.Tag); return err },
	)
}

// Reset puts the lab back to its start; see labs.Lab.Reset.
func (s *Solution) Reset(ctx context.Context, log func(string)) error {
	w := s.start(log)
	// What can be taken away is taken away also where something else resists.
	return errors.Join(
		w.RemoveApps(ctx, ground.Apps()...),
		w.RemoveNamespaces(ctx, ground.Apps()...),
		w.RemoveFiles(),
	)
}
