package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/state"
)

var _ provision.Suspender = (*Driver)(nil)

// Suspend implements provision.Suspender.
func (d *Driver) Suspend(ctx context.Context, name string, progress func(string)) error {
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
	return d.suspend(ctx, rec, progress)
}

// suspend is Suspend by who holds the lock.
func (d *Driver) suspend(ctx context.Context, rec state.Record, progress func(string)) error {
	name := rec.Spec.Name
	p, running := d.process(name, rec.Run)
	if !running || rec.Run == nil || !rec.Run.Ready {
		return d.powerOff(ctx, rec)
	}
	if rec.Suspended == nil {
		progress("save the memory")
		if err := d.keepMemory(ctx, &rec); err != nil {
			return err
		}
	}
	// Else an earlier one was ended after it had saved the memory; the guest has stood still since.
	d.hook("suspend:kept")
	if err := d.end(name, p); err != nil {
		return err
	}
	return d.settle(rec, true)
}

// keepMemory saves a running guest's memory and devices, and leaves the guest stopped. On failure the guest goes on.
func (d *Driver) keepMemory(ctx context.Context, rec *state.Record) (err error) {
	name, dir := rec.Spec.Name, d.home.Instance(rec.Spec.Name)
	if err := d.roomForMemory(rec.Spec.MemoryMiB); err != nil {
		return err
	}
	key, err := d.frozenKey(rec.Spec, rec.Machine, rec.Run.Accelerator)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		// The caller's ctx may be what ended it.
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(fmt.Errorf("suspend instance %q: %w", name, err), d.wake(again, name))
	}()
	saving, cancel := context.WithTimeoutCause(ctx, freezeTime, fmt.Errorf("its memory was not saved within %s", freezeTime))
	defer cancel()
	half := dir.Suspended() + freshSuffix
	if err := d.save(saving, name, half, withMemory); err != nil {
		return errors.Join(err, removeFile(half))
	}
	d.hook("suspend:saved")
	if err := os.Rename(half, dir.Suspended()); err != nil {
		return err
	}
	rec.Suspended = &state.Suspended{Key: key, At: time.Now().UTC()}
	if err := d.store.Save(*rec); err != nil {
		rec.Suspended = nil
		return errors.Join(err, removeFile(dir.Suspended()))
	}
	return nil
}

// roomForMemory refuses what would fill the host's disk.
func (d *Driver) roomForMemory(memoryMiB int) error {
	free, err := host.DiskFree(d.home.Instances())
	if err != nil {
		return err
	}
	if need := int64(memoryMiB)<<20 + minFreeDisk/3; free < need {
		return &provision.ResourceError{
			What: "disk space below " + d.home.State + " to keep the memory", Need: fmt.Sprintf("%.1f GiB", gib(need)), Have: fmt.Sprintf("%.1f GiB", gib(free)),
			Fix: "remove what is not needed, or power the guest off with `labctl stop --cold`",
		}
	}
	return nil
}

// wake lets a guest go on that stands still.
func (d *Driver) wake(ctx context.Context, name string) error {
	status, err := d.machineStatus(ctx, name, 10*time.Second)
	if err != nil || status == machineRuns {
		return err
	}
	return d.monitor(ctx, name, "cont", nil)
}

// forgetSuspended takes the kept memory out of the record and removes it.
func (d *Driver) forgetSuspended(rec *state.Record) error {
	if rec.Suspended == nil {
		return nil
	}
	rec.Suspended = nil
	if err := d.store.Save(*rec); err != nil {
		return err
	}
	return removeFile(d.home.Instance(rec.Spec.Name).Suspended())
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// resumable says whether the kept memory of an instance can go on here, and removes what cannot.
func (d *Driver) resumable(rec *state.Record, machine, accelerator string) (how string, err error) {
	key, err := d.frozenKey(rec.Spec, machine, accelerator)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(d.home.Instance(rec.Spec.Name).Suspended()); err == nil && key == rec.Suspended.Key {
		return "go on where it was stopped", nil
	}
	return "boot, because the memory that was kept belongs to another QEMU or processor; the disk is as it was", d.forgetSuspended(rec)
}
