package rev

import (
	"context"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/judge"
)

// Step 3: main gets a second version, and only the Application that tracks the branch follows. The file tells of a moment that has
// passed, so it is held against git's history and Argo CD's.
func (l *lab) commit() []check.Check {
	return []check.Check{
		l.Check("second-commit", l.secondCommit),
		l.Check("after-file", l.afterFile),
		l.Check("after-values", l.afterValues),
		l.Check("after-synced", l.afterSynced),
	}
}

// seconds are the commits with the second version that main has, or had when rev-branch followed it, newest first.
func (l *lab) seconds(ctx context.Context) ([]string, error) {
	return shared.Once(l.Ground.Ground, "seconds", func() ([]string, error) {
		first, err := l.First()
		if err != nil {
			return nil, err
		}
		main, err := l.Main(ctx)
		if err != nil {
			return nil, err
		}
		commits := main.With(ground.Second)
		// Without the Application there is nothing more to be known.
		app, _, err := l.application(ctx, ground.BranchApp)
		if err != nil {
			return nil, err
		}
		if app != nil {
			h, err := l.HistoryOf(ctx, app)
			if err != nil {
				return nil, err
			}
			for _, d := range slices.Backward(h) {
				if d.Ours && d.Version == ground.Second && !slices.Contains(commits, d.Commit) {
					commits = append(commits, d.Commit)
				}
			}
		}
		var found []string
		for _, c := range commits {
			leads, err := main.Leads(ctx, first, c)
			if err != nil {
				return nil, err
			}
			if leads {
				found = append(found, c)
			}
		}
		return found, nil
	})
}

func (l *lab) secondCommit(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("a commit on main after the first one whose %s says version %s", ground.ReleasePath, ground.Second)
	commits, err := l.seconds(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(commits) > 0 {
		return l.Pass(text.Say("commit %s", commits[0][:7])).With("commits", commits), nil
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	got := text.Say("main is at %s: %s", main.Tip()[:7], main.TipRelease().Says())
	unpushed, err := l.unpushed(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if unpushed.Version == ground.Second {
		return l.Fail(wanted, text.Say("%s; the clone's main says version %s", got, ground.Second), "not-pushed").With("main", main.Tip()), nil
	}
	return l.Fail(wanted, got, "second-missing").With("main", main.Tip()), nil
}

// unpushed is app/release.yaml in the clone's main, where that is not the bare repository's.
func (l *lab) unpushed(ctx context.Context) (ground.Release, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return ground.Release{}, err
	}
	local, ok, err := l.CloneRepo().Resolve(ctx, ground.Main)
	if err != nil || !ok || main.Has(local) {
		return ground.Release{}, err
	}
	blobs, err := l.CloneRepo().Files(ctx, []string{local}, ground.ReleasePath)
	if err != nil || !blobs[0].Exists {
		return ground.Release{}, err
	}
	return ground.ParseRelease(blobs[0].Data), nil
}

// places are the fields of after-commit.json.
var places = []string{"branch", "tag", "sha"}

func (l *lab) readAfter() (*judge.Facts, check.Outcome, error) {
	return l.ReadFacts(l.AfterCommit(), "after-missing", "json", "after-field", places...)
}

func (l *lab) afterFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readAfter()
	if f == nil {
		return out, err
	}
	for _, name := range places {
		if _, ok := f.Text(name); !ok {
			return l.Differs(f, text.Say("%s as a string", name), name, "after-field"), nil
		}
	}
	return l.Pass(text.Say("it has the three fields")).With("sha256", f.Digest), nil
}

// recorded is the commit that after-commit.json has for the branch. It is for steps that need this one.
func (l *lab) recorded() (string, error) {
	f, _, err := l.readAfter()
	if f == nil || err != nil {
		return "", err
	}
	branch, _ := f.Text("branch")
	return strings.TrimSpace(branch), nil
}

func (l *lab) afterValues(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readAfter()
	if f == nil {
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
	commits, err := l.seconds(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	for _, name := range places {
		value, _ := f.Text(name)
		if value = strings.TrimSpace(value); !ground.FullSHA(value) {
			return l.Differs(f, text.Say("%s with a full SHA", name), name, "after-form"), nil
		}
		commit, err := main.Peel(ctx, value)
		if err != nil {
			return check.Outcome{}, err
		}
		second := slices.Contains(commits, commit)
		switch {
		case name == "branch" && !second && commit == first:
			return l.Differs(f, text.Say("branch with the new commit"), name, "after-too-early"), nil
		case name == "branch" && !second:
			return l.Differs(f, text.Say("branch with a commit of main that says version %s", ground.Second), name, "after-value"), nil
		case name == "tag" && second:
			return l.Differs(f, text.Say("tag with the first commit"), name, "after-tag-moved"), nil
		case name != "branch" && commit != first:
			return l.Differs(f, text.Say("%s with the first commit", name), name, "after-value"), nil
		}
	}
	return l.Pass(text.Say("only the branch went on")).With("sha256", f.Digest), nil
}

// afterSynced wants Argo CD to have been where the file says that it was.
func (l *lab) afterSynced(ctx context.Context) (check.Outcome, error) {
	app, out, err := l.application(ctx, ground.BranchApp)
	if app == nil {
		return out, err
	}
	h, err := l.HistoryOf(ctx, app)
	if err != nil {
		return check.Outcome{}, err
	}
	evidence := argo.Evidence(app)
	if h.Forgot() || h.Find(0, ground.Saying(ground.Second)) >= 0 {
		return l.Pass(text.Say("%s has deployed version %s", ground.BranchApp, ground.Second)).With("application", evidence), nil
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if main.TipRelease().Version == ground.Second {
		return l.inStep(ctx, ground.BranchApp)
	}
	return l.Fail(text.Say("%s having deployed version %s", ground.BranchApp, ground.Second), argo.Describe(app), "after-never").With("application", evidence), nil
}
