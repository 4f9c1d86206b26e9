// Package session has the commands of an instance's life: status, ssh, stop, start, down.
package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/boot"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
)

// oneInstance is for commands with an instance as their only argument, implied where there is only one.
func oneInstance(f *factory.Factory, cmd *cobra.Command, run func(ctx context.Context, st provision.Status) error) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return cli.OneArg("the name of an instance")(cmd, args)
	}
	cmd.ValidArgsFunction = f.CompleteOneInstance
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		st, err := f.Pick(cmd.Context(), name)
		if err != nil {
			return err
		}
		return run(cmd.Context(), st)
	}
	return cmd
}

// powerDocument is the result of start, stop and down as JSON.
type powerDocument struct {
	Schema   string           `json:"schema"`
	Instance provision.Status `json:"instance"`
	Timings  []ui.Timing      `json:"timings"`
}

// NewStop is the command stop.
func NewStop(f *factory.Factory) *cobra.Command {
	var cold bool
	var format ui.Format
	cmd := oneInstance(f, &cobra.Command{
		Use:   "stop [NAME]",
		Short: "Stop an instance, keeping its work and where it was",
		Long: `Stop an instance. Its memory is kept in a file, so that start lets it go on where it was, with every program that ran.

With --cold it is powered off instead: its guest is asked first, and ended where it does not answer. Either way the disk and the
work on it stay.`,
		Example: "  labctl stop\n  labctl stop alice --cold",
	}, func(ctx context.Context, st provision.Status) error {
		if st.Power == provision.Broken {
			return &provision.BrokenError{Name: st.Name, Reason: st.Reason}
		}
		return changePower(ctx, f, st, "stop", "stopped", format, func(ctx context.Context, driver provision.Driver, progress func(string)) error {
			if s, ok := driver.(provision.Suspender); ok && !cold {
				return s.Suspend(ctx, st.Name, progress)
			}
			return driver.Stop(ctx, st.Name)
		})
	})
	cmd.Flags().BoolVar(&cold, "cold", false, "power off instead of keeping the memory")
	ui.AddFormat(cmd, &format)
	return cmd
}

// NewStart is the command start.
func NewStart(f *factory.Factory) *cobra.Command {
	var format ui.Format
	cmd := oneInstance(f, &cobra.Command{
		Use:     "start [NAME]",
		Short:   "Start an instance that was stopped",
		Long:    "Start an instance and wait until its platform is ready.",
		Example: "  labctl start\n  labctl start alice --timeout 20m",
	}, func(ctx context.Context, st provision.Status) error {
		if st.Power == provision.Broken {
			return &provision.BrokenError{Name: st.Name, Reason: st.Reason}
		}
		return changePower(ctx, f, st, "start", "ready", format, func(ctx context.Context, driver provision.Driver, progress func(string)) error {
			if _, err := boot.Start(ctx, f, driver, st.Name, progress); err != nil {
				return err
			}
			st, err := driver.Status(ctx, st.Name)
			if err != nil {
				return err
			}
			guest, err := f.Connect(ctx, st)
			if err != nil {
				return err
			}
			defer func() { _ = guest.Close() }()
			_, err = boot.WaitReady(ctx, f, driver, st.Name, guest, progress)
			return err
		})
	})
	factory.Setting(cmd, "accelerator", "accelerator", "NAME", "auto, kvm or tcg")
	factory.Setting(cmd, "timeouts.boot", "timeout", "TIME", "longest wait for the instance to become ready")
	ui.AddFormat(cmd, &format)
	return cmd
}

// NewDown is the command down.
func NewDown(f *factory.Factory) *cobra.Command {
	var yes bool
	var format ui.Format
	cmd := &cobra.Command{
		Use:               "down NAME",
		Short:             "Remove an instance with all work in it",
		Long:              "Stop an instance and remove its disk, with all work in it. This cannot be undone.",
		Example:           "  labctl down alice\n  labctl down alice --yes",
		Args:              cli.OneArg("the name of an instance"),
		ValidArgsFunction: f.CompleteOneInstance,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			st, err := f.Pick(ctx, args[0])
			if none := (*provision.NotFoundError)(nil); errors.As(err, &none) {
				return finishDown(ctx, f, args[0], err)
			}
			if err != nil {
				return err
			}
			if err := f.Confirm(ctx, yes, fmt.Sprintf("Remove instance %s (%s) and all work in it?", st.Name, st.Power)); err != nil {
				return err
			}
			return changePower(ctx, f, st, "remove", "gone", format, func(ctx context.Context, driver provision.Driver, _ func(string)) error {
				return driver.Delete(ctx, st.Name)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	ui.AddFormat(cmd, &format)
	return cmd
}

// finishDown removes what a removal that was cut short left of an instance; without any, the instance is not there.
func finishDown(ctx context.Context, f *factory.Factory, name string, none error) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	all, err := driver.Leftovers(ctx)
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(all, func(l provision.Leftover) bool {
		base := filepath.Base(l.Path)
		own := base == name || layout.IsRemoved(base) && layout.RemovedName(base) == name || l.Path == f.Home().Lock("instance", name)
		return !own
	})
	if len(mine) == 0 {
		return none
	}
	if err := driver.Sweep(ctx, mine); err != nil {
		return err
	}
	f.UI().Print("%s is gone: its removal had been interrupted", name)
	return nil
}

func changePower(ctx context.Context, f *factory.Factory, st provision.Status, verb, result string, format ui.Format,
	do func(ctx context.Context, driver provision.Driver, progress func(string)) error) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	err = stage.Run(ctx, &struct{}{}, progress.Sink(""), stage.Stage[struct{}]{
		Name: verb + " " + st.Name,
		Run:  func(ctx context.Context, _ *struct{}, detail func(string)) error { return do(ctx, driver, detail) },
	})
	if err != nil {
		return err
	}
	progress.Close()
	after, err := driver.Status(ctx, st.Name)
	if err != nil {
		return fmt.Errorf("look at instance %s: %w", st.Name, err)
	}
	if format == ui.JSON {
		return f.UI().JSON(powerDocument{Schema: ui.Schema(verb), Instance: after, Timings: progress.Timings()})
	}
	if after.Power == provision.Running {
		f.UI().Print("%s is %s: %s", st.Name, result, factory.Shape(after))
		return nil
	}
	if after.Suspended {
		result += "; `labctl start` goes on where it was"
	}
	f.UI().Print("%s is %s", st.Name, result)
	return nil
}
