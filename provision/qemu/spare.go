package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/accel"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/qmp"
	"github.com/cgoa-labs/labctl/provision/state"
)

var _ provision.Sparer = (*Driver)(nil)

// monitorTime is how long a machine's monitor may take where another way is open.
const monitorTime = 10 * time.Second

// MakeSpare implements provision.Sparer. A spare's folder is one like any other, so that all that looks after instances looks after it too;
// its record says that it is nobody's.
func (d *Driver) MakeSpare(ctx context.Context, spec provision.Spec, ready func(context.Context, provision.Endpoint) error, progress func(string)) (err error) {
	name := spec.Name
	if progress == nil {
		progress = func(string) {}
	}
	lock, err := d.reserve(name)
	if err != nil {
		return err
	}
	defer d.release(lock, name)
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove(name))
		}
	}()
	spec.Spare, spec.SSHPort = true, 0
	if err := d.create(ctx, spec); err != nil {
		return err
	}
	ep, err := d.start(ctx, name, progress)
	if err != nil {
		return err
	}
	d.hook("spare:started")
	if err := ready(ctx, ep); err != nil {
		return err
	}
	if err := d.monitor(ctx, name, "stop", nil); err != nil {
		return fmt.Errorf("have the spare stand still: %w", err)
	}
	rec, err := d.load(name)
	if err != nil {
		return err
	}
	// Its disk is nobody's work, so that a spare that cannot go on is made anew as what it was taken for.
	rec.Fresh, rec.Run.Ready, rec.Run.Parked = true, false, true
	return d.store.Save(rec)
}

// Spares implements provision.Sparer.
func (d *Driver) Spares(context.Context) ([]provision.Status, error) {
	entries, err := d.store.List()
	if err != nil {
		return nil, err
	}
	var list []provision.Status
	for _, e := range entries {
		if d.parked(e) && !d.busy(e.Name) {
			list = append(list, d.status(e))
		}
	}
	return list, nil
}

// parked says of an instance whether it is a spare that can be taken.
func (d *Driver) parked(e state.Entry) bool {
	rec := e.Record
	if e.Err != nil || !rec.Spec.Spare || rec.Run == nil || !rec.Run.Parked {
		return false
	}
	_, alive := d.process(e.Name, rec.Run)
	return alive
}

// halfTaken says whether a folder is that of a spare whose taking was interrupted between record and rename.
func (d *Driver) halfTaken(name string) bool {
	rec, err := d.store.LoadFrom(name, d.home.Instance(name))
	return err == nil && rec.Spec.Name != name && rec.Run != nil && rec.Run.Folder == name
}

// strayedSpare says why a folder is a spare that nobody can take, empty where it is none.
func (d *Driver) strayedSpare(e state.Entry) string {
	switch {
	case d.halfTaken(e.Name):
		return "a spare whose taking was interrupted"
	case e.Err == nil && e.Record.Spec.Spare && e.Record.Complete && !d.parked(e):
		return "a spare that does not stand ready: making it was interrupted, or its machine has ended"
	}
	return ""
}

// fits says whether a spare can be taken for what is wanted.
func fits(have, want provision.Spec) bool {
	return !want.Cold && !want.Freezable && !want.Spare &&
		have.Image == want.Image && have.ImageDigest == want.ImageDigest && have.CPUs == want.CPUs && have.MemoryMiB == want.MemoryMiB && have.DiskGiB == want.DiskGiB && have.Isolate == want.Isolate
}

// spares are the names of those that can be taken for what is wanted.
func (d *Driver) spares(want provision.Spec) (names []string) {
	entries, err := d.store.List()
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if d.parked(e) && fits(e.Record.Spec, want) && (d.opts.Accelerator == accel.Auto || d.opts.Accelerator == e.Record.Run.Accelerator) {
			names = append(names, e.Name)
		}
	}
	return names
}

// absent says that there is no instance of this name.
func (d *Driver) absent(name string) bool {
	_, err := d.store.Load(name)
	var none *provision.NotFoundError
	return errors.As(err, &none)
}

