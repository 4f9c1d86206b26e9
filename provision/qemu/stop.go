package qemu

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/agent"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/qemu/qmp"
	"github.com/cgoa-labs/labctl/provision/state"
)

// Stop implements provision.Driver.
func (d *Driver) Stop(ctx context.Context, name string) error {
	lock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	defer d.release(lock, name)
	rec, err := d.load(name)
	if err != nil {
		return err
	}
	if err := d.tidy(rec); err != nil {
		return err
	}
	return d.powerOff(ctx, rec)
}

// powerOff powers the machine down where there is one. The caller holds the lock.
func (d *Driver) powerOff(ctx context.Context, rec state.Record) error {
	name := rec.Spec.Name
	p, running := d.process(name, rec.Run)
	switch {
	case running && (rec.Suspended != nil || rec.Run != nil && rec.Run.Parked):
		// It stands still since its memory was saved, or is a spare, and has nothing more to say.
		if err := d.end(name, p); err != nil {
			return err
		}
	case running:
		if err := d.powerDown(ctx, rec, p); err != nil {
			return err
		}
	}
	return d.settle(rec, running)
}

// settle brings disk, sockets and record in order after a machine has ended.
func (d *Driver) settle(rec state.Record, ran bool) error {
	dir := d.home.Instance(rec.Spec.Name)
	if ran {
		// The machine writes without waiting for the host's disk (see package argv), so that the wait is due now.
		if err := syncFile(dir.Disk()); err != nil {
			return err
		}
	}
	if err := d.clear(dir); err != nil {
		return err
	}
	if rec.Run == nil {
		return nil
	}
	rec.Run = nil
	return d.store.Save(rec)
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("write the instance's disk out: %w", err)
	}
	return errors.Join(file.Sync(), file.Close())
}

// powerDown asks the guest to power off, in each way that there is, and ends the machine when it does not.
func (d *Driver) powerDown(ctx context.Context, rec state.Record, p host.Process) error {
	name := rec.Spec.Name
	accelerator := ""
	if rec.Run != nil {
		accelerator = rec.Run.Accelerator
	}
	grace := d.times(accelerator).grace
	graceful, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	asked := d.askOff(graceful, name, grace/4)
	if asked == nil {
		half, cancel := context.WithTimeout(graceful, grace/2)
		defer cancel()
		if p.WaitExit(half) == nil {
			return nil
		}
	}
	// The power button works without an agent, where the guest's login manager listens to it.
	button, cancelButton := context.WithTimeout(graceful, grace/4)
	defer cancelButton()
	pressed := d.monitor(button, name, "system_powerdown", nil)
	if asked == nil || pressed == nil {
		if p.WaitExit(graceful) == nil {
			return nil
		}
	}
	if !p.Alive() {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the stop of instance %q was interrupted; its guest may still be powering off: %w", name, context.Cause(ctx))
	}
	d.opts.Log(fmt.Sprintf("%q did not power off within %s and is ended", name, grace))
	return d.end(name, p)
}

func (d *Driver) askOff(ctx context.Context, name string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return agent.PowerOff(ctx, d.home.Instance(name).Agent())
}

const (
	// quitTime is how long QEMU may take to end by itself, killTime how long the kernel may take to end it.
	quitTime = 5 * time.Second
	killTime = 10 * time.Second
)

// end ends a machine without asking its guest. It does not depend on any ctx: what was started must not stay.
func (d *Driver) end(name string, p host.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), quitTime)
	defer cancel()
	err := d.monitor(ctx, name, "quit", nil)
	// The reply may be lost with the process. An order that was not taken needs no waiting for.
	if (err == nil || errors.Is(err, qmp.ErrClosed)) && p.WaitExit(ctx) == nil {
		return nil
	}
	return d.kill(name, p)
}

func (d *Driver) kill(name string, p host.Process) error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the machine of %q (pid %d): %w", name, p.PID, err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), killTime, fmt.Errorf("it still runs %s after SIGKILL", killTime))
	defer cancel()
	if err := p.WaitExit(ctx); err != nil {
		return fmt.Errorf("end the machine of %q (pid %d): %w", name, p.PID, err)
	}
	return nil
}

// Delete implements provision.Driver. The folder is moved aside before it is removed: cut short, it leaves an instance
// that is whole, or something that cannot be taken for one.
func (d *Driver) Delete(ctx context.Context, name string) error {
	lock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	if err := d.remove(name); err != nil {
		return errors.Join(err, lock.Release())
	}
	return lock.Remove()
}

func (d *Driver) remove(name string) error {
	rec, err := d.store.Load(name)
	var none *provision.NotFoundError
	var broken *provision.BrokenError
	if err != nil && !errors.As(err, &none) && !errors.As(err, &broken) {
		return err
	}
	// Also for a broken instance, or for none: a machine may run in a folder that is gone.
	for p, running := d.process(name, rec.Run); running; p, running = d.process(name, rec.Run) {
		if err := d.kill(name, p); err != nil {
			return err
		}
	}
	d.hook("delete:stopped")
	return d.discard(name)
}

// discard removes an instance's folder. The caller holds its lock and has ended its machine.
func (d *Driver) discard(name string) error {
	aside := d.home.Removed(name, rand.Text())
	if err := os.Rename(string(d.home.Instance(name)), aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove instance %q: %w", name, err)
	}
	d.hook("delete:moved")
	if err := os.RemoveAll(aside); err != nil {
		return fmt.Errorf("remove instance %q: %w", name, err)
	}
	return nil
}
