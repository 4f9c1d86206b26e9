// Package rev is lab rev: a branch, a tag and a SHA as what Argo CD tracks, which of them move, and what a rollback is in GitOps.
package rev

import (
	"context"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/solution"
	own "github.com/cgoa-labs/labctl/labs/catalog/rev/text"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/judge"
	"github.com/cgoa-labs/labctl/provision/run"
)

// ID is the lab's name.
const ID = ground.Lab

// Lab is lab rev on the given places; r runs the guest's programs. What it says is in the given language, as far as it was translated.
func Lab(p ground.Paths, r run.Runner, language string) (labs.Lab, error) {
	words, err := own.In(language)
	if err != nil {
		return labs.Lab{}, err
	}
	g := ground.New(p, r)
	l := &lab{Ground: g, Judge: judge.New(g.Ground, words)}
	solve := solution.New(g)
	return l.Lab([]judge.Part{
		{Needs: nil, Checks: l.release(), Solve: solve.Release},
		{Needs: []int{1}, Checks: l.apps(), Solve: solve.Apps},
		{Needs: []int{2}, Checks: l.commit(), Solve: solve.Commit},
		{Needs: []int{3}, Checks: l.moved(), Solve: solve.Move},
		{Needs: []int{4}, Checks: l.guard(), Solve: solve.Guard},
		{Needs: []int{3}, Checks: l.rollback(), Solve: solve.Rollback},
		{Needs: []int{2}, Checks: l.refused(), Solve: solve.Refused},
		{Needs: []int{5, 6, 7}, Checks: l.report(), Solve: solve.Report},
	}, []check.Check{
		l.Check("fresh-apps", l.FreshApps(ground.Apps()...)),
		l.Check("fresh-namespaces", l.FreshNamespaces(ground.Apps()...)),
		l.Check("fresh-files", l.FreshFiles),
		l.Check("fresh-scratch", l.FreshScratch),
	}, solve.Reset)
}

// lab is the ground with the words for what is found on it.
type lab struct {
	*ground.Ground
	*judge.Judge
}

// application is an Application of the lab. Where there is none, the outcome says so.
func (l *lab) application(ctx context.Context, name string) (*argo.Application, check.Outcome, error) {
	client, err := l.Argo()
	if err != nil {
		return nil, check.Outcome{}, err
	}
	app, err := client.Application(ctx, name)
	if app == nil && err == nil {
		return nil, l.Fail(text.Say("an Application %s in namespace argocd", name), text.Say("there is none"), "app-missing"), nil
	}
	return app, check.Outcome{}, err
}

// target is the commit that an Application is to be at now.
func (l *lab) target(ctx context.Context, app string) (string, error) {
	switch app {
	case ground.BranchApp:
		main, err := l.Main(ctx)
		return main.Tip(), err
	case ground.TagApp:
		sha, _, err := l.TagCommit(ctx)
		return sha, err
	}
	return l.First()
}

// inStep asks whether an Application is in step with what it tracks, and whether the ConfigMap says what that commit says.
func (l *lab) inStep(ctx context.Context, name string) (check.Outcome, error) {
	want, err := l.target(ctx, name)
	if err != nil {
		return check.Outcome{}, err
	}
	client, err := l.Argo()
	if err != nil {
		return check.Outcome{}, err
	}
	app, standing, err := client.Look(ctx, name, want)
	if err != nil {
		return check.Outcome{}, err
	}
	if app == nil {
		return l.Fail(text.Say("an Application %s in namespace argocd", name), text.Say("there is none"), "app-missing"), nil
	}
	out := l.Standing(standing).With("commit", want).With("application", argo.Evidence(app))
	if out.State != check.Passed {
		out.Got = name + ": " + out.Got
		return out, nil
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	version, err := main.Version(ctx, want)
	if err != nil {
		return check.Outcome{}, err
	}
	config, err := l.config(ctx, name, version)
	if err != nil || config.State != check.Passed {
		return config.With("application", argo.Evidence(app)), err
	}
	return out.With("version", version), nil
}

// config asks for the ConfigMap in a namespace. One that says something else is being put right by self-heal.
func (l *lab) config(ctx context.Context, namespace, version string) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	config, err := client.ConfigMap(ctx, namespace, ground.ConfigMap)
	if err != nil {
		return check.Outcome{}, err
	}
	wanted, got := text.Say("ConfigMap %s in namespace %s with version %s", ground.ConfigMap, namespace, version), text.Say("it is not there")
	if config != nil {
		got = text.Say("version %q", config.Data["version"])
	}
	if config == nil || config.Data["version"] != version {
		return l.NotYet(wanted, got, "config-old"), nil
	}
	return l.Pass(got), nil
}

// inStepCheck is inStep as a check.
func (l *lab) inStepCheck(id, app string) check.Check {
	return l.Check(id, func(ctx context.Context) (check.Outcome, error) { return l.inStep(ctx, app) })
}