// take makes a spare the instance that is wanted, where one fits and can be had. The caller holds the lock of the instance, which is not there.
func (d *Driver) take(ctx context.Context, want provision.Spec) (taken bool, err error) {
	for _, name := range d.spares(want) {
		lock, err := d.store.TryLock(d.home.Lock("instance", name))
		if err != nil {
			return false, err
		}
		if lock == nil {
			continue // somebody else takes it
		}
		taken, err := d.takeThis(ctx, name, want)
		if err != nil && ctx.Err() == nil {
			// A spare is no reason to fail.
			d.opts.Log(fmt.Sprintf("spare %s cannot be taken and is removed: %v", name, err))
			err = d.remove(name)
		}
		d.release(lock, name)
		if taken || err != nil {
			return taken, err
		}
	}
	return false, nil
}

// takeThis makes one spare the instance that is wanted. The caller holds both locks. The record goes first: interrupted between the two, the
// folder is recognised for what it is, see halfTaken.
func (d *Driver) takeThis(ctx context.Context, spare string, want provision.Spec) (bool, error) {
	rec, err := d.load(spare)
	if err != nil {
		return false, err
	}
	if !d.parked(state.Entry{Name: spare, Record: rec}) {
		return false, nil // somebody else took it
	}
	if status, err := d.machineStatus(ctx, spare, monitorTime); err != nil || status != machineStands {
		return false, errors.Join(err, fmt.Errorf("its machine is %q", status))
	}
	rec.PortChosen = want.SSHPort == 0
	port := d.keptPort(want)
	if port == 0 {
		port = rec.Spec.SSHPort
	}
	if port != rec.Spec.SSHPort {
		if err := d.forward(ctx, rec, want.Name, port); err != nil {
			return false, err
		}
	}
	dir := d.home.Instance(spare)
	rec.Spec.Name, rec.Spec.Spare, rec.Spec.SSHPort = want.Name, false, port
	// Its time begins now: how long it may run is counted from its start.
	rec.Created = time.Now().UTC()
	rec.Run.Started, rec.Run.Folder = rec.Created, filepath.Base(string(dir))
	if err := d.store.SaveTo(dir, rec); err != nil {
		return false, err
	}
	d.hook("take:recorded")
	if err := os.Rename(string(dir), string(d.home.Instance(want.Name))); err != nil {
		return false, fmt.Errorf("take spare %s: %w", spare, err)
	}
	d.hook("take:renamed")
	return true, nil
}

// keptPort is the port that an instance is to have: the one that was asked for, or that of the instance in whose place it comes, which people
// have written down; 0 where any will do.
func (d *Driver) keptPort(want provision.Spec) int {
	if want.SSHPort != 0 {
		return want.SSHPort
	}
	if before, err := d.store.LoadFrom(want.Name, d.home.Before(want.Name)); err == nil {
		return before.Spec.SSHPort
	}
	return 0
}

// forward leads another port of this host to the guest of a spare.
func (d *Driver) forward(ctx context.Context, rec state.Record, owner string, port int) error {
	lock, err := d.store.Lock(ctx, d.home.Lock("host", "ports"), "the choice of ports", nil)
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := d.portFree(owner, port); err != nil {
		return err
	}
	monitor, err := qmp.Dial(ctx, d.home.Instance(rec.Spec.Name).QMP())
	if err != nil {
		return err
	}
	defer monitor.Close()
	// The new one first, so that a spare whose port cannot be changed is what it was. QEMU answers with words where it goes wrong, and when
	// it takes a forward back.
	var answer string
	if err := monitor.Execute(ctx, "human-monitor-command", map[string]string{"command-line": argv.AddForward(port)}, &answer); err != nil {
		return err
	}
	if answer = strings.TrimSpace(answer); answer != "" {
		return fmt.Errorf("lead port %d to the guest: %s", port, answer)
	}
	return monitor.Execute(ctx, "human-monitor-command", map[string]string{"command-line": argv.RemoveForward(rec.Spec.SSHPort)}, nil)
}
