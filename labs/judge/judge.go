// Package judge is what the checks of labs have in common: verdicts in a lab's own words, and the questions that more than one lab
// asks.
package judge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Judge gives verdicts on one lab.
type Judge struct {
	g       *ground.Ground
	text    text.Text
	missing []error
}

// New is a Judge on a ground with a lab's words.
func New(g *ground.Ground, t text.Text) *Judge { return &Judge{g: g, text: t} }

// Part is one step without its words.
type Part struct {
	// Needs are the numbers of the steps that must be in place for this one to make sense.
	Needs  []int
	Checks []check.Check
	Solve  func(ctx context.Context, log func(string)) error
}

// Lab puts the parts and their words together. A word that is missing is an error.
func (j *Judge) Lab(parts []Part, fresh []check.Check, reset func(ctx context.Context, log func(string)) error) (labs.Lab, error) {
	id, t := j.g.At.Lab, j.text
	if len(parts) != len(t.Steps) {
		return labs.Lab{}, fmt.Errorf("lab %s has %d steps, but its text has %d", id, len(parts), len(t.Steps))
	}
	out := labs.Lab{
		ID: id, Title: t.Title, Goal: t.Goal, Why: t.Why, References: t.References,
		Begin: j.g.Begin, Fresh: fresh, Reset: reset,
	}
	for i, part := range parts {
		step := t.Steps[i]
		out.Steps = append(out.Steps, labs.Step{Title: step.Title, Goal: step.Goal, Note: step.Note, Needs: part.Needs, Checks: part.Checks, Solve: part.Solve})
	}
	return out, errors.Join(j.missing...)
}

// Check is a check with the title that the text has for it.
func (j *Judge) Check(id string, ask func(context.Context) (check.Outcome, error)) check.Check {
	title, ok := j.text.Checks[id]
	if !ok {
		j.missing = append(j.missing, fmt.Errorf("lab %s: check %s has no title", j.g.At.Lab, id))
	}
	return check.Check{ID: id, Title: title, Ask: ask}
}

// Fail and NotYet are outcomes with the hint of that key.
func (j *Judge) Fail(wanted, got, hint string) check.Outcome {
	return check.Fail(wanted, got, j.Hint(hint))
}

func (j *Judge) NotYet(wanted, got, hint string) check.Outcome {
	return check.NotYet(wanted, got, j.Hint(hint))
}

// Hint is the hint of that key.
func (j *Judge) Hint(key string) string {
	hint, ok := j.text.Hints[key]
	if !ok {
		panic("lab " + j.g.At.Lab + " has no hint " + key)
	}
	return hint
}

// Standing turns what keeps an Application from being in step into an outcome.
func (j *Judge) Standing(s argo.Standing) check.Outcome {
	out := check.Outcome{State: s.State, Wanted: "Synced at the newest commit, Healthy, no operation under way", Got: s.Got}
	if s.Why != "" {
		out.Hint = j.Hint(string(s.Why))
	}
	if s.State == check.Passed {
		out.Wanted = ""
	}
	return out
}

// Executable looks for a file that is to be called by its path.
func (j *Judge) Executable(path, missing, notExecutable string) (check.Outcome, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return j.Fail("an executable file "+path, "there is none", missing), nil
	case err != nil:
		return check.Outcome{}, err
	case !info.Mode().IsRegular():
		return j.Fail("an executable file "+path, "it is no regular file", missing), nil
	case info.Mode().Perm()&0o111 == 0:
		return j.Fail("an executable file "+path, fmt.Sprintf("its mode is %04o", info.Mode().Perm()), notExecutable), nil
	}
	digest, err := FileDigest(path)
	if err != nil {
		return check.Outcome{}, err
	}
	return check.Pass(fmt.Sprintf("%s, mode %04o", path, info.Mode().Perm())).With("sha256", digest), nil
}

// Digest is the sha256 of data, FileDigest that of a file.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func FileDigest(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return Digest(data), nil
}
