// Package engine runs a lab inside the guest: it verifies steps, solves them and puts the lab back to its start.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Engine runs one lab. Lab and LockFile must be set.
type Engine struct {
	Lab labs.Lab
	// LockFile keeps solve and reset from running into each other or into a verify. It is made where it is missing.
	LockFile string
	// Version and Binary go into reports.
	Version, Binary string
	// Log receives one line at a time on what is going on. Step receives each step's verdict as soon as it is final. Both
	// may be nil.
	Log  func(string)
	Step func(labs.StepReport)
	// Limits bound the parts of the work; zero values have defaults.
	Limits Limits
	// Clock is the real one where nil.
	Clock check.Clock
}

// Limits bound the parts of the work.
type Limits struct {
	// Check bounds one check, Solve one step's solution, Reset a reset and Lock the wait for another run's end.
	Check, Solve, Reset, Lock time.Duration
	// Settle bounds how long solve waits for a step that it has just solved to pass.
	Settle time.Duration
}

// An emulated guest is about ten times slower than a real machine; these are for it.
var defaults = Limits{Check: 4 * time.Minute, Solve: 15 * time.Minute, Reset: 10 * time.Minute, Lock: 2 * time.Minute, Settle: 8 * time.Minute}

func (l Limits) or(d Limits) Limits {
	for _, f := range []struct {
		v *time.Duration
		d time.Duration
	}{{&l.Check, d.Check}, {&l.Solve, d.Solve}, {&l.Reset, d.Reset}, {&l.Lock, d.Lock}, {&l.Settle, d.Settle}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	return l
}

// NoStepError says that the lab has no such step.
type NoStepError struct {
	Lab  string
	Step int
	Of   int
}

func (e *NoStepError) Error() string {
	return fmt.Sprintf("lab %s has no step %d", e.Lab, e.Step)
}

// Hint is the next action.
func (e *NoStepError) Hint() string { return fmt.Sprintf("its steps are 1 to %d", e.Of) }

// CheckStep returns *NoStepError unless step is one of the lab's.
func (e *Engine) CheckStep(step int) error {
	if step < 1 || step > len(e.Lab.Steps) {
		return &NoStepError{Lab: e.Lab.ID, Step: step, Of: len(e.Lab.Steps)}
	}
	return nil
}

func (e *Engine) log(format string, args ...any) {
	if e.Log != nil {
		e.Log(fmt.Sprintf(format, args...))
	}
}

func (e *Engine) told(r labs.StepReport) {
	if e.Step != nil {
		e.Step(r)
	}
}

func (e *Engine) report(action string) labs.Report {
	return labs.Report{Schema: labs.Schema, Lab: e.Lab.ID, Action: action, Version: e.Version, Binary: e.Binary, Language: e.Lab.Language}
}

// closure is the step and everything that it needs, in order; all steps for 0.
func (e *Engine) closure(step int) []int {
	var found []int
	var visit func(n int)
	visit = func(n int) {
		if slices.Contains(found, n) {
			return
		}
		found = append(found, n)
		for _, need := range e.Lab.Steps[n-1].Needs {
			visit(need)
		}
	}
	if step == 0 {
		for n := range e.Lab.Steps {
			visit(n + 1)
		}
	} else {
		visit(step)
	}
	slices.Sort(found)
	return found
}

// pass is what has been found out so far.
type pass map[int]labs.StepReport

// ask asks the steps in order, within one Begin. Steps that have passed already are not asked again.
func (e *Engine) ask(ctx context.Context, steps []int, so pass) {
	limits := e.Limits.or(defaults)
	var cannot error
	if e.Lab.Begin != nil {
		beginCtx, cancel := context.WithTimeoutCause(ctx, limits.Check, fmt.Errorf("the preparation did not end within %s", limits.Check))
		end, err := e.Lab.Begin(beginCtx)
		cancel()
		if end != nil {
			defer end()
		}
		cannot = err
		if err != nil && ctx.Err() != nil {
			cannot = context.Cause(ctx)
		}
	}
	for _, n := range steps {
		if so[n].State == check.Passed {
			continue
		}
		if ctx.Err() != nil && cannot == nil {
			cannot = context.Cause(ctx)
		}
		so[n] = e.askStep(ctx, n, so, cannot, limits)
	}
}

// say puts what the engine itself says into the lab's language.
func (e *Engine) say(p text.Phrase) string {
	if e.Lab.Say == nil {
		return p.String()
	}
	return e.Lab.Say(p)
}

func (e *Engine) askStep(ctx context.Context, n int, so pass, cannot error, limits Limits) (report labs.StepReport) {
	step := e.Lab.Steps[n-1]
	start := time.Now()
	report = labs.StepReport{Step: n, Title: step.Title}
	add := func(r check.Result) {
		report.Checks = append(report.Checks, r)
		report.State = r.State
	}
	defer func() { report.Millis = time.Since(start).Milliseconds() }()
	if cannot != nil {
		add(check.Result{ID: "guest", Title: e.say(text.Say("the guest")), State: check.Error, Got: cannot.Error(), Hint: hintOf(cannot)})
		return report
	}
	for _, need := range step.Needs {
		if state := so[need].State; state != check.Passed {
			r := check.Result{ID: "needs", Title: e.say(text.Say("the steps before")), State: unmet(state), Got: e.say(text.Say("step %d has not passed", need))}
			if last := so[need].Checks; r.State == check.Error && len(last) > 0 {
				r.Got, r.Hint = e.say(text.Say("step %d could not be checked: %s", need, last[len(last)-1].Got)), last[len(last)-1].Hint
			}
			add(r)
			return report
		}
	}
	for _, c := range step.Checks {
		e.log("step %d: %s", n, c.Title)
		checkCtx, cancel := context.WithTimeoutCause(ctx, limits.Check, fmt.Errorf("no answer within %s", limits.Check))
		res := c.Run(checkCtx)
		cancel()
		add(res)
		if res.State != check.Passed {
			break
		}
	}
	if len(step.Checks) == 0 {
		add(check.Result{ID: "none", Title: step.Title, State: check.Error, Got: "the step has no checks"})
	}
	return report
}

func hintOf(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

// sum is the state of the steps together.
func sum(steps []labs.StepReport) check.State {
	results := make([]check.Result, len(steps))
	for i, s := range steps {
		results[i].State = s.State
	}
	return check.Sum(results)
}

// moving reports whether asking again may give another answer by itself: something is pending, or could not be asked.
func (p pass) moving(steps []int) bool {
	return slices.ContainsFunc(steps, func(n int) bool { return p[n].State == check.Pending || p[n].State == check.Error })
}

// settle asks until nothing is moving any more or the time is over. What has not settled keeps the state it was last seen in.
func (e *Engine) settle(ctx context.Context, steps []int, so pass, timeout time.Duration) {
	e.ask(ctx, steps, so)
	if timeout <= 0 || !so.moving(steps) {
		return
	}
	wait := check.Wait{Timeout: timeout, Attempt: 24 * time.Hour, First: time.Second, Most: 5 * time.Second, Clock: e.Clock}
	first := true
	_, _ = wait.For(ctx, check.Check{ID: "settle", Title: "steps that are pending", Ask: func(ctx context.Context) (check.Outcome, error) {
		if !first {
			e.ask(ctx, steps, so)
		}
		first = false
		if !so.moving(steps) {
			return check.Pass(""), nil
		}
		for _, n := range steps {
			if s := so[n]; s.State == check.Pending || s.State == check.Error {
				last := s.Checks[len(s.Checks)-1]
				e.log("step %d: waiting: %s", n, last.Got)
				break
			}
		}
		return check.NotYet("", "", ""), nil
	}})
}
