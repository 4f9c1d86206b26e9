package session

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/limits"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/provision"
)

// NewStatus is the command status.
func NewStatus(f *factory.Factory) *cobra.Command {
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "List the instances",
		Long: `List the instances and what is known of them without asking their guests: how far each learner was in each lab when that was
last checked, and the memory that each takes of this host. With NAME, also what its image is made of. ` + "`labctl doctor --guest NAME`" + ` asks.`,
		Example:           "  labctl status\n  labctl status -o json",
		Args:              cli.OptionalArg("the name of an instance"),
		ValidArgsFunction: f.CompleteOneInstance,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return status(cmd.Context(), f, name, format)
		},
	}
	ui.AddFormat(cmd, &format)
	return cmd
}

func status(ctx context.Context, f *factory.Factory, name string, format ui.Format) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	var all []provision.Status
	if name != "" {
		st, err := f.Pick(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, st)
	} else if all, err = driver.List(ctx); err != nil {
		return fmt.Errorf("list the instances: %w", err)
	}
	list := make([]listed, 0, len(all))
	for _, st := range all {
		list = append(list, listedOf(f, driver, st))
	}
	var spares []provision.Status
	if name == "" {
		if spares, err = provision.Spares(ctx, driver); err != nil {
			return err
		}
	}
	if format == ui.JSON {
		return f.UI().JSON(struct {
			Schema    string        `json:"schema"`
			Instances []listed      `json:"instances"`
			Images    []image.Parts `json:"images"`
			Spares    int           `json:"spares,omitempty"`
		}{ui.Schema("status"), list, imagesOf(ctx, f, all), len(spares)})
	}
	u := f.UI()
	if len(spares) > 0 {
		u.Note("spares that stand ready: %d; `labctl pool` lists them", len(spares))
	}
	if len(all) == 0 {
		u.Note("there is no instance yet; `labctl up` makes one")
		return nil
	}
	var table ui.Table
	table.Row("NAME", "STATE", "SINCE", "LABS", "CHECKED", "CPUS", "MEMORY", "DISK", "SSH PORT", "IMAGE", "NOTE")
	for _, l := range list {
		table.Cells(row(u, l)...)
	}
	table.Write(u.Out)
	if name != "" {
		for _, parts := range imagesOf(ctx, f, all) {
			u.Print("")
			parts.Print(u)
		}
	}
	return nil
}

// imagesOf are the images that the instances stand on, each once, as far as they can be read.
func imagesOf(ctx context.Context, f *factory.Factory, all []provision.Status) []image.Parts {
	parts, seen := []image.Parts{}, map[string]bool{}
	for _, st := range all {
		name := filepath.Base(string(st.Spec.Image))
		if st.Spec.Image == "" || seen[name] {
			continue
		}
		seen[name] = true
		if img, err := f.Images().Get(ctx, name); err == nil {
			parts = append(parts, image.PartsOf(img))
		}
	}
	return parts
}

// listed is an instance with what is remembered of its learner.
type listed struct {
	provision.Status
	// UsedMiB is the host memory that it takes, 0 where unknown.
	UsedMiB int               `json:"usedMiB,omitempty"`
	Labs    []labrun.Standing `json:"labs,omitempty"`
	// Limits say how long it may run and idle.
	Limits *limits.Limits `json:"limits,omitempty"`
}

func listedOf(f *factory.Factory, driver provision.Driver, st provision.Status) listed {
	l := listed{Status: st, Labs: labrun.Standings(f.Home().Instance(st.Name))}
	if may, err := limits.Load(f.Home().Instance(st.Name)); err == nil && !may.None() {
		l.Limits = &may
	}
	l.UsedMiB = provision.Used(driver, st)
	return l
}

// standing says how many steps of each lab were passed, and how long ago that was last asked.
func (l listed) standing() (labs, checked string) {
	var words []string
	var last time.Time
	for _, s := range l.Labs {
		words = append(words, fmt.Sprintf("%s %d/%d", s.Lab, s.Passed(), len(s.Steps)))
		if s.Time.After(last) {
			last = s.Time
		}
	}
	if words == nil {
		return "-", "-"
	}
	return strings.Join(words, ", "), age(time.Since(last))
}

func row(u *ui.UI, l listed) []ui.Cell {
	st := l.Status
	paint := u.Result.Dim
	since, note := "", st.Reason
	switch st.Power {
	case provision.Running:
		paint = u.Result.Good
		since = age(time.Since(st.Started))
		if st.Accelerator == "tcg" && note == "" {
			note = "emulated"
		}
	case provision.Stopped:
		if st.Suspended && note == "" {
			note = "memory kept"
		}
	case provision.Broken:
		paint = u.Result.Bad
	}
	cell := func(text string) ui.Cell { return ui.Cell{Text: text} }
	orNone := func(n int, text string) ui.Cell {
		if n == 0 {
			text = "-"
		}
		return cell(text)
	}
	image := "-"
	if st.Spec.Image != "" {
		image = filepath.Base(string(st.Spec.Image))
	}
	if since == "" {
		since = "-"
	}
	if st.Power == provision.Running && l.Limits != nil {
		note = strings.TrimPrefix(note+", "+ends(*l.Limits, time.Since(st.Started)), ", ")
	}
	labs, checked := l.standing()
	return []ui.Cell{
		cell(st.Name), {Text: string(st.Power), Paint: paint}, cell(since), cell(labs), cell(checked),
		orNone(st.Spec.CPUs, fmt.Sprint(st.Spec.CPUs)),
		orNone(st.Spec.MemoryMiB, factory.Memory(st.Spec, l.UsedMiB)),
		orNone(st.Spec.DiskGiB, fmt.Sprintf("%d GiB", st.Spec.DiskGiB)),
		orNone(st.Spec.SSHPort, fmt.Sprint(st.Spec.SSHPort)),
		cell(image), {Text: note, Paint: u.Result.Dim},
	}
}

// ends says when gc will stop an instance.
func ends(l limits.Limits, ran time.Duration) string {
	var when []string
	switch left := l.TTL() - ran; {
	case l.TTLSeconds > 0 && left <= 0:
		return "its time is over"
	case l.TTLSeconds > 0:
		when = append(when, "in "+age(left))
	}
	if l.IdleSeconds > 0 {
		when = append(when, "after "+age(l.Idle())+" idle")
	}
	return "stops " + strings.Join(when, " or ")
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
