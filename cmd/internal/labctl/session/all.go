package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/provision"
)

// allDocument is the result of stop, start and down with --all as JSON.
type allDocument struct {
	Schema    string            `json:"schema"`
	Instances []factory.Outcome `json:"instances"`
	// Leftovers are what down --all could not remove.
	Leftovers []provision.Leftover `json:"leftovers,omitempty"`
	Timings   []ui.Timing          `json:"timings"`
}

// changeAll does it to every instance that it is for, some at once.
func changeAll(ctx context.Context, f *factory.Factory, c change, format ui.Format) error {
	driver, byName, names, err := list(ctx, f, c.wants)
	if err != nil {
		return err
	}
	if c.verb == "start" {
		if err := fits(ctx, driver, byName, names); err != nil {
			return err
		}
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	failed := f.Each(ctx, names, func(ctx context.Context, name string) error {
		if st := byName[name]; st.Power == provision.Broken {
			return &provision.BrokenError{Name: name, Reason: st.Reason}
		}
		return c.run(ctx, driver, byName[name], progress)
	})
	progress.Close()
	return showAll(ctx, f, c, names, failed, nil, progress, format)
}

// fits refuses before any is begun what has no room together.
func fits(ctx context.Context, driver provision.Driver, byName map[string]provision.Status, names []string) error {
	var specs []provision.Spec
	for _, name := range names {
		if byName[name].Power != provision.Broken {
			specs = append(specs, byName[name].Spec)
		}
	}
	return provision.Fits(ctx, driver, specs)
}

// list are the instances that are wanted; nil wants all.
func list(ctx context.Context, f *factory.Factory, wants func(provision.Status) bool) (provision.Driver, map[string]provision.Status, []string, error) {
	driver, err := f.Driver()
	if err != nil {
		return nil, nil, nil, err
	}
	all, err := driver.List(ctx)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list the instances: %w", err)
	}
	byName := map[string]provision.Status{}
	names := []string{}
	for _, st := range all {
		if wants == nil || wants(st) || st.Power == provision.Broken {
			byName[st.Name] = st
			names = append(names, st.Name)
		}
	}
	return driver, byName, names, nil
}

// downAll removes every instance, then what was left over, and looks whether anything is left.
func downAll(ctx context.Context, f *factory.Factory, yes bool, format ui.Format) error {
	driver, byName, names, err := list(ctx, f, nil)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if err := f.Confirm(ctx, yes, fmt.Sprintf("Remove all instances (%d) and all work in them?", len(names))); err != nil {
			return err
		}
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	failed, err := removeAll(ctx, f, names, func(ctx context.Context, name string) error {
		return removal.run(ctx, driver, byName[name], progress)
	}, progress)
	if err != nil {
		return err
	}
	if err := removeSpares(ctx, driver, progress); err != nil {
		return err
	}
	left, err := driver.Leftovers(ctx)
	if err == nil && len(left) > 0 && ctx.Err() == nil {
		if err = driver.Sweep(ctx, left); err == nil {
			left, err = driver.Leftovers(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("look for what is left over: %w", err)
	}
	progress.Close()
	return showAll(ctx, f, removal, names, failed, left, progress, format)
}

// removeSpares removes what stands ready and has nobody's work in it.
func removeSpares(ctx context.Context, driver provision.Driver, progress *ui.Progress) error {
	if ctx.Err() != nil {
		return nil
	}
	spares, err := provision.Spares(ctx, driver)
	if err != nil {
		return err
	}
	for _, st := range spares {
		if err := removal.run(ctx, driver, st, progress); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes instances by way of the fleet's stack where there is one, so that it knows. A stack that cannot be worked with keeps no
// instance alive: they are removed without it.
func removeAll(ctx context.Context, f *factory.Factory, names []string, remove func(context.Context, string) error, progress *ui.Progress) (map[string]error, error) {
	if len(names) > 0 && f.Home().HasFleet() {
		fleet, err := f.Fleet(ctx, progress)
		var outcomes map[string]error
		if err == nil {
			outcomes, err = fleet.Down(ctx, names, remove)
		}
		if err == nil || ctx.Err() != nil && outcomes != nil {
			return outcomes, nil // after Ctrl-C showAll says so
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		progress.Note("the fleet's stack cannot be used (%v); the instances are removed without it", err)
	}
	return f.Each(ctx, names, remove), nil
}

func showAll(ctx context.Context, f *factory.Factory, c change, names []string, failed map[string]error, left []provision.Leftover, progress *ui.Progress, format ui.Format) error {
	doc := allDocument{Schema: ui.Schema(c.verb + "-all"), Instances: []factory.Outcome{}, Leftovers: left, Timings: progress.Timings()}
	bad := 0
	for _, name := range names {
		o, err := f.Outcome(ctx, name, failed[name])
		if err != nil {
			return err
		}
		if o.Error != "" {
			bad++
		}
		doc.Instances = append(doc.Instances, o)
	}
	u := f.UI()
	if format == ui.JSON {
		if err := u.JSON(doc); err != nil {
			return err
		}
	} else {
		printAll(u, c, doc)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bad > 0:
		return &factory.SomeFailedError{What: c.result, Failed: bad, All: len(names)}
	case len(left) > 0:
		return errors.New("something is left over; `labctl doctor` names it")
	}
	return nil
}

func printAll(u *ui.UI, c change, doc allDocument) {
	if len(doc.Instances) == 0 {
		u.Print("no instance to %s", c.verb)
	}
	var table ui.Table
	for _, o := range doc.Instances {
		state := ui.Cell{Text: c.result, Paint: u.Result.Good}
		if o.Error != "" {
			state = ui.Cell{Text: "not " + c.result, Paint: u.Result.Bad}
		}
		table.Cells(ui.Cell{Text: o.Name}, state, ui.Cell{Text: o.Error, Paint: u.Result.Dim})
	}
	table.Write(u.Out)
	if c.verb != removal.verb {
		return
	}
	if len(doc.Leftovers) == 0 && !slices.ContainsFunc(doc.Instances, func(o factory.Outcome) bool { return o.Error != "" }) {
		u.Print("leftovers: none")
	}
	for _, l := range doc.Leftovers {
		u.Print("left over: %s %s (%s)", l.Kind, l.Path, l.Why)
	}
}
