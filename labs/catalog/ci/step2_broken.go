package ci

import (
	"context"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/judge"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
)

// Step 2: a commit that the cluster refuses, what was to be seen of it, and its revert. The file tells of a moment that has passed, so
// it is held against git's history and against what must have been true.
func (l *lab) broken() []check.Check {
	return []check.Check{
		l.Check("broken-file", l.brokenFile),
		l.Check("broken-commit", l.brokenCommit),
		l.Check("broken-observed", l.brokenObserved),
		l.Check("broken-reverted", l.brokenReverted),
		l.Check("no-retry", l.noRetry),
		l.Check("revert-synced", l.inStep),
	}
}

func (l *lab) readBroken() (*judge.Facts, check.Outcome, error) {
	return l.ReadFacts(l.Broken(), "broken-missing", "broken-json", "broken-field", "commit", "sync_status", "operation_message", "live_replicas")
}

func (l *lab) brokenFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readBroken()
	if f == nil {
		return out, err
	}
	for _, name := range []string{"commit", "sync_status", "operation_message"} {
		if _, ok := f.Text(name); !ok {
			return l.Differs(f, text.Say("%s as a string", name), name, "broken-field"), nil
		}
	}
	if _, ok := f.Number("live_replicas"); !ok {
		return l.Differs(f, text.Say("live_replicas as a whole number"), "live_replicas", "broken-field"), nil
	}
	return l.Pass(text.Say("it has the four fields")).With("sha256", f.Digest), nil
}

// brokenString is what the step is about: a string where the API wants a number.
func brokenString(w ground.WebFile) bool { return w.BrokenString() }

func (l *lab) brokenCommit(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readBroken()
	if f == nil {
		return out, err
	}
	name, _ := f.Text("commit")
	name = strings.TrimSpace(name)
	wanted := text.Say("the commit on main that changed replicas to the string two")
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	commit, ok := main.Find(name)
	if !ok {
		// It may have been on main until someone rewrote it.
		known := false
		for _, repo := range []git.Repo{l.BareRepo(), l.CloneRepo()} {
			if known || !looksLikeSHA(name) {
				break
			}
			var err error
			if _, known, err = repo.Resolve(ctx, name); err != nil {
				return check.Outcome{}, err
			}
		}
		if known {
			return l.Fail(wanted, text.Say("%s is a commit, but not in main's history", name), "broken-rewritten").With("main", main.Tip()), nil
		}
		return l.Fail(wanted, text.Say("%q, which names no commit", name), "broken-unknown-commit").With("main", main.Tip()), nil
	}
	if !main.BroughtIn(commit, brokenString) {
		return l.Fail(wanted, text.Say("commit %s (%s), which did not", commit.SHA[:7], commit.Subject), "broken-wrong-commit").With("commit", commit.SHA), nil
	}
	return l.Pass(text.Say("commit %s (%s)", commit.SHA[:7], commit.Subject)).With("commit", commit.SHA), nil
}

func looksLikeSHA(s string) bool {
	return len(s) >= 7 && len(s) <= 64 && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

// refusals are pieces of what API servers and Argo CD say about a string where a whole number belongs. Which one it is depends on
// the versions and on the way the manifest is applied; a message that somebody made up has none.
var refusals = []string{
	"unrecognized type", "cannot be handled as", "cannot unmarshal string", "unmarshal string into", "int32", "expected numeric",
	"failed to create typed patch", "typed value", "strict decoding", "spec.replicas", "failed to apply", "is invalid: patch", "tasks are not valid",
	"retrying operation", // while a further attempt is under way
}

func (l *lab) brokenObserved(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readBroken()
	if f == nil {
		return out, err
	}
	// While main cannot be applied, the comparison says OutOfSync, or Unknown where even comparing fails.
	if s, _ := f.Text("sync_status"); s != "OutOfSync" && s != "Unknown" {
		return l.Differs(f, text.Say("what status.sync.status said while the commit was broken"), "sync_status", "broken-sync-status"), nil
	}
	message, _ := f.Text("operation_message")
	found := ""
	for _, piece := range refusals {
		if strings.Contains(strings.ToLower(message), piece) {
			found = piece
			break
		}
	}
	if found == "" {
		return l.Differs(f, text.Say("what status.operationState.message said while the sync failed"), "operation_message", "broken-message"), nil
	}
	// What ran then is what the commit before had asked for: the broken one was never applied.
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	name, _ := f.Text("commit")
	commit, _ := main.Find(strings.TrimSpace(name))
	want := ground.Replicas
	for _, parent := range commit.Parents {
		if d := main.Web[parent].Deployment; d != nil && d.Spec.Replicas != nil {
			want = int(*d.Spec.Replicas)
		}
	}
	if n, _ := f.Number("live_replicas"); n != want {
		return l.Differs(f, text.Say("the replicas that ran while the commit was broken"), "live_replicas", "broken-live"), nil
	}
	return l.Pass(text.Say("it fits what must have been")).With("sha256", f.Digest).With("messageSays", found), nil
}

func (l *lab) brokenReverted(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if ok, problem := main.TipWeb().Valid(); !ok {
		return l.Fail(text.Say("a main that can be applied again"), text.Say("main is %s: %s", main.Tip()[:7], problem), "broken-not-reverted").With("main", main.Tip()), nil
	}
	return l.Pass(text.Say("main is %s", main.Tip()[:7])).With("main", main.Tip()), nil
}

// noRetry looks for an operation that still applies a commit that cannot be applied. It ends by itself in the end, which takes
// minutes; ending it by hand is not asked of one whose operation is over.
func (l *lab) noRetry(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	app, out, err := l.application(ctx)
	if app == nil {
		return out, err
	}
	if revision := argo.UnderWay(app); revision != "" && main.Web[revision].Exists {
		if ok, _ := main.Web[revision].Valid(); !ok {
			return l.NotYet(text.Say("no operation that applies a broken commit"), argo.Describe(app), "retrying").With("application", argo.Evidence(app)), nil
		}
	}
	return l.Pass(text.Say("there is none")).With("application", argo.Evidence(app)), nil
}

// inStep asks whether ci-web is in step with main.
func (l *lab) inStep(ctx context.Context) (check.Outcome, error) {
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
	if web, known := main.Web[standing.Operation]; known {
		if ok, _ := web.Valid(); !ok {
			return l.NotYet(text.Say("no operation that applies a broken commit"), standing.Got, "retrying").With("application", argo.Evidence(app)), nil
		}
	}
	return l.Standing(standing).With("main", main.Tip()).With("application", argo.Evidence(app)), nil
}
