package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// VerifyOptions are the arguments of verify.
type VerifyOptions struct {
	target
	Known labrun.Known
	Step  int
	Wait  bool
}

// NewVerify is the command verify.
func NewVerify(f *factory.Factory) *cobra.Command {
	var o VerifyOptions
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "verify --lab LAB",
		Short: "Check the work on a lab's steps",
		Long: `Check the work on a lab's steps. Nothing in the guest is changed. Each step is passed, failed, pending (not there yet but
still moving), skipped (an earlier step is missing) or error (it could not be checked, which says nothing about the work).

With --wait it is checked again and again until all is passed or the time is up.`,
		Example: `  labctl verify --lab ci
  labctl verify --lab ci --step 3 --wait
  labctl verify --lab ci -i alice -o json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Known, err = o.find(cmd, map[string]int{"step": o.Step}); err != nil {
				return err
			}
			limit := f.Settings().Timeouts.Verify
			if cmd.Flags().Changed("timeout") {
				if limit = timeout; limit <= 0 {
					return cli.Misused(cmd, fmt.Sprintf("--timeout: %s is no time to wait", timeout))
				}
			}
			return verify(cmd.Context(), f, o, limit)
		},
	}
	o.flags(f, cmd)
	stepFlag(cmd, &o.Step, "step", "check only step `N`")
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "check until all is passed")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "longest wait, a `TIME` (default: the setting timeouts.verify)")
	return cmd
}

func verify(ctx context.Context, f *factory.Factory, o VerifyOptions, limit time.Duration) error {
	s, err := open(ctx, f, o.Known, o.instance)
	if err != nil {
		return err
	}
	defer s.close()
	progress := f.UI().NewProgress()
	defer progress.Close()
	ask := once
	if o.Wait {
		ask = untilPassed
	}
	var report labs.Report
	err = stage.Run(ctx, &report, progress.Sink(""), stage.Stage[labs.Report]{
		Name: "verify lab " + o.Known.ID + " in " + s.status.Name,
		Run: func(ctx context.Context, report *labs.Report, detail func(string)) (err error) {
			*report, err = ask(ctx, s, labrun.Call{Action: "verify", Step: o.Step, Timeout: limit}, detail)
			return err
		},
	})
	if err != nil {
		return unstaged(err)
	}
	progress.Close()
	return show(f, s.status.Name, o.format, report)
}

func once(ctx context.Context, s *session, call labrun.Call, progress func(string)) (labs.Report, error) {
	return s.run(ctx, call, progress)
}

// untilPassed asks until the report is passed or the call's time is over; then what was seen last is the result.
func untilPassed(ctx context.Context, s *session, call labrun.Call, progress func(string)) (last labs.Report, lastErr error) {
	bounded, cancel := context.WithTimeoutCause(ctx, call.Timeout, &labrun.TimeoutError{Action: call.Action, After: call.Timeout})
	defer cancel()
	_, err := check.Wait{
		Timeout: call.Timeout, Attempt: call.Timeout, First: time.Second, Most: 10 * time.Second,
		Observe: func(r check.Result) { progress(r.Got) },
	}.For(bounded, check.Check{ID: "lab", Title: "lab " + s.program.Lab, Ask: func(ctx context.Context) (check.Outcome, error) {
		report, err := s.run(ctx, call, progress)
		if err != nil {
			lastErr = err
			return check.Outcome{}, err
		}
		last, lastErr = report, nil
		if report.State == check.Passed {
			return check.Pass("all passed"), nil
		}
		return check.NotYet("all passed", waitingFor(report), ""), nil
	}})
	switch {
	case ctx.Err() != nil && err != nil:
		return last, context.Cause(ctx)
	case lastErr == nil, last.State != "" && errors.As(lastErr, new(*labrun.TimeoutError)):
		return last, nil
	}
	return last, lastErr // at the end it could not be asked, whatever it said before
}

func waitingFor(report labs.Report) string {
	for _, s := range report.Steps {
		if s.State == check.Passed {
			continue
		}
		for _, c := range s.Checks {
			if c.State != check.Passed {
				return fmt.Sprintf("step %d %s: %s", s.Step, s.State, c.Title)
			}
		}
		return fmt.Sprintf("step %d %s", s.Step, s.State)
	}
	return string(report.State)
}

// unstaged drops the stage's name from an error where the command has only that one.
func unstaged(err error) error {
	var staged *stage.Error
	if errors.As(err, &staged) {
		return staged.Err
	}
	return err
}
