package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// NeedsError says that a step cannot be solved alone because one that it needs is not in place.
type NeedsError struct {
	Step, Need int
	State      check.State
}

func (e *NeedsError) Error() string {
	return fmt.Sprintf("step %d needs step %d, which has not passed (%s)", e.Step, e.Need, e.State)
}

// Hint is the next action.
func (e *NeedsError) Hint() string {
	return fmt.Sprintf("do step %d first, or solve up to here with --to %d", e.Need, e.Step)
}

// Solve applies the reference solution of the steps from first to last and verifies each right after. A step that passes
// already is left alone. It stops at the first step that does not pass. Every step that a solved one needs must pass.
func (e *Engine) Solve(ctx context.Context, first, last int) (labs.Report, error) {
	report, start := e.report("solve"), time.Now()
	for _, n := range []int{first, last} {
		if err := e.CheckStep(n); err != nil {
			return report, err
		}
	}
	unlock, err := e.lock(ctx, exclusive, "solve")
	if err != nil {
		return failed(report, start, err), err
	}
	defer unlock()
	so := pass{}
	for n := first; n <= last; n++ {
		var stepReport labs.StepReport
		stepReport, err = e.solveStep(ctx, n, so)
		report.Steps = append(report.Steps, stepReport)
		e.told(stepReport)
		if needs := (*NeedsError)(nil); errors.As(err, &needs) {
			report.Error = err.Error()
			break
		}
		if err != nil {
			return failed(report, start, err), err
		}
		if stepReport.State != check.Passed {
			break
		}
	}
	report.State = sum(report.Steps)
	report.Millis = time.Since(start).Milliseconds()
	return report, err
}

func (e *Engine) solveStep(ctx context.Context, n int, so pass) (labs.StepReport, error) {
	start, limits, step := time.Now(), e.Limits.or(defaults), e.Lab.Steps[n-1]
	steps := e.closure(n)
	e.settle(ctx, steps[:len(steps)-1], so, limits.Settle)
	for _, need := range step.Needs {
		if state := so[need].State; state != check.Passed && ctx.Err() == nil {
			err := &NeedsError{Step: n, Need: need, State: state}
			last := so[need].Checks[len(so[need].Checks)-1]
			return labs.StepReport{Step: n, Title: step.Title, State: unmet(state), Checks: []check.Result{last}}, err
		}
	}
	e.ask(ctx, []int{n}, so)
	done := func(err error) (labs.StepReport, error) {
		report := so[n]
		report.Millis = time.Since(start).Milliseconds()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return report, err
	}
	if so[n].State == check.Passed || ctx.Err() != nil {
		if so[n].State == check.Passed {
			e.log("step %d: in place already", n)
		}
		return done(nil)
	}
	e.log("step %d: solve: %s", n, step.Title)
	solveCtx, cancel := context.WithTimeoutCause(ctx, limits.Solve, fmt.Errorf("not solved within %s", limits.Solve))
	err := step.Solve(solveCtx, func(line string) { e.log("step %d: %s", n, line) })
	cancel()
	if err != nil {
		so[n] = labs.StepReport{Step: n, Title: step.Title, State: check.Error,
			Checks: []check.Result{{ID: "solve", Title: "the reference solution", State: check.Error, Got: err.Error(), Hint: hintOf(err)}}}
		return done(fmt.Errorf("solve step %d: %w", n, err))
	}
	e.settle(ctx, []int{n}, so, limits.Settle)
	return done(nil)
}

// unmet is the state of a step whose need is in that state: a need that could not be asked stays an error, anything else
// means that the step is skipped.
func unmet(need check.State) check.State {
	if need == check.Error {
		return check.Error
	}
	return check.Skipped
}
