package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/provision"
)

// FleetOptions are the arguments of up for several instances.
type FleetOptions struct {
	Learners []Learner
	Format   ui.Format
	Given    []string
	Cold     bool
	// Queue waits for room where there is too little for all.
	Queue bool
}

// member is what became of one instance of a fleet.
type member struct {
	factory.Outcome
	Labs    []labs.Report `json:"labs,omitempty"`
	Seconds float64       `json:"seconds"`
}

type fleetDocument struct {
	Schema    string      `json:"schema"`
	Instances []member    `json:"instances"`
	Timings   []ui.Timing `json:"timings"`
}

// RunFleet makes or finishes several instances, each with its labs. One that fails stops no other.
func RunFleet(ctx context.Context, f *factory.Factory, o FleetOptions) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	programs, err := locateAll(f)
	if err != nil {
		return err
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	ups, err := plan(ctx, f, driver, o, programs, progress)
	if err != nil {
		return err
	}
	specs, err := ready(ctx, f, ups, o, progress)
	if err != nil {
		return err
	}
	stack, err := f.Fleet(ctx, progress)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	took := map[string]time.Duration{}
	outcomes, fleetErr := stack.Up(ctx, specs, func(ctx context.Context, name string) error {
		start := time.Now()
		defer func() { mu.Lock(); defer mu.Unlock(); took[name] = time.Since(start) }()
		return ups[name].run(ctx)
	})
	progress.Close()
	if outcomes == nil && fleetErr != nil {
		return fleetErr
	}
	doc := fleetDocument{Schema: ui.Schema("fleet"), Timings: progress.Timings()}
	failed := 0
	for _, l := range o.Learners {
		m := member{Seconds: took[l.Name].Seconds()}
		if m.Outcome, err = f.Outcome(ctx, l.Name, outcomes[l.Name]); err != nil {
			return err
		}
		if m.Error != "" {
			failed++
		} else {
			m.Labs = ups[l.Name].reports
		}
		doc.Instances = append(doc.Instances, m)
	}
	if o.Format == ui.JSON {
		err = f.UI().JSON(doc)
	} else {
		printFleet(f.UI(), doc)
	}
	switch {
	case err != nil:
		return err
	case fleetErr != nil:
		return fleetErr
	case failed > 0:
		return &factory.SomeFailedError{What: "ready", Failed: failed, All: len(o.Learners)}
	}
	return nil
}

// plan checks, before anything is changed, what there is and whether there is room for the rest, and waits for that where it was asked to.
func plan(ctx context.Context, f *factory.Factory, driver provision.Driver, o FleetOptions, programs []labrun.Program, progress *ui.Progress) (map[string]*bringUp, error) {
	ups := map[string]*bringUp{}
	var specs []provision.Spec
	for _, l := range o.Learners {
		before, err := driver.Status(ctx, l.Name)
		if err != nil {
			return nil, fmt.Errorf("look for instance %s: %w", l.Name, err)
		}
		b := &bringUp{f: f, driver: driver, name: l.Name, before: before, progress: progress, prefix: l.Name, given: o.Given}
		for _, p := range programs {
			if len(l.Labs) == 0 || slices.Contains(l.Labs, p.Lab) {
				b.programs = append(b.programs, p)
			}
		}
		if b.exists() {
			b.spec = reshaped(f, before.Spec, o.Given)
			if err := provision.Conflict(before.Spec, b.spec); err != nil {
				return nil, err
			}
		} else {
			b.spec = shape(f, l.Name, o.Cold)
		}
		ups[l.Name] = b
		specs = append(specs, b.spec)
	}
	return ups, room(ctx, f, driver, specs, o.Queue, progress)
}

// exists says whether there is an instance that can be gone on with: what an interrupted up left is made anew.
func (b *bringUp) exists() bool {
	return b.before.Power != provision.Absent && b.before.Power != provision.Broken
}

// ready makes the image where it is missing, and checks the host for one new instance: what holds for one holds for all.
func ready(ctx context.Context, f *factory.Factory, ups map[string]*bringUp, o FleetOptions, progress *ui.Progress) ([]provision.Spec, error) {
	var specs []provision.Spec
	var fresh *provision.Spec
	for _, l := range o.Learners {
		b := ups[l.Name]
		if !b.exists() {
			if fresh == nil {
				spec, err := newSpec(ctx, f, l.Name, o.Cold, progress)
				if err != nil {
					return nil, err
				}
				fresh = &spec
			}
			b.spec = *fresh
			b.spec.Name = l.Name
		}
		specs = append(specs, b.spec)
	}
	return specs, nil
}

// room refuses what does not fit on this host beside what runs there, or waits until it does.
func room(ctx context.Context, f *factory.Factory, driver provision.Driver, specs []provision.Spec, queue bool, progress *ui.Progress) error {
	err := provision.Fits(ctx, driver, specs)
	var short *provision.ResourceError
	if !queue || !errors.As(err, &short) {
		return err
	}
	limit := f.Settings().Timeouts.Queue
	progress.Note("not enough room yet, waiting for it (up to %s): %v", limit, short)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &queueError{limit: limit, err: short})
	defer cancel()
	const first, most = time.Second, 15 * time.Second
	for pause := first; ; pause = min(2*pause, most) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
		if err := provision.Fits(ctx, driver, specs); !errors.As(err, &short) {
			return err
		}
	}
}

// queueError says that a wait for room was given up.
type queueError struct {
	limit time.Duration
	err   error
}

func (e *queueError) Error() string { return fmt.Sprintf("no room within %s: %v", e.limit, e.err) }
func (e *queueError) Unwrap() error { return e.err }

// Hint is the next action.
func (e *queueError) Hint() string { return cli.Hint(e.err) }

func printFleet(u *ui.UI, doc fleetDocument) {
	var table ui.Table
	table.Row("NAME", "STATE", "TOOK", "SSH PORT", "LABS", "NOTE")
	for _, m := range doc.Instances {
		state := ui.Cell{Text: "ready", Paint: u.Result.Good}
		if m.Error != "" {
			state = ui.Cell{Text: "not ready", Paint: u.Result.Bad}
		}
		var done []string
		for _, report := range m.Labs {
			done = append(done, fmt.Sprintf("%s %d/%d", report.Lab, report.Passed(), len(report.Steps)))
		}
		port := "-"
		if m.Instance.Spec.SSHPort != 0 {
			port = fmt.Sprint(m.Instance.Spec.SSHPort)
		}
		table.Cells(ui.Cell{Text: m.Name}, state, ui.Cell{Text: ui.Took(time.Duration(m.Seconds * float64(time.Second)))}, ui.Cell{Text: port},
			ui.Cell{Text: strings.Join(done, ", ")}, ui.Cell{Text: m.Error, Paint: u.Result.Dim})
	}
	table.Write(u.Out)
}

// checkLearners refuses names that cannot be, and names that come twice, all at once.
func checkLearners(learners []Learner) error {
	var bad []string
	seen := map[string]bool{}
	for _, l := range learners {
		if err := layout.CheckName("instance", l.Name); err != nil {
			bad = append(bad, l.At+err.Error())
		} else if seen[l.Name] {
			bad = append(bad, fmt.Sprintf("%sthe name %s comes twice", l.At, l.Name))
		}
		seen[l.Name] = true
		for _, lab := range l.Labs {
			if _, err := labrun.Find(lab); err != nil {
				bad = append(bad, l.At+err.Error())
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return &cli.UsageError{Msg: strings.Join(bad, "\n"), Fix: "nothing was changed; correct them and run the same command again"}
}
