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

// change is what a command does to the power of an instance.
type change struct {
	// verb names the command, and result what an instance is after it.
	verb, result string
	// wants says which instances --all is for; nil means all.
	wants func(provision.Status) bool
	do    func(ctx context.Context, driver provision.Driver, st provision.Status, progress func(string)) error
}

// oneInstance is for commands with an instance as their only argument, implied where there is only one, or with --all.
func oneInstance(f *factory.Factory, cmd *cobra.Command, c change) *cobra.Command {
	var all bool
	var format ui.Format
	cmd.Flags().BoolVar(&all, "all", false, c.verb+" every instance")
	ui.AddFormat(cmd, &format)
	cmd.Args = cli.OptionalArg("the name of an instance")
	cmd.ValidArgsFunction = f.CompleteOneInstance
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		if all && name != "" {
			return cli.Misused(cmd, "--all is for every instance, so that none can be named beside it")
		}
		if all {
			return changeAll(cmd.Context(), f, c, format)
		}
		st, err := f.Pick(cmd.Context(), name)
		if err != nil {
			return err
		}
		if st.Power == provision.Broken {
			return &provision.BrokenError{Name: st.Name, Reason: st.Reason}
		}
		return changePower(cmd.Context(), f, st, c, format)
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
	cmd := oneInstance(f, &cobra.Command{
		Use:   "stop [NAME | --all]",
		Short: "Stop an instance, keeping its work and where it was",
		Long: `Stop an instance. Its memory is kept in a file, so that start lets it go on where it was, with every program that ran.

With --cold it is powered off instead: its guest is asked first, and ended where it does not answer. Either way the disk and the
work on it stay.`,
		Example: "  labctl stop\n  labctl stop alice --cold\n  labctl stop --all",
	}, change{
		verb: "stop", result: "stopped", wants: func(st provision.Status) bool { return st.Power == provision.Running },
		do: func(ctx context.Context, driver provision.Driver, st provision.Status, progress func(string)) error {
			if s, ok := driver.(provision.Suspender); ok && !cold {
				return s.Suspend(ctx, st.Name, progress)
			}
			return driver.Stop(ctx, st.Name)
		},
	})
	cmd.Flags().BoolVar(&cold, "cold", false, "power off instead of keeping the memory")
	return cmd
}

// NewStart is the command start.
func NewStart(f *factory.Factory) *cobra.Command {
	cmd := oneInstance(f, &cobra.Command{
		Use:     "start [NAME | --all]",
		Short:   "Start an instance that was stopped",
		Long:    "Start an instance and wait until its platform is ready.",
		Example: "  labctl start\n  labctl start alice --timeout 20m\n  labctl start --all",
	}, change{
		verb: "start", result: "ready", wants: func(st provision.Status) bool { return st.Power == provision.Stopped },
		do: func(ctx context.Context, driver provision.Driver, st provision.Status, progress func(string)) error {
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
		},
	})
	factory.Setting(cmd, "accelerator", "accelerator", "NAME", "auto, kvm or tcg")
	factory.Setting(cmd, "timeouts.boot", "timeout", "TIME", "longest wait for the instance to become ready")
	return cmd
}

// NewDown is the command down.
func NewDown(f *factory.Factory) *cobra.Command {
	var all, yes bool
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "down NAME | --all",
		Short: "Remove an instance with all work in it",
		Long: `Stop an instance and remove its disk, with all work in it. This cannot be undone.

With --all every instance goes, every spare, and what killed commands left over; it ends by looking whether anything is left.`,
		Example: "  labctl down alice\n  labctl down alice --yes\n  labctl down --all",
		Args: func(cmd *cobra.Command, args []string) error {
			if all && len(args) > 0 {
				return cli.Misused(cmd, "--all is for every instance, so that none can be named beside it")
			}
			if all {
				return nil
			}
			return cli.OneArg("the name of an instance")(cmd, args)
		},
		ValidArgsFunction: f.CompleteOneInstance,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if all {
				return downAll(ctx, f, yes, format)
			}
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
			return changePower(ctx, f, st, removal, format)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove every instance")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	ui.AddFormat(cmd, &format)
	return cmd
}

var removal = change{verb: "remove", result: "gone", do: func(ctx context.Context, driver provision.Driver, st provision.Status, _ func(string)) error {
	return driver.Delete(ctx, st.Name)
}}

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

// run does it to one instance, as one stage.
func (c change) run(ctx context.Context, driver provision.Driver, st provision.Status, progress *ui.Progress) error {
	return stage.One(ctx, progress.Sink(""), c.verb+" "+st.Name, func(ctx context.Context, detail func(string)) error { return c.do(ctx, driver, st, detail) })
}

func changePower(ctx context.Context, f *factory.Factory, st provision.Status, c change, format ui.Format) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	if err := c.run(ctx, driver, st, progress); err != nil {
		return err
	}
	progress.Close()
	after, err := driver.Status(ctx, st.Name)
	if err != nil {
		return fmt.Errorf("look at instance %s: %w", st.Name, err)
	}
	if format == ui.JSON {
		return f.UI().JSON(powerDocument{Schema: ui.Schema(c.verb), Instance: after, Timings: progress.Timings()})
	}
	result := c.result
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
