package engine

import (
	"context"
	"time"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Verify asks every step's checks, or one step's where step is not 0; what that step needs is asked too, without being
// reported. With wait, steps that are still moving are asked again for that long. The error is *NoStepError, *BusyError or
// ctx's cause; the report holds what was found until then.
func (e *Engine) Verify(ctx context.Context, step int, wait time.Duration) (labs.Report, error) {
	report, start := e.report("verify"), time.Now()
	if step != 0 {
		if err := e.CheckStep(step); err != nil {
			return report, err
		}
	}
	unlock, err := e.lock(ctx, shared, "verify")
	if err != nil {
		return failed(report, start, err), err
	}
	defer unlock()
	so, steps := pass{}, e.closure(step)
	e.settle(ctx, steps, so, wait)
	for _, n := range steps {
		if step == 0 || n == step {
			report.Steps = append(report.Steps, so[n])
			e.told(so[n])
		}
	}
	report.State = sum(report.Steps)
	report.Millis = time.Since(start).Milliseconds()
	if ctx.Err() != nil {
		err := context.Cause(ctx)
		return failed(report, start, err), err
	}
	return report, nil
}

func failed(r labs.Report, start time.Time, err error) labs.Report {
	r.State, r.Error, r.Millis = check.Error, err.Error(), time.Since(start).Milliseconds()
	return r
}
