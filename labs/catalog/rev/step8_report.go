package rev

import (
	"context"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/judge"
)

// Step 8: what the learner says about what moves and what does not, and how the three Applications are in the end.
func (l *lab) report() []check.Check {
	return []check.Check{
		l.Check("report-file", l.reportFile),
		l.Check("report-facts", l.reportFacts),
		l.inStepCheck("branch-now", ground.BranchApp),
		l.inStepCheck("tag-now", ground.TagApp),
		l.inStepCheck("sha-now", ground.SHAApp),
	}
}

// said are the report's fields that have one right answer, by name.
var said = []struct{ name, want string }{{"immutable_ref", "commit-sha"}, {"tag_guard", "pre-receive"}, {"rollback", "git-revert"}}

func (l *lab) readReport() (*judge.Facts, check.Outcome, error) {
	return l.ReadFacts(l.Report(), "report-missing", "json", "report-field", "mutable_refs", "immutable_ref", "pinned_revision", "tag_guard", "rollback")
}

func (l *lab) reportFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readReport()
	if f == nil {
		return out, err
	}
	if _, ok := f.Texts("mutable_refs"); !ok {
		return l.Differs(f, text.Say("mutable_refs as a list of strings"), "mutable_refs", "report-field"), nil
	}
	for _, name := range []string{"immutable_ref", "pinned_revision", "tag_guard", "rollback"} {
		if _, ok := f.Text(name); !ok {
			return l.Differs(f, text.Say("%s as a string", name), name, "report-field"), nil
		}
	}
	return l.Pass(text.Say("it has the five fields")).With("sha256", f.Digest), nil
}

func (l *lab) reportFacts(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readReport()
	if f == nil {
		return out, err
	}
	if refs, _ := f.Texts("mutable_refs"); !sameSet(refs, []string{"branch", "tag"}) {
		return l.Differs(f, text.Say("mutable_refs with the two kinds of refs that moved"), "mutable_refs", "report-refs"), nil
	}
	for _, fact := range said {
		if got, _ := f.Text(fact.name); got != fact.want {
			return l.Differs(f, text.Say("%s as the step names it", fact.name), fact.name, "report-value"), nil
		}
	}
	app, out, err := l.application(ctx, ground.SHAApp)
	if app == nil {
		return out, err
	}
	if got, _ := f.Text("pinned_revision"); strings.TrimSpace(got) != app.Status.Sync.Revision {
		return l.Differs(f, text.Say("pinned_revision with status.sync.revision of %s", ground.SHAApp), "pinned_revision", "report-pinned").With("application", argo.Evidence(app)), nil
	}
	return l.Pass(text.Say("it is what is so")).With("sha256", f.Digest).With("application", argo.Evidence(app)), nil
}

// sameSet reports whether two lists hold the same words, in whatever order.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
