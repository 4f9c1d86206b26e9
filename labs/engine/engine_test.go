package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/engine"
)

// guest is a lab whose steps pass when their thing is there.
type guest struct {
	there  map[int]bool
	asked  []int
	solved []int
	begun  int
	ended  int
	begin  error
	broken map[int]error // what asking or solving a step gives
	out    map[int]func() check.Outcome
}

func (g *guest) lab() labs.Lab {
	step := func(n int, needs ...int) labs.Step {
		return labs.Step{
			Title: "thing", Needs: needs,
			Checks: []check.Check{
				{ID: "there", Title: "the thing", Ask: func(context.Context) (check.Outcome, error) {
					g.asked = append(g.asked, n)
					if out := g.out[n]; out != nil {
						return out(), g.broken[n]
					}
					if !g.there[n] {
						return check.Fail("a thing", "nothing", "make it"), g.broken[n]
					}
					return check.Pass("there"), g.broken[n]
				}},
				{ID: "good", Title: "is good", Ask: func(context.Context) (check.Outcome, error) { return check.Pass("good"), nil }},
			},
			Solve: func(context.Context, func(string)) error {
				g.solved = append(g.solved, n)
				if g.broken[n] == nil {
					g.there[n] = true
				}
				return g.broken[n]
			},
		}
	}
	return labs.Lab{
		ID: "test", Steps: []labs.Step{step(1), step(2, 1), step(3), step(4, 2, 3)},
		Begin: func(context.Context) (func(), error) {
			g.begun++
			return func() { g.ended++ }, g.begin
		},
		Fresh: []check.Check{
			{ID: "things", Title: "things", Ask: func(context.Context) (check.Outcome, error) {
				if len(g.there) > 0 {
					return check.Fail("none", "some", ""), nil
				}
				return check.Pass("none"), nil
			}},
			{ID: "always", Title: "nothing else", Ask: func(context.Context) (check.Outcome, error) { return check.Pass("none"), nil }},
		},
		Reset: func(context.Context, func(string)) error {
			if g.broken[0] == nil {
				clear(g.there)
			}
			return g.broken[0]
		},
	}
}

func setUp(t *testing.T, there ...int) (*guest, *engine.Engine) {
	g := &guest{there: map[int]bool{}, broken: map[int]error{}, out: map[int]func() check.Outcome{}}
	for _, n := range there {
		g.there[n] = true
	}
	return g, &engine.Engine{
		Lab: g.lab(), LockFile: filepath.Join(t.TempDir(), "run", "test.lock"), Version: "v1", Binary: "abc",
		Limits: engine.Limits{Lock: 300 * time.Millisecond}, Clock: &clock{now: time.Unix(0, 0)},
	}
}

// clock jumps ahead instead of waiting.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }
func (c *clock) After(d time.Duration) <-chan time.Time {
	c.now = c.now.Add(d)
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}

func states(r labs.Report) (s []check.State) {
	for _, step := range r.Steps {
		s = append(s, step.State)
	}
	return s
}

func TestVerifyAll(t *testing.T) {
	g, e := setUp(t, 2, 3)
	var told []int
	e.Step = func(r labs.StepReport) { told = append(told, r.Step) }
	r, err := e.Verify(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Equal(t, []check.State{check.Failed, check.Skipped, check.Passed, check.Skipped}, states(r))
	require.Equal(t, check.Failed, r.State)
	require.Equal(t, []int{1, 3}, g.asked, "a skipped step is not asked")
	require.Equal(t, []int{1, 2, 3, 4}, told)
	require.Contains(t, r.Steps[1].Checks[0].Got, "step 1 has not passed")
	require.Len(t, r.Steps[0].Checks, 1, "the first check that does not pass ends the step")
	require.Len(t, r.Steps[2].Checks, 2)
	require.Equal(t, labs.Schema, r.Schema)
	require.Equal(t, []string{"test", "verify", "v1", "abc"}, []string{r.Lab, r.Action, r.Version, r.Binary})
	require.Equal(t, g.begun, g.ended)
}

func TestVerifyOneStepAsksWhatItNeeds(t *testing.T) {
	g, e := setUp(t, 1, 2, 3, 4)
	r, err := e.Verify(t.Context(), 2, 0)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, g.asked)
	require.Len(t, r.Steps, 1)
	require.Equal(t, 2, r.Steps[0].Step)
	require.Equal(t, check.Passed, r.State)

	delete(g.there, 1)
	r, err = e.Verify(t.Context(), 4, 0)
	require.NoError(t, err)
	require.Equal(t, []check.State{check.Skipped}, states(r))

	_, err = e.Verify(t.Context(), 5, 0)
	var no *engine.NoStepError
	require.ErrorAs(t, err, &no)
	require.Contains(t, no.Hint(), "1 to 4")
}

