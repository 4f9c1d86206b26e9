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

// Step 4: the tag moves, and what is deployed under its name with it. The tag goes back in step 5, so what tells of the move is Argo CD's
// history, and the file is held against it.
func (l *lab) moved() []check.Check {
	return []check.Check{
		l.Check("tag-moved", l.tagMoved),
		l.Check("moved-config", l.movedConfig),
		l.Check("history-file", l.historyFile),
		l.Check("history-values", l.historyValues),
		l.inStepCheck("sha-stays", ground.SHAApp),
	}
}

// tagHistory is rev-tag's history; where there is no rev-tag, the outcome says so.
func (l *lab) tagHistory(ctx context.Context) (*argo.Application, ground.History, check.Outcome, error) {
	app, out, err := l.application(ctx, ground.TagApp)
	if app == nil {
		return nil, nil, out, err
	}
	h, err := l.HistoryOf(ctx, app)
	return app, h, check.Outcome{}, err
}

func (l *lab) tagMoved(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("%s having deployed two commits under the name %s: the first one, and then one with version %s", ground.TagApp, ground.TagName, ground.Second)
	app, h, out, err := l.tagHistory(ctx)
	if app == nil || err != nil {
		return out, err
	}
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	evidence := argo.Evidence(app)
	// A history that has been cut short cannot tell any more; the file was written when it could.
	if h.Moves(first) || h.Forgot() {
		return l.Pass(text.Say("it has deployed %d times", len(h))).With("application", evidence), nil
	}
	at, ok, err := l.TagCommit(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	commits, err := l.seconds(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	switch {
	case ok && slices.Contains(commits, at):
		out, err := l.inStep(ctx, ground.TagApp)
		if err == nil && out.State == check.Passed {
			out = l.Fail(wanted, argo.Describe(app), "moved-history").With("application", evidence)
		}
		return out, err
	case ok && at == first:
		local, localTag, err := l.CloneRepo().Resolve(ctx, ground.Tag)
		if err != nil {
			return check.Outcome{}, err
		}
		if localTag && local != first {
			return l.Fail(wanted, text.Say("the bare repository's tag is at %s, the clone's at %s", at[:7], local[:7]), "moved-local").With("application", evidence), nil
		}
		return l.Fail(wanted, text.Say("the tag is still at %s", at[:7]), "moved-not").With("application", evidence), nil
	}
	return l.Fail(wanted, text.Say("the tag is at %s", text.Commit(at)), "moved-elsewhere").With("application", evidence), nil
}

// movedConfig looks into the cluster as long as the tag is where this step moves it.
func (l *lab) movedConfig(ctx context.Context) (check.Outcome, error) {
	at, _, err := l.TagCommit(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	app, _, out, err := l.tagHistory(ctx)
	if app == nil || err != nil {
		return out, err
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	now, err := main.Peel(ctx, app.Status.Sync.Revision)
	if err != nil {
		return check.Outcome{}, err
	}
	version, err := main.Version(ctx, now)
	if err != nil {
		return check.Outcome{}, err
	}
	if now != at || version != ground.Second {
		return l.Pass(text.Say("the tag has been moved on since")).With("application", argo.Evidence(app)), nil
	}
	return l.config(ctx, ground.TagApp, ground.Second)
}

func (l *lab) readHistory() (*judge.Facts, check.Outcome, error) {
	return l.ReadFacts(l.TagHistory(), "history-missing", "json", "history-field", "target", "revisions")
}

func (l *lab) historyFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readHistory()
	if f == nil {
		return out, err
	}
	if target, ok := f.Text("target"); !ok || target != ground.TagName {
		return l.Differs(f, text.Say("target %s, what %s tracks", ground.TagName, ground.TagApp), "target", "history-field"), nil
	}
	if _, ok := f.Texts("revisions"); !ok {
		return l.Differs(f, text.Say("revisions as a list of strings"), "revisions", "history-field"), nil
	}
	return l.Pass(text.Say("it has the two fields")).With("sha256", f.Digest), nil
}

// historyValues holds the file against Argo CD's history, which went on when the tag was put back.
func (l *lab) historyValues(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readHistory()
	if f == nil {
		return out, err
	}
	app, h, out, err := l.tagHistory(ctx)
	if app == nil || err != nil {
		return out, err
	}
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	revisions, _ := f.Texts("revisions")
	said := make(ground.History, len(revisions))
	for i, revision := range revisions {
		revisions[i] = strings.TrimSpace(revision)
		if !ground.FullSHA(revisions[i]) {
			return l.Differs(f, text.Say("revisions with full SHAs"), "revisions", "history-form"), nil
		}
		d := ground.Deployment{Ours: true}
		if d.Commit, err = main.Peel(ctx, revisions[i]); err != nil {
			return check.Outcome{}, err
		}
		if d.Version, err = main.Version(ctx, d.Commit); err != nil {
			return check.Outcome{}, err
		}
		said[i] = d
	}
	if !said.Moves(first) {
		hint := "history-two"
		if said.Find(0, ground.Of(first)) >= 0 && said.Find(0, ground.Saying(ground.Second)) >= 0 {
			hint = "history-order"
		}
		return l.Differs(f, text.Say("the first commit, and after it one with version %s", ground.Second), "revisions", hint), nil
	}
	if !h.Holds(revisions) {
		return l.Differs(f, text.Say("the revisions of %s's history", ground.TagApp), "revisions", "history-differs").With("application", argo.Evidence(app)), nil
	}
	return l.Pass(text.Say("it is what Argo CD remembers")).With("sha256", f.Digest).With("application", argo.Evidence(app)), nil
}
