// Package up has the command up: from nothing, or from whatever is there, to an instance with the labs in it.
package up

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/boot"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/limits"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// defaultName is the instance that `labctl up` makes where none is named.
const defaultName = "learner"

// Options are the arguments of up.
type Options struct {
	Name   string
	Format ui.Format
	// Given are the flags that give the instance's shape: one of another shape will not do.
	Given []string
	// Cold boots a new instance even where the image has a frozen guest.
	Cold bool
}

// New is the command up. run is what it does, for tests; nil means the real one.
func New(f *factory.Factory, run func(context.Context, Options) error) *cobra.Command {
	var o Options
	var class string
	var queue bool
	if run == nil {
		run = func(ctx context.Context, o Options) error { return Run(ctx, f, o) }
	}
	cmd := &cobra.Command{
		Use:   "up [NAME...]",
		Short: "Make instances, start them and put the labs into them",
		Long: `Make an instance, start it, wait until its platform is ready and put the labs into it.

Without NAME the instance is called ` + defaultName + `. The golden image is built first where there is none: that takes most of
an hour on a small machine, once. Beside it is a frozen guest, whose platform was ready when it was saved: an instance of the
same shape is its clone and goes on from there, any other is booted. An instance that exists is started and checked; its disk
and the work on it stay. The same command again goes on where an interrupted one stopped.

Several names, or a class in a CSV file with the columns name, email and labs, make a fleet: as many instances at once as the
setting parallel says. What does not fit on this host is refused before anything is begun, or waited for with --queue. One that
fails stops no other.

Clones of one image share the keys that its cluster was made with, which is safe as long as nothing but SSH reaches them. With
--isolate they are re-issued before anybody gets the instance: k3s starts anew, and every pod.`,
		Example: `  labctl up
  labctl up alice bob
  labctl up --learners class.csv
  labctl up alice --cpus 4 --memory 6GiB
  labctl up alice --ttl 4h --idle 30m
  labctl up bob --port 2222 -o json`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: f.CompleteInstances,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"cpus", "memory", "disk", "port", "image", "ttl", "idle", "isolate"} {
				if cmd.Flags().Changed(name) {
					o.Given = append(o.Given, name)
				}
			}
			if len(args) > 1 || class != "" {
				return upFleet(cmd, f, o, args, class, queue)
			}
			if queue {
				return cli.Misused(cmd, "--queue goes with several instances")
			}
			o.Name = defaultName
			if len(args) == 1 {
				o.Name = args[0]
			}
			return run(cmd.Context(), o)
		},
	}
	factory.Setting(cmd, "instance.cpus", "cpus", "N", "CPUs of a new instance")
	factory.Setting(cmd, "instance.memory", "memory", "SIZE", "memory of a new instance, such as 3GiB")
	factory.Setting(cmd, "instance.disk", "disk", "SIZE", "disk of a new instance, such as 12GiB")
	factory.Setting(cmd, "instance.port", "port", "PORT", "loopback port for SSH; 0 takes a free one")
	factory.Setting(cmd, "instance.ttl", "ttl", "TIME", "how long it may run before gc stops it, keeping memory and work; 0 is for ever")
	factory.Setting(cmd, "instance.idle", "idle", "TIME", "how long nobody may do anything in it before gc stops it; 0 is for ever")
	factory.Switch(cmd, "instance.isolate", "isolate", "give a new instance's cluster keys of its own, at the price of a restart of k3s")
	factory.Setting(cmd, "accelerator", "accelerator", "NAME", "auto, kvm or tcg")
	factory.Setting(cmd, "image.name", "image", "NAME", "golden image")
	factory.Setting(cmd, "image.source", "source", "NAME", "where a missing image's parts come from: auto, release or modules")
	factory.Setting(cmd, "timeouts.boot", "timeout", "TIME", "longest wait for the instance to become ready")
	cmd.Flags().StringVar(&class, "learners", "", "a class: CSV `FILE` with the columns name, email, labs")
	_ = cmd.MarkFlagFilename("learners", "csv")
	cmd.Flags().BoolVar(&queue, "queue", false, "wait for room on this host, as long as timeouts.queue")
	cmd.Flags().BoolVar(&o.Cold, "cold", false, "boot a new instance instead of cloning the image's frozen guest")
	ui.AddFormat(cmd, &o.Format)
	return cmd
}