func TestTroubleIsNeverFailed(t *testing.T) {
	g, e := setUp(t, 1, 2, 3, 4)
	g.broken[2] = errors.New("API server away")
	r, err := e.Verify(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Equal(t, []check.State{check.Passed, check.Error, check.Passed, check.Error}, states(r))
	require.Equal(t, check.Error, r.State)

	g.asked, g.begin = nil, hinted{}
	r, err = e.Verify(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Empty(t, g.asked)
	require.Equal(t, []check.State{check.Error, check.Error, check.Error, check.Error}, states(r))
	require.Equal(t, "disk full", r.Steps[0].Checks[0].Got)
	require.Equal(t, "make room", r.Steps[0].Checks[0].Hint)
}

type hinted struct{}

func (hinted) Error() string { return "disk full" }
func (hinted) Hint() string  { return "make room" }

func TestACheckThatHangsIsAnError(t *testing.T) {
	_, e := setUp(t)
	e.Limits.Check = 50 * time.Millisecond
	e.Lab.Steps[0].Checks[0].Ask = func(ctx context.Context) (check.Outcome, error) {
		<-ctx.Done()
		return check.Fail("a", "b", "c"), nil
	}
	r, err := e.Verify(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Equal(t, check.Error, r.State)
	require.Contains(t, r.Steps[0].Checks[0].Got, "no answer within")
}

func TestWaitAsksAgainWhatMoves(t *testing.T) {
	g, e := setUp(t, 2, 3, 4)
	tries := 0
	g.out[1] = func() check.Outcome {
		if tries++; tries < 4 {
			return check.NotYet("Healthy", "Progressing", "")
		}
		return check.Pass("Healthy")
	}
	r, err := e.Verify(t.Context(), 0, 0)
	require.NoError(t, err)
	require.Equal(t, []check.State{check.Pending, check.Skipped, check.Passed, check.Skipped}, states(r), "no waiting unless asked for")

	g.asked, tries = nil, 0
	r, err = e.Verify(t.Context(), 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)
	require.Equal(t, []int{1, 3, 1, 1, 1, 2, 4}, g.asked, "what has passed is not asked again")
	require.Equal(t, g.begun, g.ended)
}

func TestWaitEnds(t *testing.T) {
	g, e := setUp(t, 2, 3, 4)
	g.out[1] = func() check.Outcome { return check.NotYet("Healthy", "Progressing", "") }
	r, err := e.Verify(t.Context(), 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, check.Pending, r.State)
	require.Equal(t, "Progressing", r.Steps[0].Checks[0].Got)
	require.Greater(t, len(g.asked), 5)

	g.asked, g.out[1] = nil, nil
	_, err = e.Verify(t.Context(), 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []int{1}, g.asked, "what failed does not heal by waiting")
}

func TestSolveAll(t *testing.T) {
	g, e := setUp(t)
	r, err := e.Solve(t.Context(), 1, 4)
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)
	require.Equal(t, []int{1, 2, 3, 4}, g.solved)
	require.Len(t, r.Steps, 4)

	r, err = e.Solve(t.Context(), 1, 4)
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)
	require.Equal(t, []int{1, 2, 3, 4}, g.solved, "what is in place is left alone")
}

func TestSolveOne(t *testing.T) {
	g, e := setUp(t)
	r, err := e.Solve(t.Context(), 4, 4)
	var needs *engine.NeedsError
	require.ErrorAs(t, err, &needs)
	require.Equal(t, 2, needs.Need)
	require.Contains(t, needs.Hint(), "--to 4")
	require.Equal(t, []check.State{check.Skipped}, states(r))
	require.Equal(t, check.Skipped, r.State)
	require.NotEmpty(t, r.Error)
	require.Empty(t, g.solved)

	g.there[1], g.there[2], g.there[3] = true, true, true
	r, err = e.Solve(t.Context(), 4, 4)
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)
	require.Equal(t, []int{4}, g.solved)
}

