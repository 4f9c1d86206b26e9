package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/check"
)

func ask(out check.Outcome, err error) check.Check {
	return check.Check{ID: "id", Title: "a thing", Ask: func(context.Context) (check.Outcome, error) { return out, err }}
}

func TestRunGivesTheOutcome(t *testing.T) {
	for _, out := range []check.Outcome{
		check.Pass("there"), check.Fail("a", "b", "look"), check.NotYet("a", "b", "wait"), check.Skip("step 1 is missing"),
	} {
		res := ask(out.With("sha", "abc"), nil).Run(t.Context())
		require.Equal(t, "id", res.ID)
		require.Equal(t, "a thing", res.Title)
		require.Equal(t, out.State, res.State)
		require.Equal(t, out.Wanted, res.Wanted)
		require.Equal(t, out.Got, res.Got)
		require.Equal(t, out.Hint, res.Hint)
		require.Equal(t, map[string]any{"sha": "abc"}, res.Evidence)
	}
}

// TestBrokenQuestionsAreErrors: whatever goes wrong in asking must never be counted against the learner.
func TestBrokenQuestionsAreErrors(t *testing.T) {
	res := ask(check.Outcome{State: check.Failed, Hint: "look"}, errors.New("API server away")).Run(t.Context())
	require.Equal(t, check.Error, res.State)
	require.Equal(t, "API server away", res.Got)
	require.Equal(t, "look", res.Hint)

	res = ask(check.Outcome{}, nil).Run(t.Context())
	require.Equal(t, check.Error, res.State)
	require.Contains(t, res.Got, "no answer")

	res = check.Check{ID: "p", Ask: func(context.Context) (check.Outcome, error) { panic("oops") }}.Run(t.Context())
	require.Equal(t, check.Error, res.State)
	require.Contains(t, res.Got, "oops")
	require.Equal(t, "p", res.ID)

	res = check.Check{ID: "nil"}.Run(t.Context())
	require.Equal(t, check.Error, res.State)
}

func TestAnInterruptedCheckSaysNothing(t *testing.T) {
	why := errors.New("interrupted")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, out := range []check.Outcome{check.Fail("a", "b", ""), check.NotYet("a", "b", "")} {
		res := ask(out, nil).Run(ended)
		require.Equal(t, check.Error, res.State)
		require.Equal(t, why.Error(), res.Got)
	}
	require.Equal(t, check.Passed, ask(check.Pass(""), nil).Run(ended).State, "an answer that was found in time stands")
}

func TestWithCopies(t *testing.T) {
	base := check.Pass("x").With("a", 1)
	left, right := base.With("b", 2), base.With("b", 3)
	require.Equal(t, map[string]any{"a": 1}, base.Evidence)
	require.Equal(t, 2, left.Evidence["b"])
	require.Equal(t, 3, right.Evidence["b"])
}

func TestSum(t *testing.T) {
	of := func(states ...check.State) check.State {
		results := make([]check.Result, len(states))
		for i, s := range states {
			results[i].State = s
		}
		return check.Sum(results)
	}
	require.Equal(t, check.Skipped, of())
	require.Equal(t, check.Passed, of(check.Passed, check.Passed))
	require.Equal(t, check.Skipped, of(check.Passed, check.Skipped))
	require.Equal(t, check.Pending, of(check.Skipped, check.Pending, check.Passed))
	require.Equal(t, check.Failed, of(check.Failed, check.Pending))
	require.Equal(t, check.Error, of(check.Failed, check.Error, check.Passed))
}

// TestWireForm fixes the JSON that guests of another version may send.
func TestWireForm(t *testing.T) {
	data, err := json.Marshal(check.Result{ID: "a", Title: "b", State: check.Failed, Wanted: "c", Got: "d", Hint: "e", Evidence: map[string]any{"f": 1}, Millis: 2})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"a","title":"b","state":"failed","wanted":"c","got":"d","hint":"e","evidence":{"f":1},"millis":2}`, string(data))
	data, err = json.Marshal(check.Result{ID: "a", Title: "b", State: check.Passed})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"a","title":"b","state":"passed","millis":0}`, string(data))
}
