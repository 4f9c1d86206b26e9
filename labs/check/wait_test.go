package check_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/check"
)

// fakeClock passes the time that is waited for at once and keeps every pause.
type fakeClock struct {
	now    time.Time
	pauses []time.Duration
}

func (c *fakeClock) Now() time.Time { return c.now }
func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.pauses = append(c.pauses, d)
	c.now = c.now.Add(d)
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch
}

// script answers with one outcome after the other and stays at the last.
func script(states ...check.State) (check.Check, *int) {
	tries := 0
	return check.Check{ID: "s", Title: "the thing", Ask: func(context.Context) (check.Outcome, error) {
		state := states[min(tries, len(states)-1)]
		tries++
		if state == check.Error {
			return check.Outcome{}, errors.New("cannot ask")
		}
		return check.Outcome{State: state, Wanted: "yes", Got: string(state)}, nil
	}}, &tries
}

func TestWaitPollsUntilPassed(t *testing.T) {
	clock := &fakeClock{}
	c, tries := script(check.Error, check.Failed, check.Pending, check.Passed)
	var seen []check.State
	res, err := check.Wait{Timeout: time.Minute, Clock: clock, Observe: func(r check.Result) { seen = append(seen, r.State) }}.For(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, check.Passed, res.State)
	require.Equal(t, 4, *tries)
	require.Equal(t, []check.State{check.Error, check.Failed, check.Pending, check.Passed}, seen)
}

func TestWaitPausesGrowToTheirMost(t *testing.T) {
	clock := &fakeClock{}
	c, _ := script(check.Pending)
	_, err := check.Wait{Timeout: 20 * time.Second, Clock: clock}.For(t.Context(), c)
	require.Error(t, err)
	require.Equal(t, 250*time.Millisecond, clock.pauses[0])
	for i := 1; i < len(clock.pauses); i++ {
		require.Equal(t, min(clock.pauses[i-1]*3/2, 3*time.Second), clock.pauses[i])
	}
	require.Equal(t, 3*time.Second, clock.pauses[len(clock.pauses)-1])

	clock = &fakeClock{}
	_, err = check.Wait{Timeout: time.Second, First: 100 * time.Millisecond, Most: 200 * time.Millisecond, Clock: clock}.For(t.Context(), c)
	require.Error(t, err)
	require.Equal(t, []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond}, clock.pauses[:3])
	require.LessOrEqual(t, clock.now.Sub(time.Time{}), time.Second+200*time.Millisecond, "at most one pause over the limit")
}

func TestWaitTimeoutHasTheLastReason(t *testing.T) {
	c, tries := script(check.Pending)
	res, err := check.Wait{Timeout: 5 * time.Second, Clock: &fakeClock{}}.For(t.Context(), c)
	var timeout *check.TimeoutError
	require.ErrorAs(t, err, &timeout)
	require.Equal(t, check.Pending, res.State)
	require.Equal(t, res, timeout.Last)
	require.GreaterOrEqual(t, timeout.After, 5*time.Second)
	require.Contains(t, err.Error(), "the thing: gave up after")
	require.Contains(t, err.Error(), "last seen: pending, wanted yes, got pending")
	require.Greater(t, *tries, 2)
}

func TestWaitAsksOnceWithNoTime(t *testing.T) {
	c, tries := script(check.Pending)
	_, err := check.Wait{Clock: &fakeClock{}}.For(t.Context(), c)
	require.Error(t, err)
	require.Equal(t, 1, *tries)
	c, _ = script(check.Passed)
	_, err = check.Wait{Clock: &fakeClock{}}.For(t.Context(), c)
	require.NoError(t, err)
}

func TestWaitStableWantsPassesInARow(t *testing.T) {
	c, tries := script(check.Passed, check.Passed, check.Failed, check.Passed, check.Passed, check.Passed)
	_, err := check.Wait{Timeout: time.Minute, Stable: 3, Clock: &fakeClock{}}.For(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 6, *tries)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	why := errors.New("the learner pressed Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	c, _ := script(check.Pending)
	// A real clock with a pause that would never end on its own: only ctx can end it.
	_, err := check.Wait{Timeout: time.Hour, First: time.Hour, Most: time.Hour, Observe: func(check.Result) { cancel(why) }}.For(ctx, c)
	require.ErrorIs(t, err, why)
}

// TestWaitBoundsOneTry: a question that hangs uses up its attempt, not the whole wait.
func TestWaitBoundsOneTry(t *testing.T) {
	tries := 0
	c := check.Check{ID: "h", Title: "hangs once", Ask: func(ctx context.Context) (check.Outcome, error) {
		if tries++; tries == 1 {
			<-ctx.Done()
			return check.Outcome{}, context.Cause(ctx)
		}
		return check.Pass("there"), nil
	}}
	var first check.Result
	_, err := check.Wait{Timeout: time.Hour, Attempt: 20 * time.Millisecond, Clock: &fakeClock{}, Observe: func(r check.Result) {
		if first.ID == "" {
			first = r
		}
	}}.For(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 2, tries)
	require.Equal(t, check.Error, first.State)
	require.Contains(t, first.Got, "no answer within 20ms")
}
