package up

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/provision"
)

// sparePrefix begins the names of spares.
const sparePrefix = "spare-"

// poolDocument is the result of pool as JSON.
type poolDocument struct {
	Schema  string             `json:"schema"`
	Spares  []spare            `json:"spares"`
	Removed []provision.Status `json:"removed"`
	// Timings are empty where the spares were only looked at.
	Timings []ui.Timing `json:"timings"`
}

type spare struct {
	provision.Status
	// UsedMiB is the host memory that it takes, 0 where unknown.
	UsedMiB int `json:"usedMiB,omitempty"`
}

// NewPool is the command pool.
func NewPool(f *factory.Factory) *cobra.Command {
	var size int
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Keep spares: instances that stand ready until somebody needs one",
		Long: `Keep spares: clones of the image's frozen guest that were brought up, with the labs in them, and stand still from then on. They take memory and no
processor time. up and reset --vm take a spare where one has the shape that is wanted, and only have to tell it whose it is.

With --size, spares are made until there are that many, and those that are too many or fit the image and the settings no more are removed; without, they
are listed. None is made by itself in the place of one that was taken: the same command again makes it.`,
		Example: "  labctl pool --size 2\n  labctl pool\n  labctl pool --size 0",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := pool{f: f, format: format, want: -1}
			if cmd.Flags().Changed("size") {
				if p.want = size; size < 0 {
					return cli.Misused(cmd, fmt.Sprintf("--size: %d is no number of spares", size))
				}
			}
			return p.run(cmd.Context())
		},
	}
	cmd.Flags().IntVar(&size, "size", 0, "have `N` spares; 0 removes all")
	factory.Setting(cmd, "instance.cpus", "cpus", "N", "CPUs of a spare")
	factory.Setting(cmd, "instance.memory", "memory", "SIZE", "memory of a spare, such as 3GiB")
	factory.Setting(cmd, "instance.disk", "disk", "SIZE", "disk of a spare, such as 12GiB")
	factory.Switch(cmd, "instance.isolate", "isolate", "give a spare's cluster keys of its own")
	factory.Setting(cmd, "image.name", "image", "NAME", "golden image")
	ui.AddFormat(cmd, &format)
	return cmd
}

type pool struct {
	f      *factory.Factory
	driver provision.Sparer
	format ui.Format
	// want is how many spares there are to be, less than 0 where they are only listed.
	want     int
	progress *ui.Progress
}

func (p *pool) run(ctx context.Context) error {
	driver, err := p.f.Driver()
	if err != nil {
		return err
	}
	var ok bool
	if p.driver, ok = driver.(provision.Sparer); !ok {
		return &provision.HostError{Problem: fmt.Sprintf("the driver %s keeps no spares", driver.Info().Name), Fix: "`labctl up` makes an instance when it is needed"}
	}
	doc := poolDocument{Schema: ui.Schema("pool"), Spares: []spare{}, Removed: []provision.Status{}, Timings: []ui.Timing{}}
	p.progress = p.f.UI().NewProgress()
	defer p.progress.Close()
	if p.want >= 0 {
		doc.Removed, err = p.fill(ctx)
		doc.Timings = p.progress.Timings()
		if err != nil {
			return err
		}
	}
	p.progress.Close()
	all, err := provision.Spares(ctx, driver)
	if err != nil {
		return err
	}
	for _, st := range all {
		doc.Spares = append(doc.Spares, spare{Status: st, UsedMiB: provision.Used(driver, st)})
	}
	if p.format == ui.JSON {
		return p.f.UI().JSON(doc)
	}
	p.print(doc)
	return nil
}

func (p *pool) print(doc poolDocument) {
	u := p.f.UI()
	if len(doc.Spares) == 0 {
		u.Print("no spare stands ready; `%s pool --size N` makes some", program())
		return
	}
	var table ui.Table
	table.Row("SPARE", "SINCE", "CPUS", "MEMORY", "DISK", "IMAGE")
	for _, s := range doc.Spares {
		table.Row(s.Name, s.Started.Local().Format(time.DateTime), fmt.Sprint(s.Spec.CPUs), factory.Memory(s.Spec, s.UsedMiB), fmt.Sprintf("%d GiB", s.Spec.DiskGiB), filepath.Base(string(s.Spec.Image)))
	}
	table.Write(u.Out)
}

// fill makes the spares be as many as are wanted, and says which were removed.
func (p *pool) fill(ctx context.Context) (removed []provision.Status, err error) {
	removed = []provision.Status{}
	have, err := provision.Spares(ctx, p.driver)
	if err != nil {
		return removed, err
	}
	if err := p.sweep(ctx); err != nil {
		return removed, err
	}
	var spec provision.Spec
	if p.want > 0 {
		if spec, err = newSpec(ctx, p.f, newSpare(), false, p.progress); err != nil {
			return removed, err
		}
	}
	kept := 0
	for _, st := range have {
		if p.want > kept && sameShape(st.Spec, spec) {
			kept++
			continue
		}
		err := stage.One(ctx, p.progress.Sink(""), "remove "+st.Name, func(ctx context.Context, _ func(string)) error { return p.driver.Delete(ctx, st.Name) })
		if err != nil {
			return removed, err
		}
		removed = append(removed, st)
	}
	programs, err := locateAll(p.f)
	if err != nil {
		return removed, err
	}
	for ; kept < p.want; kept++ {
		b := &bringUp{f: p.f, driver: p.driver, name: newSpare(), spec: spec, programs: programs, progress: p.progress}
		b.spec.Name = b.name
		if err := p.make(ctx, b); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// sweep removes the spares that nobody can take.
func (p *pool) sweep(ctx context.Context) error {
	left, err := p.driver.Leftovers(ctx)
	if err != nil {
		return err
	}
	left = slices.DeleteFunc(left, func(l provision.Leftover) bool { return !strings.HasPrefix(filepath.Base(l.Path), sparePrefix) })
	return p.driver.Sweep(ctx, left)
}

func (p *pool) make(ctx context.Context, b *bringUp) error {
	return stage.Run(ctx, b, p.progress.Sink(""), stage.Stage[bringUp]{
		Name: "make " + b.name,
		Run: func(ctx context.Context, b *bringUp, detail func(string)) error {
			return p.driver.MakeSpare(ctx, b.spec, func(ctx context.Context, ep provision.Endpoint) error {
				b.endpoint = ep
				return b.settle(ctx)
			}, detail)
		},
	})
}

// newSpare is a name that no spare ever had: a machine shows the folder that it was started in.
func newSpare() string { return sparePrefix + strings.ToLower(rand.Text()[:8]) }

// sameShape says whether a spare is what the settings want by now.
func sameShape(have, want provision.Spec) bool {
	have.Name, have.SSHPort, have.Spare, have.Cold = want.Name, want.SSHPort, want.Spare, want.Cold
	return have == want
}
