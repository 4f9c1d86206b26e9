// Package judge is what the checks of labs have in common: verdicts in a lab's own words, and the questions that more than one lab
// asks.
package judge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/judge/phrases"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Judge gives verdicts on one lab.
type Judge struct {
	g    *ground.Ground
	text text.Text
	// said are the phrases of all labs and of this one.
	said    map[string]string
	missing []error
}

// New is a Judge on a ground with a lab's words. Words that all labs share and that cannot be read are missing when the lab is put together.
func New(g *ground.Ground, t text.Text) *Judge {
	j := &Judge{g: g, text: t, said: map[string]string{}}
	shared, err := phrases.In(t.Language)
	if err != nil {
		j.missing = append(j.missing, err)
	}
	maps.Copy(j.said, shared)
	maps.Copy(j.said, t.Phrases)
	g.Say = j.In
	return j
}

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
		Language: t.Language, Say: j.In, Begin: j.g.Begin, Fresh: fresh, Reset: reset,
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

// Fail, NotYet and Pass are outcomes in the lab's language; hint is the key of one.
func (j *Judge) Fail(wanted, got text.Phrase, hint string) check.Outcome {
	return check.Fail(j.In(wanted), j.In(got), j.Hint(hint))
}

func (j *Judge) NotYet(wanted, got text.Phrase, hint string) check.Outcome {
	return check.NotYet(j.In(wanted), j.In(got), j.Hint(hint))
}

func (j *Judge) Pass(got text.Phrase) check.Outcome { return check.Pass(j.In(got)) }

// In is a phrase in the lab's language.
func (j *Judge) In(p text.Phrase) string { return p.In(j.said) }

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
	out := check.Outcome{State: s.State, Got: j.In(s.Got)}
	if s.Why != "" {
		out.Hint = j.Hint(string(s.Why))
	}
	if s.State != check.Passed {
		out.Wanted = j.In(text.Say("Synced at the newest commit, Healthy, no operation under way"))
	}
	return out
}

// Executable looks for a file that is to be called by its path.
func (j *Judge) Executable(path, missing, notExecutable string) (check.Outcome, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return j.Fail(text.Say("an executable file %s", path), text.Say("there is none"), missing), nil
	case err != nil:
		return check.Outcome{}, err
	case !info.Mode().IsRegular():
		return j.Fail(text.Say("an executable file %s", path), text.Say("it is no regular file"), missing), nil
	case info.Mode().Perm()&0o111 == 0:
		return j.Fail(text.Say("an executable file %s", path), text.Say("its mode is %04o", info.Mode().Perm()), notExecutable), nil
	}
	digest, err := FileDigest(path)
	if err != nil {
		return check.Outcome{}, err
	}
	return j.Pass(text.Say("%s, mode %04o", path, info.Mode().Perm())).With("sha256", digest), nil
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
