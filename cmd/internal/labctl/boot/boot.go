// Package boot waits for instances: until their machine runs, and until their platform is ready.
package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// backstop is what a driver gets beyond the boot time, which it keeps itself and can then say why it was not enough.
const backstop = 2 * time.Minute

// Start powers the instance on within the boot time.
func Start(ctx context.Context, f *factory.Factory, driver provision.Driver, name string, progress func(string)) (provision.Endpoint, error) {
	limit := f.Settings().Timeouts.Boot
	ctx, cancel := context.WithTimeoutCause(ctx, limit+backstop, &timeoutError{limit + backstop})
	defer cancel()
	return driver.Start(ctx, name, progress)
}

// timeoutError is why a boot was given up.
type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("not up within %s", e.limit) }

// Hint is the next action.
func (e *timeoutError) Hint() string {
	return "a busy machine needs more: stop other instances, or allow more with --timeout or timeouts.boot"
}

// errMachineEnded is why a guest that was still starting will never be ready.
var errMachineEnded = errors.New("its machine has ended meanwhile: it was stopped, or ended from outside")

// WaitReady waits until the guest keeps the guest contract.
func WaitReady(ctx context.Context, f *factory.Factory, driver provision.Driver, name string, guest factory.Guest, progress func(string)) ([]check.Result, error) {
	var results []check.Result
	limit := f.Settings().Timeouts.Boot
	whole, give := context.WithCancelCause(ctx)
	defer give(nil)
	// A guest that comes up has better things to do than to answer all the time.
	wait := check.Wait{Timeout: limit, Attempt: min(limit, 3*time.Minute), Most: 8 * time.Second, Observe: func(r check.Result) { progress(r.Got) }}
	last, err := wait.For(whole, check.Check{ID: "platform", Title: "platform", Ask: func(ctx context.Context) (check.Outcome, error) {
		results = nil
		for _, c := range f.Parts.GuestChecks(guest, false) {
			results = append(results, c.Run(ctx))
		}
		for _, r := range results {
			if r.State == check.Error {
				// Over a connection that is lost nothing will ever be heard.
				st, err := driver.Status(ctx, name)
				if err == nil && st.Power != provision.Running {
					give(&provision.BootError{Name: name, Stage: "platform", Console: driver.ConsoleTail(name, 2000), Err: errMachineEnded})
					return check.Outcome{}, err
				}
				if again, err := f.Connect(ctx, st); err == nil {
					guest = again
					// It serves the tries after this one as well.
					context.AfterFunc(whole, func() { _ = again.Close() })
				}
			}
			if r.State != check.Passed {
				out := check.NotYet(r.Wanted, r.Title+": "+r.Got, r.Hint)
				return out, nil
			}
		}
		return check.Pass("ready"), nil
	}})
	var timeout *check.TimeoutError
	if errors.As(err, &timeout) {
		return results, &notReadyError{
			BootError: &provision.BootError{Name: name, Stage: "platform", Console: driver.ConsoleTail(name, 2000), Err: err},
			hint:      last.Hint,
		}
	}
	return results, err
}

// notReadyError adds the last check's hint to a boot error.
type notReadyError struct {
	*provision.BootError
	hint string
}

func (e *notReadyError) Unwrap() error { return e.BootError }

// Hint is the next action.
func (e *notReadyError) Hint() string {
	if e.hint != "" {
		return e.hint
	}
	return fmt.Sprintf("it is still running: `labctl ssh %s` to look, or the same command again to go on waiting", e.Name)
}
