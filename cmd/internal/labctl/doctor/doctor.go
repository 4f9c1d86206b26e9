// Package doctor has the command doctor: is everything in order on this host and, on request, in a guest.
package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// Options are the arguments of doctor.
type Options struct {
	Guest  string
	Fix    bool
	Format ui.Format
}

// New is the command doctor.
func New(f *factory.Factory) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host, the images and, on request, a guest",
		Long: `Check that this host can build images and run instances, that no image is damaged, and that nothing was left over by
something that was killed. With --guest the guest contract is checked as well: what every lab stands on.

With --fix what was left over is removed: processes and files that no instance owns. An instance whose making anew was
interrupted is put back. No disk that was ever handed out is touched.`,
		Example: `  labctl doctor
  labctl doctor --guest alice
  labctl doctor --fix`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f, o) },
	}
	cmd.Flags().StringVar(&o.Guest, "guest", "", "check the guest of instance `NAME` as well")
	_ = cmd.RegisterFlagCompletionFunc("guest", f.CompleteInstances)
	cmd.Flags().BoolVar(&o.Fix, "fix", false, "remove what was left over")
	ui.AddFormat(cmd, &o.Format)
	return cmd
}

// group is the results on one subject.
type group struct {
	Name   string         `json:"name"`
	Checks []check.Result `json:"checks"`
}

type document struct {
	Schema string      `json:"schema"`
	State  check.State `json:"state"`
	Groups []group     `json:"groups"`
	// Removed is what --fix removed.
	Removed []provision.Leftover `json:"removed,omitempty"`
}

func run(ctx context.Context, f *factory.Factory, o Options) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	if o.Guest != "" {
		if _, err := f.Pick(ctx, o.Guest); err != nil {
			return err
		}
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	e := &examination{f: f, driver: driver, o: o, doc: document{Schema: ui.Schema("doctor")}}
	stages := []stage.Stage[examination]{
		{Name: "host", Run: host},
		{Name: "image build", Run: imageBuild},
		{Name: "images", Run: images},
		{Name: "instances", Run: instances},
	}
	if o.Guest != "" {
		stages = append(stages, stage.Stage[examination]{Name: "guest " + o.Guest, Run: guest})
	}
	if err := stage.Run(ctx, e, progress.Sink(""), stages...); err != nil {
		return err
	}
	progress.Close()

	var asked []check.Result
	for _, g := range e.doc.Groups {
		for _, r := range g.Checks {
			if r.State != check.Skipped {
				asked = append(asked, r)
			}
		}
	}
	e.doc.State = check.Sum(asked)
	if o.Format == ui.JSON {
		if err := f.UI().JSON(e.doc); err != nil {
			return err
		}
		return cli.Exit(verdict.Code(e.doc.State))
	}
	u := f.UI()
	for _, g := range e.doc.Groups {
		u.Print("%s", u.Result.Bold(g.Name))
		verdict.Checks(f.Out, u.Result, verdict.In("en"), g.Checks)
	}
	for _, l := range e.doc.Removed {
		u.Print("removed %s", describe(l))
	}
	if e.doc.State == check.Passed {
		u.Print("nothing to complain about")
	}
	return cli.Exit(verdict.Code(e.doc.State))
}

// examination is the state of one doctor.
type examination struct {
	f      *factory.Factory
	driver provision.Driver
	o      Options
	doc    document
}

func (e *examination) add(name string, results []check.Result) {
	e.doc.Groups = append(e.doc.Groups, group{name, results})
}

func host(ctx context.Context, e *examination, _ func(string)) error {
	e.add("host", e.driver.Preflight(ctx, provision.Spec{}))
	return nil
}

func imageBuild(ctx context.Context, e *examination, _ func(string)) error {
	builder, err := e.f.Builder()
	if err != nil {
		e.add("image build", []check.Result{broken("builder", "image builder", err)})
		return nil
	}
	b := factory.Build{Name: e.f.Settings().Image.Name}
	results := builder.Preflight(ctx, b)
	results = append(results, e.leftovers("build-leftovers", "leftovers of builds",
		func() ([]provision.Leftover, error) { return builder.Leftovers(b) },
		func(left []provision.Leftover) error { return builder.Sweep(ctx, b, left) })...)
	e.add("image build", results)
	return nil
}

