package ci

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/kube"
)

// Step 8: what the learner says about who writes where, against what is so.
func (l *lab) report() []check.Check {
	return []check.Check{
		l.check("report-file", l.reportFile),
		l.check("report-facts", l.reportFacts),
	}
}

func (l *lab) readReport() (*facts, check.Outcome, error) {
	return l.readFacts(l.Report(), "report-missing", "report-json", "report-field",
		"ci_writes", "cd_writes", "ci_can_write_prod", "gate", "deployed_revision", "broken_reached_git")
}

func (l *lab) reportFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readReport()
	if f == nil {
		return out, err
	}
	for _, name := range []string{"ci_writes", "cd_writes", "gate", "deployed_revision"} {
		if _, ok := f.text(name); !ok {
			return l.fail(name+" as a string", f.raw(name), "report-field").With("sha256", f.digest), nil
		}
	}
	for _, name := range []string{"ci_can_write_prod", "broken_reached_git"} {
		if _, ok := f.boolean(name); !ok {
			return l.fail(name+" as true or false", f.raw(name), "report-field").With("sha256", f.digest), nil
		}
	}
	return check.Pass("it has the six fields").With("sha256", f.digest), nil
}

func (l *lab) reportFacts(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readReport()
	if f == nil {
		return out, err
	}
	for _, fact := range []struct{ name, want string }{{"ci_writes", "git"}, {"cd_writes", "cluster"}, {"gate", "pre-receive"}} {
		if got, _ := f.text(fact.name); got != fact.want {
			return l.fail(fact.name+" as the step names it", f.raw(fact.name), "report-value").With("sha256", f.digest), nil
		}
	}
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	allowed, reason, err := client.Allowed(ctx, ground.Validator, kube.Access{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: ground.Production})
	if err != nil {
		return check.Outcome{}, err
	}
	if got, _ := f.boolean("ci_can_write_prod"); got != allowed {
		return l.fail("what the API server says about ci:validator in ci-web", f.raw("ci_can_write_prod"), "report-value").With("accessReview", map[string]any{"allowed": allowed, "reason": reason}), nil
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	broken, out, err := l.readBroken()
	if broken == nil {
		return out, err
	}
	name, _ := broken.text("commit")
	_, reached := main.Find(strings.TrimSpace(name))
	if got, _ := f.boolean("broken_reached_git"); got != reached {
		return l.fail("whether main's history holds the commit of broken.json", f.raw("broken_reached_git"), "report-value").With("main", main.Tip()), nil
	}
	return l.reportRevision(ctx, f, main)
}

// reportRevision accepts what is deployed now, and what was deployed when the report was written if main went on since: a
// commit that Argo CD deployed, not older than the step before.
func (l *lab) reportRevision(ctx context.Context, f *facts, main ground.MainHistory) (check.Outcome, error) {
	client, err := l.Argo()
	if err != nil {
		return check.Outcome{}, err
	}
	app, err := client.Application(ctx, ground.App)
	if err != nil {
		return check.Outcome{}, err
	}
	if app == nil {
		return l.fail("an Application "+ground.App, "there is none", "app-missing"), nil
	}
	evidence := argo.Evidence(app)
	now := app.Status.Sync.Revision
	name, _ := f.text("deployed_revision")
	name = strings.ToLower(strings.TrimSpace(name))
	commit, known := main.Find(name)
	if name == now {
		return check.Pass("it is what is so").With("application", evidence), nil
	}
	got := f.raw("deployed_revision")
	if known {
		got = fmt.Sprintf("commit %s (%s)", commit.SHA[:7], commit.Subject)
		since := slices.ContainsFunc(bumped(main), func(b git.Commit) bool { return main.IsAncestor(b.SHA, commit.SHA) })
		if since && len(name) == len(commit.SHA) && slices.Contains(argo.Deployed(app), commit.SHA) {
			return check.Pass("it was so when commit "+commit.SHA[:7]+" was deployed").With("application", evidence), nil
		}
	}
	return l.fail("status.sync.revision of ci-web", got, "report-revision").With("application", evidence), nil
}
