// Package check asks one read-only question at a time and says what was wanted, what was found and what to look at next.
// The same engine serves doctor, boot waits, the guest contract and lab verdicts.
package check

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State is what a check found.
type State string

// The states of a check. Error means that the question could not be asked: it says nothing about the learner's work.
const (
	Passed  State = "passed"
	Pending State = "pending" // not there yet and still moving
	Failed  State = "failed"
	Skipped State = "skipped" // an earlier step is missing
	Error   State = "error"
)

// Known says whether s is one of the states.
func (s State) Known() bool {
	switch s {
	case Passed, Pending, Failed, Skipped, Error:
		return true
	}
	return false
}

// Outcome is the answer to one question.
type Outcome struct {
	State State
	// Wanted and Got say in words what the check looks for and what it found.
	Wanted, Got string
	// Hint is one sentence on what to look at next. It never gives the answer away.
	Hint string
	// Evidence is what the verdict rests on (digests, SHAs, statuses), for the report.
	Evidence map[string]any
}

// Pass, Fail, Wait and Skip build outcomes; wanted and got may be empty where the state says it all.
func Pass(got string) Outcome { return Outcome{State: Passed, Got: got} }

// Fail says that the answer is no, and that waiting alone will not change it.
func Fail(wanted, got, hint string) Outcome {
	return Outcome{State: Failed, Wanted: wanted, Got: got, Hint: hint}
}

// NotYet says that the answer may still become yes by itself.
func NotYet(wanted, got, hint string) Outcome {
	return Outcome{State: Pending, Wanted: wanted, Got: got, Hint: hint}
}

// Skip says that the question makes no sense yet.
func Skip(why string) Outcome { return Outcome{State: Skipped, Got: why} }

// With adds one piece of evidence.
func (o Outcome) With(key string, value any) Outcome {
	evidence := make(map[string]any, len(o.Evidence)+1)
	for k, v := range o.Evidence {
		evidence[k] = v
	}
	evidence[key] = value
	o.Evidence = evidence
	return o
}

// Check is one question. Ask returns an error only where the question could not be asked.
type Check struct {
	// ID names the check in reports and tests, such as "web-yaml-committed".
	ID string
	// Title is what is looked at, in a few words.
	Title string
	Ask   func(ctx context.Context) (Outcome, error)
}

// Result is one answered check, in the form that travels as JSON.
type Result struct {
	ID       string         `json:"id"`
	Title    string         `json:"title"`
	State    State          `json:"state"`
	Wanted   string         `json:"wanted,omitempty"`
	Got      string         `json:"got,omitempty"`
	Hint     string         `json:"hint,omitempty"`
	Evidence map[string]any `json:"evidence,omitempty"`
	Millis   int64          `json:"millis"`
}

// Run asks the check once. An error, an ended ctx or a panic becomes state Error, never Failed.
func (c Check) Run(ctx context.Context) (res Result) {
	start := time.Now()
	res = Result{ID: c.ID, Title: c.Title}
	defer func() {
		if p := recover(); p != nil {
			res.State, res.Got = Error, fmt.Sprintf("the check itself broke: %v", p)
		}
		res.Millis = time.Since(start).Milliseconds()
	}()
	out, err := c.Ask(ctx)
	if err == nil && out.State == "" {
		err = errors.New("the check gave no answer")
	}
	if err == nil && ctx.Err() != nil && out.State != Passed {
		// What an interrupted check says of the learner's work is worth nothing.
		err = context.Cause(ctx)
	}
	if err != nil {
		res.State, res.Got, res.Hint = Error, err.Error(), out.Hint
		return res
	}
	res.State, res.Wanted, res.Got, res.Hint, res.Evidence = out.State, out.Wanted, out.Got, out.Hint, out.Evidence
	return res
}

// Sum is the state of several results together: error before failed before pending before skipped before passed.
// No results at all count as skipped.
func Sum(results []Result) State {
	rank := map[State]int{Passed: 0, Skipped: 1, Pending: 2, Failed: 3, Error: 4}
	if len(results) == 0 {
		return Skipped
	}
	worst := Passed
	for _, r := range results {
		if rank[r.State] > rank[worst] {
			worst = r.State
		}
	}
	return worst
}
