package lab

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// NewSolve is the command solve.
func NewSolve(f *factory.Factory) *cobra.Command {
	var t target
	var step, to int
	cmd := &cobra.Command{
		Use:   "solve --lab LAB",
		Short: "Apply the reference solution of a lab's steps",
		Long: `Apply the reference solution of a lab's steps, the way the lab's text teaches it, and verify each. Steps that are done
already stay as they are. What it does is told on the way.`,
		Example: `  labctl solve --lab ci --step 1
  labctl solve --lab ci --to 4
  labctl solve --lab ci -i alice`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("step") && cmd.Flags().Changed("to") {
				return cli.Misused(cmd, "--step is one step and --to all steps up to one: use only one of them")
			}
			known, err := t.find(cmd, map[string]int{"step": step, "to": to})
			if err != nil {
				return err
			}
			return change(cmd.Context(), f, t, known, labrun.Call{Action: "solve", Step: step, To: to}, nil)
		},
	}
	t.flags(f, cmd)
	stepFlag(cmd, &step, "step", "solve only step `N`")
	stepFlag(cmd, &to, "to", "solve all steps up to `N`")
	factory.Setting(cmd, "timeouts.solve", "timeout", "TIME", "longest wait for all of it")
	return cmd
}

// Anew makes a whole instance anew; see up.Anew.
type Anew func(ctx context.Context, instance string, keep, yes bool, format ui.Format) error

// NewReset is the command reset. anew is what --vm does.
func NewReset(f *factory.Factory, anew Anew) *cobra.Command {
	var t target
	var all, vm, keep, yes bool
	cmd := &cobra.Command{
		Use:   "reset --lab LAB | --vm",
		Short: "Put a lab, or a whole instance, back to its start",
		Long: `Put one lab back to its start, in the same instance: all work on it is removed, other labs stay as they are. It ends by
proving that nothing of the lab is left, and fails where something is. It may be run again at any time.

With --vm the whole instance is made anew, as up would make it, of the same shape and on the same port. The old one is kept until the
new one is ready, and put back where it does not get there; then it is removed, or with --keep stays as a stopped instance.`,
		Example: `  labctl reset --lab ci
  labctl reset --lab ci -i alice --yes
  labctl reset --lab ci --all
  labctl reset --vm -i alice --keep`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case t.lab == "" && !vm:
				return &cli.UsageError{Msg: "what is to be reset?", Fix: "one lab: `labctl reset --lab ci`; the whole instance, with all work in it: `labctl reset --vm`"}
			case t.lab != "" && vm:
				return cli.Misused(cmd, "--lab is one lab and --vm the whole instance: use only one of them")
			case keep && !vm:
				return cli.Misused(cmd, "--keep goes with --vm")
			case vm && cmd.Flags().Changed("timeout"):
				return cli.Misused(cmd, "--timeout goes with --lab; with --vm the setting timeouts.boot counts")
			case all && (vm || t.instance != ""):
				return cli.Misused(cmd, "--all is for one lab in every instance: it goes with --lab alone")
			case vm:
				return anew(cmd.Context(), t.instance, keep, yes, t.format)
			}
			known, err := t.find(cmd, nil)
			if err != nil {
				return err
			}
			if all {
				return resetAll(cmd.Context(), f, known, yes, t.format)
			}
			return change(cmd.Context(), f, t, known, labrun.Call{Action: "reset"}, func(st provision.Status) error {
				return f.Confirm(cmd.Context(), yes, fmt.Sprintf("Remove all work on lab %s in %s?", known.ID, st.Name))
			})
		},
	}
	t.flags(f, cmd)
	cmd.Flags().BoolVar(&all, "all", false, "with --lab: in every instance")
	cmd.Flags().BoolVar(&vm, "vm", false, "make the whole instance anew")
	cmd.Flags().BoolVar(&keep, "keep", false, "with --vm: keep the old one as a stopped instance, with its memory")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	factory.Setting(cmd, "timeouts.solve", "timeout", "TIME", "longest wait")
	return cmd
}

func resetAll(ctx context.Context, f *factory.Factory, known labrun.Known, yes bool, format ui.Format) error {
	doc, err := askAll(ctx, f, known, labrun.Call{Action: "reset", Timeout: f.Settings().Timeouts.Solve}, "", func(count int) error {
		return f.Confirm(ctx, yes, fmt.Sprintf("Remove all work on lab %s in all %d instances?", known.ID, count))
	})
	if err != nil {
		return err
	}
	return showAll(ctx, f, known, doc, format)
}

// change runs a call that changes the guest and tells what it does on the way.
func change(ctx context.Context, f *factory.Factory, t target, known labrun.Known, call labrun.Call, ask func(provision.Status) error) error {
	s, err := open(ctx, f, known, t.instance)
	if err != nil {
		return err
	}
	defer s.close()
	if ask != nil {
		if err := ask(s.status); err != nil {
			return err
		}
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	log := &run.Lines{Each: func(line string) { progress.Note("  %s", f.UI().Notes.Dim(line)) }}
	call.Log, call.Timeout = log, f.Settings().Timeouts.Solve
	var report labs.Report
	err = stage.Run(ctx, &report, progress.Sink(""), stage.Stage[labs.Report]{
		Name: call.Action + " lab " + known.ID + " in " + s.status.Name,
		Run: func(ctx context.Context, report *labs.Report, detail func(string)) (err error) {
			*report, err = s.run(ctx, call, detail)
			return err
		},
	})
	log.Flush()
	if err != nil {
		return stage.Bare(err)
	}
	progress.Close()
	return show(f, s.status.Name, t.format, report)
}
