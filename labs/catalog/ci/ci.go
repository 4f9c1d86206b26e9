// Package ci is lab ci: a broken commit meets the reconciler, and CI's validation moves to the repository's door.
package ci

import (
	"context"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/solution"
	own "github.com/cgoa-labs/labctl/labs/catalog/ci/text"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/judge"
	"github.com/cgoa-labs/labctl/provision/run"
)

// ID is the lab's name.
const ID = ground.Lab

// Lab is lab ci on the given places; r runs the guest's programs. What it says is in the given language, as far as it was translated.
func Lab(p ground.Paths, r run.Runner, language string) (labs.Lab, error) {
	words, err := own.In(language)
	if err != nil {
		return labs.Lab{}, err
	}
	g := ground.New(p, r)
	l := &lab{Ground: g, Judge: judge.New(g.Ground, words)}
	solve := solution.New(g)
	return l.Lab([]judge.Part{
		{Needs: nil, Checks: l.baseline(), Solve: solve.Baseline},
		{Needs: []int{1}, Checks: l.broken(), Solve: solve.Broken},
		{Needs: nil, Checks: l.identity(), Solve: solve.Identity},
		{Needs: []int{3}, Checks: l.validate(), Solve: solve.Validate},
		{Needs: []int{1, 4}, Checks: l.hook(), Solve: solve.Hook},
		{Needs: []int{5}, Checks: l.blocked(), Solve: solve.Blocked},
		{Needs: []int{2, 5}, Checks: l.bump(), Solve: solve.Bump},
		{Needs: []int{7}, Checks: l.report(), Solve: solve.Report},
	}, []check.Check{
		l.Check("fresh-app", l.FreshApps(ground.App)),
		l.Check("fresh-namespaces", l.FreshNamespaces(ground.Namespaces()...)),
		l.Check("fresh-grants", l.freshGrants),
		l.Check("fresh-files", l.FreshFiles),
		l.Check("fresh-scratch", l.FreshScratch),
	}, solve.Reset)
}

// lab is the ground with the words for what is found on it.
type lab struct {
	*ground.Ground
	*judge.Judge
}

func (l *lab) freshGrants(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	grants, err := client.Grants(ctx, ground.Validator)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(grants) > 0 {
		return l.Fail(text.Say("none"), text.Verbatim(grants[0].String()), "left"), nil
	}
	return l.Pass(text.Say("none")), nil
}

// application is the lab's Application. Where there is none, the outcome says so.
func (l *lab) application(ctx context.Context) (*argo.Application, check.Outcome, error) {
	client, err := l.Argo()
	if err != nil {
		return nil, check.Outcome{}, err
	}
	app, err := client.Application(ctx, ground.App)
	if app == nil && err == nil {
		return nil, l.noApplication(), nil
	}
	return app, check.Outcome{}, err
}

func (l *lab) noApplication() check.Outcome {
	return l.Fail(text.Say("an Application %s in namespace argocd", ground.App), text.Say("there is none"), "app-missing")
}