// upFleet is up for several instances.
func upFleet(cmd *cobra.Command, f *factory.Factory, o Options, names []string, class string, queue bool) error {
	if slices.Contains(o.Given, "port") {
		return cli.Misused(cmd, "--port is for one instance; several get free ports")
	}
	var learners []Learner
	for _, name := range names {
		learners = append(learners, Learner{Name: name})
	}
	if class != "" {
		rows, err := readLearners(class)
		if err != nil {
			return err
		}
		learners = append(learners, rows...)
	}
	if err := checkLearners(learners); err != nil {
		return err
	}
	return RunFleet(cmd.Context(), f, FleetOptions{Learners: learners, Format: o.Format, Given: o.Given, Cold: o.Cold, Queue: queue})
}

// upDocument is the result of up as JSON.
type upDocument struct {
	Schema   string             `json:"schema"`
	Instance provision.Status   `json:"instance"`
	Endpoint provision.Endpoint `json:"endpoint"`
	Guest    []check.Result     `json:"guest"`
	Labs     []labs.Report      `json:"labs"`
	Timings  []ui.Timing        `json:"timings"`
}

// Run makes, starts and checks an instance and puts the labs into it.
func Run(ctx context.Context, f *factory.Factory, o Options) error {
	if err := layout.CheckName("instance", o.Name); err != nil {
		return err
	}
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	// Whatever cannot work is found before anything is changed.
	programs, err := locateAll(f)
	if err != nil {
		return err
	}
	before, err := driver.Status(ctx, o.Name)
	if err != nil {
		return fmt.Errorf("look for instance %s: %w", o.Name, err)
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	b := &bringUp{f: f, driver: driver, name: o.Name, before: before, programs: programs, progress: progress, given: o.Given}
	// What an interrupted up left is broken, and finished by making it.
	if !b.exists() {
		if b.spec, err = newSpec(ctx, f, o.Name, o.Cold, progress); err != nil {
			return err
		}
	} else {
		b.spec = reshaped(f, before.Spec, o.Given)
	}
	if err := b.run(ctx); err != nil {
		return err
	}
	progress.Close()
	progress.Summary()

	status, err := driver.Status(ctx, o.Name)
	if err != nil {
		return fmt.Errorf("look at instance %s: %w", o.Name, err)
	}
	if o.Format == ui.JSON {
		return f.UI().JSON(upDocument{Schema: ui.Schema("up"), Instance: status, Endpoint: b.endpoint, Guest: b.guest, Labs: b.reports, Timings: progress.Timings()})
	}
	printUp(f.UI(), status, b)
	return nil
}

// Bring makes, starts and checks an instance for `labctl lab test`, and puts the programs into it. The instance is marked as that command's
// before anything else is in it.
func Bring(ctx context.Context, f *factory.Factory, name string, programs []labrun.Program, progress *ui.Progress) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	b := &bringUp{f: f, driver: driver, name: name, programs: programs, progress: progress, before: provision.Status{Name: name, Power: provision.Absent}, mark: f.Home().Instance(name).Proving()}
	if b.spec, err = newSpec(ctx, f, name, false, progress); err != nil {
		return err
	}
	return b.run(ctx)
}

