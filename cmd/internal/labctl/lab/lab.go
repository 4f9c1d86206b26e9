// Package lab has the commands on labs: lab list, verify, solve, reset.
package lab

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/provision"
)

// New is the command lab with its children; more are those of other packages.
func New(f *factory.Factory, more ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "List the labs, begin and prove one of your own"}
	var format ui.Format
	list := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the labs", Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if format == ui.JSON {
				return f.UI().JSON(struct {
					Schema string         `json:"schema"`
					Labs   []labrun.Known `json:"labs"`
				}{ui.Schema("labs"), labrun.All()})
			}
			var table ui.Table
			table.Row("LAB", "STEPS", "TITLE")
			for _, lab := range labrun.All() {
				table.Row(lab.ID, fmt.Sprint(lab.Steps), lab.Title)
			}
			table.Write(f.Out)
			return nil
		},
	}
	ui.AddFormat(list, &format)
	cmd.AddCommand(list)
	cmd.AddCommand(more...)
	return cmd
}

// target is what verify, solve and reset share: a lab in an instance.
type target struct {
	lab, instance string
	format        ui.Format
}

func (t *target) flags(f *factory.Factory, cmd *cobra.Command, more ...ui.Format) {
	cmd.Flags().StringVar(&t.lab, "lab", "", "which `LAB`, as the list of labs names it")
	_ = cmd.RegisterFlagCompletionFunc("lab", labrun.CompleteLabs)
	factory.LanguageFlag(cmd)
	f.InstanceFlag(cmd, &t.instance)
	ui.AddFormat(cmd, &t.format, more...)
}

// stepFlag adds a flag whose value is a step's number.
func stepFlag(cmd *cobra.Command, n *int, name, usage string) {
	cmd.Flags().IntVar(n, name, 0, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, labrun.CompleteSteps)
}

// find checks the lab and the step flags before anything is contacted.
func (t *target) find(cmd *cobra.Command, steps map[string]int) (labrun.Known, error) {
	known, err := labrun.Find(t.lab)
	if err != nil {
		return known, err
	}
	for name, n := range steps {
		if !cmd.Flags().Changed(name) {
			continue
		}
		if err := known.CheckStep(name, n); err != nil {
			return known, err
		}
	}
	return known, nil
}

// session is a lab's program and the instance that it is for.
type session struct {
	f       *factory.Factory
	program labrun.Program
	status  provision.Status
	guest   factory.Guest // nil while there is no connection
}

// open finds the lab's program and a running instance; the guest is not contacted yet.
func open(ctx context.Context, f *factory.Factory, known labrun.Known, instance string) (*session, error) {
	program, err := labrun.Locate(f.Settings().GuestDir, known)
	if err != nil {
		return nil, err
	}
	status, err := f.Pick(ctx, instance)
	if err != nil {
		return nil, err
	}
	if _, err := f.Endpoint(ctx, status); err != nil {
		return nil, err
	}
	return &session{f: f, program: program, status: status}, nil
}

// run asks the lab's program, over one connection for all calls. After an error the next call connects again.
func (s *session) run(ctx context.Context, call labrun.Call, progress func(string)) (labs.Report, error) {
	if s.guest == nil {
		guest, err := s.f.Connect(ctx, s.status)
		if err != nil {
			return labs.Report{}, err
		}
		s.guest = guest
	}
	call.Language = s.f.Language()
	report, err := s.program.Run(ctx, s.guest, call, progress)
	if err != nil {
		s.close()
		return report, err
	}
	if err := labrun.Note(s.f.Home().Instance(s.status.Name), report); err != nil {
		progress(err.Error()) // the verdict is what was asked for
	}
	return report, nil
}

func (s *session) close() {
	if s.guest != nil {
		_ = s.guest.Close() // a guest that hung up first is no fault
		s.guest = nil
	}
}

// document is a lab report as JSON.
type document struct {
	Schema   string      `json:"schema"`
	Instance string      `json:"instance"`
	Report   labs.Report `json:"report"`
}

// show writes a report and returns its exit code as an error.
func show(f *factory.Factory, instance string, format ui.Format, report labs.Report) error {
	if format == ui.JSON {
		if err := f.UI().JSON(document{Schema: ui.Schema(report.Action), Instance: instance, Report: report}); err != nil {
			return err
		}
	} else {
		verdict.Report(f.Out, f.UI().Result, verdict.In(f.Language()), report)
	}
	return cli.Exit(verdict.Code(report.State))
}
