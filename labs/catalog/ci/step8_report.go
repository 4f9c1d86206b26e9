package ci

import (
	"context"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/judge"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/kube"
)

// Step 8: what the learner says about who writes where, against what is so.
func (l *lab) report() []check.Check {
	return []check.Check{
		l.Check("report-file", l.reportFile),
		l.Check("report-facts", l.reportFacts),
	}
}

func (l *lab) readReport() (*judge.Facts, check.Outcome, error) {
	return l.ReadFacts(l.Report(), "report-missing", "report-json", "report-field",
		"ci_writes", "cd_writes", "ci_can_write_prod", "gate", "deployed_revision", "broken_reached_git")
}

func (l *lab) reportFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readReport()
	if f == nil {
		return out, err
	}
	for _, name := range []string{"ci_writes", "cd_writes", "gate", "deployed_revision"} {
		if _, ok := f.Text(name); !ok {
			return l.Differs(f, text.Say("%s as a string", name), name, "report-field"), nil
		}
	}
	for _, name := range []string{"ci_can_write_prod", "broken_reached_git"} {
		if _, ok := f.Boolean(name); !ok {
			return l.Differs(f, text.Say("%s as true or false", name), name, "report-field"), nil
		}
	}
	return l.Pass(text.Say("it has the six fields")).With("sha256", f.Digest), nil
}

func (l *lab) reportFacts(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readReport()
	if f == nil {
		return out, err
	}
	for _, fact := range []struct{ name, want string }{{"ci_writes", "git"}, {"cd_writes", "cluster"}, {"gate", "pre-receive"}} {
		if got, _ := f.Text(fact.name); got != fact.want {
			return l.Differs(f, text.Say("%s as the step names it", fact.name), fact.name, "report-value"), nil
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
	if got, _ := f.Boolean("ci_can_write_prod"); got != allowed {
		return l.Fail(text.Say("what the API server says about ci:validator in ci-web"), text.Verbatim(f.Raw("ci_can_write_prod")), "report-value").With("accessReview", map[string]any{"allowed": allowed, "reason": reason}), nil
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	broken, out, err := l.readBroken()
	if broken == nil {
		return out, err
	}
	name, _ := broken.Text("commit")
	_, reached := main.Find(strings.TrimSpace(name))
	if got, _ := f.Boolean("broken_reached_git"); got != reached {
		return l.Fail(text.Say("whether main's history holds the commit of broken.json"), text.Verbatim(f.Raw("broken_reached_git")), "report-value").With("main", main.Tip()), nil
	}
	return l.reportRevision(ctx, f, main)
}

// reportRevision accepts what is deployed now, and what was deployed when the report was written if main went on since: a
// commit that Argo CD deployed, not older than the step before.
func (l *lab) reportRevision(ctx context.Context, f *judge.Facts, main ground.MainHistory) (check.Outcome, error) {
	app, out, err := l.application(ctx)
	if app == nil {
		return out, err
	}
	evidence := argo.Evidence(app)
	now := app.Status.Sync.Revision
	name, _ := f.Text("deployed_revision")
	name = strings.ToLower(strings.TrimSpace(name))
	commit, known := main.Find(name)
	if name == now {
		return l.Pass(text.Say("it is what is so")).With("application", evidence), nil
	}
	got := text.Verbatim(f.Raw("deployed_revision"))
	if known {
		got = text.Say("commit %s (%s)", commit.SHA[:7], commit.Subject)
		since := slices.ContainsFunc(bumped(main), func(b git.Commit) bool { return main.IsAncestor(b.SHA, commit.SHA) })
		if since && len(name) == len(commit.SHA) && slices.Contains(argo.Deployed(app), commit.SHA) {
			return l.Pass(text.Say("it was so when commit %s was deployed", commit.SHA[:7])).With("application", evidence), nil
		}
	}
	return l.Fail(text.Say("status.sync.revision of ci-web"), got, "report-revision").With("application", evidence), nil
}