func locateAll(f *factory.Factory) ([]labrun.Program, error) {
	var programs []labrun.Program
	for _, lab := range labrun.All() {
		p, err := labrun.Locate(f.Settings().GuestDir, lab)
		if err != nil {
			return nil, err
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// bringUp is the state of one up.
type bringUp struct {
	f        *factory.Factory
	driver   provision.Driver
	name     string
	before   provision.Status
	spec     provision.Spec
	programs []labrun.Program
	progress *ui.Progress
	// prefix is put before the names of stages, where there are several instances.
	prefix string
	// given are the flags that were given.
	given []string
	// mark is an empty file to be made in the instance's folder; none where it is empty.
	mark string

	endpoint provision.Endpoint
	conn     factory.Guest
	guest    []check.Result
	reports  []labs.Report
}

func (b *bringUp) run(ctx context.Context) error {
	create, start := "create "+b.name, "start "+b.name
	if b.prefix != "" {
		create, start = "create", "start"
	}
	return stage.Run(ctx, b, b.progress.Sink(b.prefix), append([]stage.Stage[bringUp]{
		{Name: create, Run: createStage},
		{Name: start, Run: startStage},
	}, b.settling()...)...)
}

// settling waits until an instance that answers is ready, and puts the labs into it.
func (b *bringUp) settling() []stage.Stage[bringUp] {
	stages := []stage.Stage[bringUp]{{Name: "platform ready", Run: readyStage, Cleanup: hangUp}}
	if b.spec.Isolate {
		stages = append(stages, stage.Stage[bringUp]{Name: "keys of its own", Run: isolateStage})
	}
	return append(stages, stage.Stage[bringUp]{Name: "labs", Run: labsStage})
}

func (b *bringUp) settle(ctx context.Context) error {
	return stage.Run(ctx, b, b.progress.Sink(b.prefix), b.settling()...)
}

func createStage(ctx context.Context, b *bringUp, _ func(string)) error {
	if err := b.driver.Create(ctx, b.spec); err != nil {
		return err
	}
	if err := b.limit(); err != nil {
		return err
	}
	if b.mark != "" {
		if err := os.WriteFile(b.mark, nil, 0o600); err != nil {
			return fmt.Errorf("mark instance %s: %w", b.name, err)
		}
	}
	if b.before.Power == provision.Stopped || b.before.Power == provision.Running {
		return stage.ErrCached
	}
	return nil
}

// limit keeps how long the instance may run and idle: a new one by the settings, one that is there by what was given.
func (b *bringUp) limit() error {
	dir, c := b.f.Home().Instance(b.name), b.f.Settings().Instance
	l := limits.Of(c.TTL, c.Idle)
	if b.exists() {
		ttl, idle := slices.Contains(b.given, "ttl"), slices.Contains(b.given, "idle")
		if !ttl && !idle {
			return nil
		}
		have, err := limits.Load(dir)
		if err != nil {
			return err
		}
		if !ttl {
			l.TTLSeconds = have.TTLSeconds
		}
		if !idle {
			l.IdleSeconds = have.IdleSeconds
		}
	}
	return l.Save(dir)
}

func startStage(ctx context.Context, b *bringUp, progress func(string)) (err error) {
	b.endpoint, err = boot.Start(ctx, b.f, b.driver, b.name, progress)
	if err == nil && b.before.Power == provision.Running {
		return stage.ErrCached
	}
	return err
}

func readyStage(ctx context.Context, b *bringUp, progress func(string)) error {
	status, err := b.driver.Status(ctx, b.name)
	if err != nil {
		return err
	}
	if b.conn, err = b.f.Connect(ctx, status); err != nil {
		return err
	}
	if b.spec.Isolate {
		half, err := b.f.Parts.HalfIsolated(ctx, b.conn)
		if err != nil {
			return err
		}
		if half {
			progress("once its keys are its own, which an interrupted run has begun")
			return nil
		}
	}
	b.guest, err = boot.WaitReady(ctx, b.f, b.driver, b.name, b.conn, progress)
	return err
}

func isolateStage(ctx context.Context, b *bringUp, progress func(string)) error {
	limit := b.f.Settings().Timeouts.Boot
	stepCtx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	done, err := b.f.Parts.Isolate(stepCtx, b.conn, progress)
	switch {
	case err != nil:
		return fmt.Errorf("re-issue the cluster's keys: %w", err)
	case done:
		return stage.ErrCached
	}
	b.guest, err = boot.WaitReady(ctx, b.f, b.driver, b.name, b.conn, progress)
	return err
}

func hangUp(_ context.Context, b *bringUp) error {
	if b.conn == nil {
		return nil
	}
	// A guest that hung up first is no fault.
	_ = b.conn.Close()
	return nil
}

func labsStage(ctx context.Context, b *bringUp, progress func(string)) error {
	settings := b.f.Settings()
	for _, p := range b.programs {
		report, err := p.Run(ctx, b.conn, labrun.Call{
			Action: "verify", Language: b.f.Language(), Timeout: settings.Timeouts.Verify,
		}, progress)
		if err != nil {
			return err
		}
		if err := labrun.Note(b.f.Home().Instance(b.name), report); err != nil {
			progress(err.Error()) // only lists miss it
		}
		b.reports = append(b.reports, report)
	}
	return nil
}
