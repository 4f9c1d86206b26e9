package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Reset puts the lab back to its start and then proves it: whatever is left is named, and the report's state is not passed.
func (e *Engine) Reset(ctx context.Context) (labs.Report, error) {
	report, start, limits := e.report("reset"), time.Now(), e.Limits.or(defaults)
	unlock, err := e.lock(ctx, exclusive, "reset")
	if err != nil {
		return failed(report, start, err), err
	}
	defer unlock()
	resetCtx, cancel := context.WithTimeoutCause(ctx, limits.Reset, fmt.Errorf("the reset did not end within %s", limits.Reset))
	defer cancel()
	resetErr := e.Lab.Reset(resetCtx, func(line string) { e.log("%s", line) })
	if ctx.Err() != nil {
		err := context.Cause(ctx)
		return failed(report, start, err), err
	}
	fresh := e.fresh(ctx, limits)
	report.State = check.Sum(fresh)
	for _, r := range fresh {
		if r.State != check.Passed {
			report.Left = append(report.Left, r)
		}
	}
	report.Millis = time.Since(start).Milliseconds()
	if resetErr != nil {
		// What is left is named even where the reset broke; a reset that broke is never a success.
		err := fmt.Errorf("reset lab %s: %w", e.Lab.ID, resetErr)
		return failed(report, start, err), err
	}
	return report, nil
}

func (e *Engine) fresh(ctx context.Context, limits Limits) []check.Result {
	results := make([]check.Result, len(e.Lab.Fresh))
	for i, c := range e.Lab.Fresh {
		checkCtx, cancel := context.WithTimeoutCause(ctx, limits.Check, fmt.Errorf("no answer within %s", limits.Check))
		results[i] = c.Run(checkCtx)
		cancel()
	}
	return results
}
