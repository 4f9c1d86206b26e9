package ci

import (
	"context"
	"fmt"
	"strings"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/sandbox"
)

// fresh asks whether nothing of the lab is in the guest.
func (l *lab) fresh() []check.Check {
	return []check.Check{
		l.check("fresh-app", l.freshApp),
		l.check("fresh-namespaces", l.freshNamespaces),
		l.check("fresh-grants", l.freshGrants),
		l.check("fresh-files", l.freshFiles),
		l.check("fresh-scratch", l.freshScratch),
	}
}

func (l *lab) freshApp(ctx context.Context) (check.Outcome, error) {
	client, err := l.Argo()
	if err != nil {
		return check.Outcome{}, err
	}
	app, err := client.Application(ctx, ground.App)
	if err != nil {
		return check.Outcome{}, err
	}
	if app != nil {
		got := "it is there"
		if app.DeletionTimestamp != nil {
			got = "it is being deleted, held by " + strings.Join(app.Finalizers, ", ")
		}
		return l.fail("no Application "+ground.App, got, "left"), nil
	}
	return check.Pass("none"), nil
}

func (l *lab) freshNamespaces(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	for _, name := range []string{ground.Production, ground.CI, ground.DryRun} {
		ns, err := client.Namespace(ctx, name)
		if err != nil {
			return check.Outcome{}, err
		}
		if ns != nil {
			return l.fail("none of them", fmt.Sprintf("namespace %s is there, %s", name, ns.Status.Phase), "left"), nil
		}
	}
	return check.Pass("none"), nil
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
		return l.fail("none", grants[0].String(), "left"), nil
	}
	return check.Pass("none"), nil
}

func (l *lab) freshFiles(context.Context) (check.Outcome, error) {
	for _, path := range []string{l.Work, l.Bare()} {
		there, err := ground.Exists(path)
		if err != nil {
			return check.Outcome{}, err
		}
		if there {
			return l.fail("neither "+l.Work+" nor "+l.Bare(), path+" is there", "left"), nil
		}
	}
	return check.Pass("none"), nil
}

func (l *lab) freshScratch(context.Context) (check.Outcome, error) {
	left, err := sandbox.Left(l.Scratch, ground.ScratchPrefix)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(left) > 0 {
		return l.fail("none", strings.Join(left, ", "), "left"), nil
	}
	return check.Pass("none"), nil
}
