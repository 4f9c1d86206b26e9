package rev

import (
	"context"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/judge"
)

// Step 6: main goes back to the first version by a commit that is added.
func (l *lab) rollback() []check.Check {
	return []check.Check{
		l.Check("rollback-commit", l.rollbackCommit),
		l.inStepCheck("rollback-synced", ground.BranchApp),
		l.Check("rollback-file", l.rollbackFile),
		l.Check("rollback-values", l.rollbackValues),
	}
}

func (l *lab) rollbackCommit(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	second, err := l.recorded()
	if err != nil {
		return check.Outcome{}, err
	}
	tip := main.Tip()
	wanted := text.Say("a main that says version %s again, with commit %s in its history", ground.First, text.Commit(second))
	got := text.Say("main is at %s: %s", text.Commit(tip), main.TipRelease().Says())
	switch {
	case main.Undoes(second, tip):
		return l.Pass(got).With("main", tip).With("second", second), nil
	case !main.Has(second):
		return l.Fail(wanted, text.Say("%s, and its history does not have that commit", got), "rollback-erased").With("main", tip).With("second", second), nil
	}
	unpushed, err := l.unpushed(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	hint := "rollback-not"
	if unpushed.Version == ground.First {
		hint = "not-pushed"
		got = text.Say("%s; the clone's main says version %s", got, ground.First)
	}
	return l.Fail(wanted, got, hint).With("main", tip).With("second", second), nil
}

func (l *lab) readRollback() (*judge.Facts, check.Outcome, error) {
	return l.ReadFacts(l.Rollback(), "rollback-missing", "json", "rollback-field", "revert_sha", "deployed", "equals_v1_sha")
}

func (l *lab) rollbackFile(context.Context) (check.Outcome, error) {
	f, out, err := l.readRollback()
	if f == nil {
		return out, err
	}
	for _, name := range []string{"revert_sha", "deployed"} {
		if _, ok := f.Text(name); !ok {
			return l.Differs(f, text.Say("%s as a string", name), name, "rollback-field"), nil
		}
	}
	if _, ok := f.Boolean("equals_v1_sha"); !ok {
		return l.Differs(f, text.Say("equals_v1_sha as true or false"), "equals_v1_sha", "rollback-field"), nil
	}
	return l.Pass(text.Say("it has the three fields")).With("sha256", f.Digest), nil
}

// rollbackValues accepts any commit that undid the second version: main may have gone on since.
func (l *lab) rollbackValues(ctx context.Context) (check.Outcome, error) {
	f, out, err := l.readRollback()
	if f == nil {
		return out, err
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	second, err := l.recorded()
	if err != nil {
		return check.Outcome{}, err
	}
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	name, _ := f.Text("revert_sha")
	commit, known := main.Find(strings.ToLower(strings.TrimSpace(name)))
	if !known || !main.Undoes(second, commit.SHA) {
		hint := "rollback-sha"
		switch {
		case commit.SHA == first:
			hint = "rollback-sha-first"
		case known && main.Release[commit.SHA].Version == ground.Second:
			hint = "rollback-sha-second"
		}
		return l.Differs(f, text.Say("revert_sha with the commit that undid the second version on main"), "revert_sha", hint).With("main", main.Tip()), nil
	}
	if deployed, _ := f.Text("deployed"); deployed != ground.First {
		return l.Differs(f, text.Say("deployed with the version that the ConfigMap in %s says", ground.BranchApp), "deployed", "rollback-deployed"), nil
	}
	if equals, _ := f.Boolean("equals_v1_sha"); equals != (commit.SHA == first) {
		return l.Differs(f, text.Say("equals_v1_sha with whether revert_sha is the SHA in v1.sha"), "equals_v1_sha", "rollback-equals"), nil
	}
	return l.Pass(text.Say("it is what is so")).With("sha256", f.Digest).With("commit", commit.SHA), nil
}
