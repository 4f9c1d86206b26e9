package proof_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/proof"
)

// guest is a lab of two steps, of which the second needs the first; its scripts are words. faulty says how it misjudges.
type guest struct {
	solved  map[int]bool
	now     string // what the last script made
	faulty  string
	scripts []string
}

func (g *guest) state(step int) labs.StepReport {
	s := labs.StepReport{Step: step, Title: fmt.Sprint("Step ", step), State: check.Passed, Checks: []check.Result{{ID: "done", State: check.Passed}}}
	fail := func(state check.State, id string) labs.StepReport {
		s.State, s.Checks = state, []check.Result{{ID: id, State: state, Got: "something else", Hint: "look"}}
		return s
	}
	undone := g.now == fmt.Sprint("undo ", step)
	switch {
	case step == 2 && (!g.solved[1] || g.now == "undo 1") && g.faulty != "needs":
		return fail(check.Skipped, "needs")
	case !g.solved[step] && !(g.faulty == "fresh" && step == 2), undone:
		return fail(check.Failed, "missing")
	case g.now == fmt.Sprint("wrong ", step) && g.faulty != "takes wrong":
		return fail(check.Failed, map[bool]string{true: "another", false: "content"}[g.faulty == "another check"])
	case g.now == "storm" && step == 2:
		if g.faulty == "disturbed" {
			return fail(check.Failed, "content")
		}
		return fail(check.Error, "content")
	case g.now == fmt.Sprint("right ", step) && g.faulty == "refuses right":
		return fail(check.Failed, "content")
	}
	return s
}

func (g *guest) Verify(_ context.Context, step int) (labs.Report, error) {
	if g.faulty == "away" && g.now == "wrong 1" {
		return labs.Report{}, errors.New("the connection was lost")
	}
	r := labs.Report{State: check.Failed, Millis: 70}
	for n := 1; n <= 2; n++ {
		if step == 0 || step == n {
			r.Steps = append(r.Steps, g.state(n))
		}
	}
	return r, nil
}

func (g *guest) Solve(_ context.Context, step int) (labs.Report, error) {
	g.solved[step] = true
	return labs.Report{State: check.Passed}, nil
}

func (g *guest) Reset(context.Context) (labs.Report, error) {
	if g.faulty != "keeps" {
		clear(g.solved)
	}
	return labs.Report{State: check.Passed}, nil
}

func (g *guest) Shell(_ context.Context, script string) error {
	g.scripts = append(g.scripts, script)
	g.now = strings.TrimPrefix(script, "back")
	return nil
}

var document = func() proof.Document {
	d := proof.Document{Lab: "x", Steps: 2}
	for step := 1; step <= 2; step++ {
		add := func(kind proof.Kind, script, check string, skipped ...int) {
			d.Trials = append(d.Trials, proof.Trial{Kind: kind, Step: step, Name: script, Before: fmt.Sprint(script, " ", step), After: "back", Check: check, Skipped: skipped})
		}
		if step == 1 {
			add(proof.Undone, "undo", "", 2)
		} else {
			add(proof.Undone, "undo", "")
		}
		add(proof.Wrong, "wrong", "content")
		add(proof.Right, "right", "")
	}
	d.Disturbances = []proof.Disturbance{{Name: "a storm", Looks: 2, Before: "storm", After: "back"}}
	return d
}()

func TestRun(t *testing.T) {
	g := &guest{solved: map[int]bool{}}
	table, err := proof.Run(t.Context(), g, document, nil)
	require.NoError(t, err)
	require.Empty(t, table.Misjudged)
	require.Equal(t, int64(70), table.Millis)
	require.Equal(t, []string{"a storm"}, table.Disturbed)
	for i, row := range table.Rows {
		require.Equal(t, proof.Row{Step: i + 1, Title: fmt.Sprint("Step ", i+1), Fresh: true, Solved: true, Undone: true, Wrong: 1, WrongTried: 1, Right: 1, RightTried: 1}, row)
	}
	require.Empty(t, g.solved)
}

// Whatever a lab misjudges must be found.
func TestRunFindsWhatIsMisjudged(t *testing.T) {
	for faulty, want := range map[string]string{
		"fresh":         "step 2, after solving 1: it must be failed or skipped, but is passed",
		"needs":         "step 2, undone: undo: it must be skipped, but is passed",
		"takes wrong":   "step 1, wrong: wrong: it must be failed by content, but is passed",
		"another check": "step 1, wrong: wrong: it must be failed by content, but is failed by another (something else)",
		"refuses right": "step 1, right: right: it must be passed, but is failed by content (something else)",
		"disturbed":     "step 2, disturbed: a storm: it must be anything but failed, but is failed by content (something else)",
		"keeps":         "step 1, after the reset: it must be failed or skipped, but is passed",
	} {
		t.Run(faulty, func(t *testing.T) {
			table, err := proof.Run(t.Context(), &guest{solved: map[int]bool{}, faulty: faulty}, document, nil)
			require.NoError(t, err)
			require.NotEmpty(t, table.Misjudged)
			require.Equal(t, want, table.Misjudged[0].String())
		})
	}
}

func TestRunTakesAnswersBack(t *testing.T) {
	g := &guest{solved: map[int]bool{}, faulty: "away"}
	_, err := proof.Run(t.Context(), g, document, nil)
	require.EqualError(t, err, `step 1, wrong answer "wrong": the connection was lost`)
	require.Equal(t, "back", g.scripts[len(g.scripts)-1])
}

func TestRunWantsAFreshGuest(t *testing.T) {
	g := &guest{solved: map[int]bool{1: true}}
	_, err := proof.Run(t.Context(), g, document, nil)
	require.ErrorAs(t, err, new(*proof.NotFreshError))
	require.True(t, g.solved[1], "nothing was touched")
}

func TestSample(t *testing.T) {
	twice := append(append([]proof.Trial{}, document.Trials...), document.Trials...)
	require.Equal(t, document.Trials, proof.Sample(twice))
}
