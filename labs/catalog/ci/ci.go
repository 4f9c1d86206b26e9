// Package ci is lab ci: a broken commit meets the reconciler, and CI's validation moves to the repository's door.
package ci

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/solution"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/text"
	"github.com/cgoa-labs/labctl/labs/check"
	shared "github.com/cgoa-labs/labctl/labs/text"
	"github.com/cgoa-labs/labctl/provision/run"
)

// ID is the lab's name.
const ID = "ci"

// Lab is lab ci on the given places; r runs the guest's programs. What it says is in the given language, as far as it was translated.
func Lab(p ground.Paths, r run.Runner, language string) (labs.Lab, error) {
	words, err := text.In(language)
	if err != nil {
		return labs.Lab{}, err
	}
	l := &lab{Ground: ground.New(p, r), text: words}
	solve := solution.New(l.Ground)
	parts := []struct {
		needs  []int
		checks []check.Check
		solve  func(context.Context, func(string)) error
	}{
		{nil, l.baseline(), solve.Baseline},
		{[]int{1}, l.broken(), solve.Broken},
		{nil, l.identity(), solve.Identity},
		{[]int{3}, l.validate(), solve.Validate},
		{[]int{1, 4}, l.hook(), solve.Hook},
		{[]int{5}, l.blocked(), solve.Blocked},
		{[]int{2, 5}, l.bump(), solve.Bump},
		{[]int{7}, l.report(), solve.Report},
	}
	if len(parts) != len(words.Steps) {
		return labs.Lab{}, fmt.Errorf("lab ci has %d steps, but its text has %d", len(parts), len(words.Steps))
	}
	out := labs.Lab{
		ID: ID, Title: words.Title, Goal: words.Goal, Why: words.Why, References: words.References,
		Begin: l.Begin, Fresh: l.fresh(), Reset: solve.Reset,
	}
	for i, part := range parts {
		t := words.Steps[i]
		out.Steps = append(out.Steps, labs.Step{Title: t.Title, Goal: t.Goal, Note: t.Note, Needs: part.needs, Checks: part.checks, Solve: part.solve})
	}
	return out, errors.Join(l.missing...)
}

// lab is the ground with the words for what is found on it.
type lab struct {
	*ground.Ground
	text    shared.Text
	missing []error
}

func (l *lab) check(id string, ask func(context.Context) (check.Outcome, error)) check.Check {
	title, ok := l.text.Checks[id]
	if !ok {
		l.missing = append(l.missing, fmt.Errorf("lab ci: check %s has no title", id))
	}
	return check.Check{ID: id, Title: title, Ask: ask}
}

// fail and notYet are outcomes with the hint of that key.
func (l *lab) fail(wanted, got, hint string) check.Outcome {
	return check.Fail(wanted, got, l.hint(hint))
}

func (l *lab) notYet(wanted, got, hint string) check.Outcome {
	return check.NotYet(wanted, got, l.hint(hint))
}

func (l *lab) hint(key string) string {
	text, ok := l.text.Hints[key]
	if !ok {
		panic("lab ci has no hint " + key)
	}
	return text
}

// executable looks for a file that is to be called by its path.
func (l *lab) executable(path, missing, notExecutable string) (check.Outcome, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return l.fail("an executable file "+path, "there is none", missing), nil
	case err != nil:
		return check.Outcome{}, err
	case !info.Mode().IsRegular():
		return l.fail("an executable file "+path, "it is no regular file", missing), nil
	case info.Mode().Perm()&0o111 == 0:
		return l.fail("an executable file "+path, fmt.Sprintf("its mode is %04o", info.Mode().Perm()), notExecutable), nil
	}
	digest, err := fileDigest(path)
	if err != nil {
		return check.Outcome{}, err
	}
	return check.Pass(fmt.Sprintf("%s, mode %04o", path, info.Mode().Perm())).With("sha256", digest), nil
}