// leftovers looks for what was left over, and removes it where that was asked for.
func (e *examination) leftovers(id, title string, find func() ([]provision.Leftover, error), sweep func([]provision.Leftover) error) []check.Result {
	left, err := find()
	if err == nil && e.o.Fix && len(left) > 0 {
		if err = sweep(left); err == nil {
			e.doc.Removed = append(e.doc.Removed, left...)
			left, err = find()
		}
	}
	if err != nil {
		return []check.Result{broken(id, title, err)}
	}
	if len(left) == 0 {
		return []check.Result{{ID: id, Title: title, State: check.Passed, Got: "none"}}
	}
	var results []check.Result
	for _, l := range left {
		results = append(results, check.Result{ID: id, Title: title, State: check.Failed, Got: describe(l), Hint: "`labctl doctor --fix` sees to it"})
	}
	return results
}

// broken is a question that could not be asked.
func broken(id, title string, err error) check.Result {
	return check.Result{ID: id, Title: title, State: check.Error, Got: err.Error(), Hint: cli.Hint(err)}
}

func images(ctx context.Context, e *examination, progress func(string)) error {
	all, bad := e.f.Images().List(ctx)
	if len(all)+len(bad) == 0 {
		e.add("images", []check.Result{{ID: "images", Title: "golden images", State: check.Skipped, Got: "there is none yet; `labctl up` builds it"}})
		return nil
	}
	var results []check.Result
	for _, err := range bad {
		results = append(results, check.Result{ID: "image", Title: "image", State: check.Failed, Got: err.Error(), Hint: cli.Hint(err)})
	}
	for _, img := range all {
		r := check.Result{ID: "image-" + img.Metadata.Name, Title: "image " + img.Metadata.Name, State: check.Passed, Got: "whole"}
		if err := e.f.Images().Verify(ctx, img, progress); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			r.State, r.Got, r.Hint = check.Failed, err.Error(), cli.Hint(err)
		}
		results = append(results, r)
	}
	e.add("images", results)
	return nil
}

func instances(ctx context.Context, e *examination, _ func(string)) error {
	all, err := e.driver.List(ctx)
	if err != nil {
		e.add("instances", []check.Result{broken("instances", "instances", err)})
		return nil
	}
	var results []check.Result
	for _, st := range all {
		r := check.Result{ID: "instance-" + st.Name, Title: "instance " + st.Name, State: check.Passed, Got: string(st.Power)}
		if st.Power == provision.Broken {
			err := &provision.BrokenError{Name: st.Name, Reason: st.Reason}
			r.State, r.Got, r.Hint = check.Failed, st.Reason, err.Hint()
		}
		results = append(results, r)
	}
	results = append(results, e.leftovers("leftovers", "leftovers",
		func() ([]provision.Leftover, error) { return e.driver.Leftovers(ctx) },
		func(left []provision.Leftover) error { return e.driver.Sweep(ctx, left) })...)
	e.add("instances", results)
	return nil
}

func describe(l provision.Leftover) string {
	s := l.Kind
	if l.PID != 0 {
		s += fmt.Sprintf(" %d", l.PID)
	}
	if l.Path != "" {
		s += " " + l.Path
	}
	return s + " (" + l.Why + ")"
}

// guestTime bounds the questions to a guest; an emulated one takes half a minute.
const guestTime = 5 * time.Minute

func guest(ctx context.Context, e *examination, progress func(string)) error {
	name := "guest " + e.o.Guest
	status, err := e.f.Pick(ctx, e.o.Guest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, guestTime, fmt.Errorf("the guest gave no answer within %s", guestTime))
	defer cancel()
	conn, err := e.f.Connect(ctx, status)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		e.add(name, []check.Result{broken("ssh", "SSH", err)})
		return nil
	}
	defer func() { _ = conn.Close() }()
	results := []check.Result{{ID: "ssh", Title: "SSH", State: check.Passed, Got: "answers with the pinned key"}}
	for _, c := range e.f.Parts.GuestChecks(conn, true) {
		progress(c.Title)
		results = append(results, c.Run(ctx))
	}
	e.add(name, results)
	return nil
}
