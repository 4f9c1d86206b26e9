package ci

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/text"

	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/judge"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Step 1: what is deployed from Git first. Later steps move main on, so the baseline is looked for in its history.
func (l *lab) baseline() []check.Check {
	return []check.Check{
		l.Check("bare-repo", l.BareCheck),
		l.Check("clone", l.CloneCheck),
		l.Check("baseline-commit", l.baselineCommit),
		l.Check("app-file", l.appFile),
		l.Check("app-live", l.appLive),
		l.Check("app-deployed", l.appDeployed),
		l.Check("web-ready", l.webReady),
	}
}

func (l *lab) baselineCommit(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("a commit on main whose %s is a Deployment web with image %s", ground.WebPath, ground.FirstImage)
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(main.Commits) == 0 {
		return l.Fail(wanted, text.Say("the bare repository has no branch main"), "main-missing"), nil
	}
	if found := main.Baselines(); len(found) > 0 {
		first := found[len(found)-1]
		return l.Pass(text.Say("commit %s", first[:7])).With("commit", first), nil
	}
	// The newest commit is where it is put right; where that has gone on to another image, the oldest is the one that was meant.
	if web := main.TipWeb(); web.Exists {
		if ok, problem := web.Valid(); !ok {
			return l.Fail(wanted, text.Say("commit %s: %s", main.Tip()[:7], problem), "baseline-wrong").With("main", main.Tip()), nil
		}
	}
	got, hint := text.Say("no commit has %s", ground.WebPath), "main-missing"
	for _, c := range slices.Backward(main.Commits) {
		web := main.Web[c.SHA]
		if !web.Exists {
			continue
		}
		hint = "baseline-wrong"
		if ok, problem := web.Valid(); !ok {
			got = text.Say("commit %s: %s", c.SHA[:7], problem)
			break
		}
		got = text.Say("commit %s: the image is %s", c.SHA[:7], web.Image())
		if web.Image() != ground.FirstImage && len(main.Commits) == 1 && len(c.Parents) == 0 && web.Image() == "nginx:"+ground.NewTag {
			hint = "baseline-rewritten"
		}
		break
	}
	return l.Fail(wanted, got, hint).With("main", main.Tip()), nil
}

func (l *lab) appFile(context.Context) (check.Outcome, error) {
	wanted := text.Say("an Application %s in %s", ground.App, l.AppFile())
	data, err := os.ReadFile(l.AppFile())
	if errors.Is(err, os.ErrNotExist) {
		return l.Fail(wanted, text.Say("there is no such file"), "app-file-missing"), nil
	}
	if err != nil {
		return check.Outcome{}, err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return l.Fail(wanted, text.Say("the file is empty"), "app-file-none"), nil
	}
	documents, err := shared.Documents(data)
	if err != nil {
		return l.Fail(wanted, text.Verbatim(err.Error()), "app-file-yaml"), nil
	}
	app, err := argo.Parse(documents, ground.App)
	switch {
	case err != nil:
		return l.Fail(wanted, text.Verbatim(err.Error()), "app-file-yaml"), nil
	case app == nil:
		return l.Fail(wanted, text.Say("the file has none"), "app-file-none"), nil
	case app.Namespace != "" && app.Namespace != "argocd":
		return l.Fail(text.Say("metadata.namespace %s", bootstrap.ArgoNamespace), text.Say("metadata.namespace %s", app.Namespace), "app-file-field"), nil
	}
	if wrong := argo.Differs(app, l.Wanted()); wrong != nil {
		return l.Fail(wrong.Wanted, wrong.Got, "app-file-field"), nil
	}
	return l.Pass(text.Say("it says what was asked")).With("sha256", judge.Digest(data)), nil
}

func (l *lab) appLive(ctx context.Context) (check.Outcome, error) {
	app, out, err := l.application(ctx)
	if app == nil {
		return out, err
	}
	if wrong := argo.Differs(app, l.Wanted()); wrong != nil {
		return l.Fail(wrong.Wanted, wrong.Got, "app-field").With("application", argo.Evidence(app)), nil
	}
	return l.Pass(text.Say("it is as asked")), nil
}

// appDeployed asks whether the baseline has been deployed. Once it has, later commits are for later steps to judge: main may be
// broken at the moment, and that is step 2's very point.
func (l *lab) appDeployed(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	client, err := l.Argo()
	if err != nil {
		return check.Outcome{}, err
	}
	app, standing, err := client.Look(ctx, ground.App, main.Tip())
	if err != nil {
		return check.Outcome{}, err
	}
	if app == nil {
		return l.noApplication(), nil
	}
	evidence := argo.Evidence(app)
	baselines := main.Baselines()
	for _, revision := range argo.Deployed(app) {
		if slices.Contains(baselines, revision) && app.Status.Health.Status == "Healthy" {
			return l.Pass(text.Say("commit %s was deployed, %s", revision[:7], argo.Describe(app))).With("application", evidence), nil
		}
	}
	if standing.State == check.Passed {
		return l.Pass(standing.Got).With("application", evidence), nil
	}
	if ok, problem := main.TipWeb().Valid(); !ok {
		return l.Fail(text.Say("the baseline Synced and Healthy"), text.Say("%s; %s", problem, standing.Got), "main-broken-early").With("application", evidence), nil
	}
	return l.Standing(standing).With("application", evidence), nil
}

func (l *lab) webReady(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("Deployment web in namespace %s with %d of %d replicas ready", ground.Production, ground.Replicas, ground.Replicas)
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	d, err := client.Deployment(ctx, ground.Production, ground.Web)
	if err != nil {
		return check.Outcome{}, err
	}
	if d == nil {
		return l.NotYet(wanted, text.Say("it is not there"), "progressing"), nil
	}
	want := int32(0)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	got := text.Say("%d of %d ready, image %s", d.Status.ReadyReplicas, want, ground.ImageOf(d))
	switch {
	case want != ground.Replicas:
		return l.NotYet(wanted, got, "web-not-ready"), nil // self-heal is to put it back
	case d.Status.ReadyReplicas < ground.Replicas:
		return l.NotYet(wanted, got, "web-not-ready"), nil
	}
	return l.Pass(got), nil
}