func TestSolveFailsUnlessTheStepPasses(t *testing.T) {
	g, e := setUp(t)
	g.out[2] = func() check.Outcome { return check.Fail("a", "b", "c") }
	r, err := e.Solve(t.Context(), 1, 4)
	require.NoError(t, err)
	require.Equal(t, check.Failed, r.State)
	require.Equal(t, []check.State{check.Passed, check.Failed}, states(r))
	require.Equal(t, []int{1, 2}, g.solved)

	g.out[2], g.broken[2] = nil, errors.New("push refused")
	g.there = map[int]bool{}
	g.out[2] = func() check.Outcome { return check.Fail("a", "b", "c") }
	e.Lab.Steps[1].Checks = []check.Check{{ID: "x", Ask: func(context.Context) (check.Outcome, error) { return check.Fail("a", "b", "c"), nil }}}
	r, err = e.Solve(t.Context(), 1, 4)
	require.ErrorContains(t, err, "solve step 2: push refused")
	require.Equal(t, check.Error, r.State)
}

func TestResetProvesItself(t *testing.T) {
	g, e := setUp(t, 1, 2)
	r, err := e.Reset(t.Context())
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)
	require.Empty(t, r.Left)
	r, err = e.Reset(t.Context())
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)

	g.there[1] = true
	e.Lab.Reset = func(context.Context, func(string)) error { return nil }
	r, err = e.Reset(t.Context())
	require.NoError(t, err)
	require.Equal(t, check.Failed, r.State)
	require.Len(t, r.Left, 1)
	require.Equal(t, "things", r.Left[0].ID)

	e.Lab.Reset = func(context.Context, func(string)) error { return errors.New("namespace stuck") }
	r, err = e.Reset(t.Context())
	require.ErrorContains(t, err, "namespace stuck")
	require.Equal(t, check.Error, r.State)
	require.Len(t, r.Left, 1, "what is left is named also then")
}

func TestRunsDoNotInterleave(t *testing.T) {
	g, e := setUp(t, 1, 2, 3, 4)
	var inner error
	e.Lab.Reset = func(ctx context.Context, _ func(string)) error {
		_, inner = e.Verify(ctx, 0, 0)
		return nil
	}
	g.there = map[int]bool{}
	_, err := e.Reset(t.Context())
	require.NoError(t, err)
	var busy *engine.BusyError
	require.ErrorAs(t, inner, &busy)
	require.Contains(t, busy.Error(), "in use by reset (pid ")

	var second error
	e.Lab.Steps[0].Checks[0].Ask = func(ctx context.Context) (check.Outcome, error) {
		other := *e
		other.Lab.Steps = e.Lab.Steps[1:2]
		other.Lab.Steps[0].Needs = nil
		if _, err := other.Verify(ctx, 0, 0); err != nil {
			return check.Outcome{}, err
		}
		_, second = e.Reset(ctx)
		return check.Pass(""), nil
	}
	r, err := e.Verify(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State, "verifies share the lab: %v", r)
	require.ErrorAs(t, second, &busy)
	require.Contains(t, busy.Error(), "another verify")
}

func TestAStaleLockHolderIsNotNamed(t *testing.T) {
	_, e := setUp(t, 1)
	require.NoError(t, os.MkdirAll(filepath.Dir(e.LockFile), 0o755))
	require.NoError(t, os.WriteFile(e.LockFile, []byte("solve (pid 12)\n"), 0o644))
	_, err := e.Verify(t.Context(), 1, 0)
	require.NoError(t, err)
	text, err := os.ReadFile(e.LockFile)
	require.NoError(t, err)
	require.Empty(t, text)
}

func TestInterrupt(t *testing.T) {
	_, e := setUp(t, 1, 2, 3, 4)
	why := errors.New("Ctrl-C")
	for name, call := range map[string]func(context.Context) (labs.Report, error){
		"verify": func(ctx context.Context) (labs.Report, error) { return e.Verify(ctx, 0, time.Minute) },
		"solve":  func(ctx context.Context) (labs.Report, error) { return e.Solve(ctx, 1, 4) },
		"reset":  e.Reset,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			var calls atomic.Int32
			stop := func(ctx context.Context) (check.Outcome, error) {
				calls.Add(1)
				cancel(why)
				return check.Fail("a", "b", "c"), nil
			}
			e.Lab.Steps[2].Checks[0].Ask = stop
			e.Lab.Reset = func(ctx context.Context, _ func(string)) error { _, err := stop(ctx); return err }
			r, err := call(ctx)
			require.ErrorIs(t, err, why)
			require.Equal(t, check.Error, r.State)
			require.EqualValues(t, 1, calls.Load())
			for _, s := range r.Steps {
				require.NotEqual(t, check.Failed, s.State)
			}
		})
	}
}
