package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/labs"
)

// VerifyOptions are the arguments of verify.
type VerifyOptions struct {
	target
	Known labrun.Known
	Step  int
	Wait  bool
	All   bool
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

With --wait, what is pending is checked again until it has settled or the time is up. With --all the work in every instance is checked,
and -o csv gives a line for each, with the part of the steps that are passed as its score.`,
		Example: `  labctl verify --lab ci
  labctl verify --lab ci --step 3 --wait
  labctl verify --lab ci -i alice -o json
  labctl verify --lab ci --all -o csv`,
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
			switch {
			case o.All && o.instance != "":
				return cli.Misused(cmd, "--all is for every instance, so that none can be named beside it")
			case !o.All && o.format == ui.CSV:
				return cli.Misused(cmd, "-o csv goes with --all")
			case o.All:
				doc, err := askAll(cmd.Context(), f, o.Known, o.call(limit), "", nil)
				if err != nil {
					return err
				}
				return showAll(cmd.Context(), f, o.Known, doc, o.format)
			}
			return verify(cmd.Context(), f, o, limit)
		},
	}
	o.flags(f, cmd, ui.CSV)
	cmd.Flags().BoolVar(&o.All, "all", false, "check the work in every instance")
	stepFlag(cmd, &o.Step, "step", "check only step `N`")
	cmd.Flags().BoolVar(&o.Wait, "wait", false, "check again while something is still moving")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "longest time for a check, and with --wait to wait: a `TIME` (default: the setting timeouts.verify)")
	return cmd
}

func (o VerifyOptions) call(limit time.Duration) labrun.Call {
	call := labrun.Call{Action: "verify", Step: o.Step, Timeout: limit}
	if o.Wait {
		call.Wait = limit
	}
	return call
}

func verify(ctx context.Context, f *factory.Factory, o VerifyOptions, limit time.Duration) error {
	s, err := open(ctx, f, o.Known, o.instance)
	if err != nil {
		return err
	}
	defer s.close()
	progress := f.UI().NewProgress()
	defer progress.Close()
	call := o.call(limit)
	var report labs.Report
	err = stage.Run(ctx, &report, progress.Sink(""), stage.Stage[labs.Report]{
		Name: "verify lab " + o.Known.ID + " in " + s.status.Name,
		Run: func(ctx context.Context, report *labs.Report, detail func(string)) (err error) {
			*report, err = s.run(ctx, call, detail)
			return err
		},
	})
	if err != nil {
		return stage.Bare(err)
	}
	progress.Close()
	return show(f, s.status.Name, o.format, report)
}
