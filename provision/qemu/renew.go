package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/state"
)

var _ provision.Renewer = (*Driver)(nil)

// interruptedRenewal is said of an instance whose old self still waits.
const interruptedRenewal = "making it anew was interrupted; `labctl start` puts back what was there"

// Renew implements provision.Renewer. One rename sets the old instance aside, and one more decides: while its folder waits, the
// instance is the old one (see putBack), and once it does not, the new one.
func (d *Driver) Renew(ctx context.Context, spec provision.Spec, keep string, ready func(context.Context, provision.Endpoint) error, progress func(string)) (err error) {
	name := spec.Name
	if progress == nil {
		progress = func(string) {}
	}
	lock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	defer d.release(lock, name)
	rec, err := d.load(name)
	if err != nil {
		return err
	}
	if keep != "" {
		reserved, err := d.reserve(keep)
		if err != nil {
			return err
		}
		defer d.release(reserved, keep)
	}
	if spec.SSHPort == 0 && !rec.PortChosen {
		spec.SSHPort = rec.Spec.SSHPort // it was asked for
	}
	if err := d.admit(ctx, spec); err != nil {
		return err
	}
	if err := d.setAside(ctx, rec, keep != "", progress); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if back := d.putBack(name); back != nil {
			err = errors.Join(err, fmt.Errorf("what was there before is not put back yet, `labctl start %s` tries again: %w", name, back))
			return
		}
		err = &provision.RenewError{Name: name, Err: err}
	}()
	if err := d.create(ctx, spec); err != nil {
		return err
	}
	ep, err := d.start(ctx, name, progress)
	if err != nil {
		return err
	}
	d.hook("renew:started")
	if err := ready(ctx, ep); err != nil {
		return err
	}
	if keep != "" {
		return d.settleAside(name, keep)
	}
	aside := d.home.Removed(name, fmt.Sprint(time.Now().UnixNano()))
	if err := os.Rename(string(d.home.Before(name)), aside); err != nil {
		return fmt.Errorf("drop what was there: %w", err)
	}
	d.hook("renew:settled")
	if err := os.RemoveAll(aside); err != nil {
		d.opts.Log(fmt.Sprintf("what was there before could not be removed: %v; `labctl doctor --fix` tries again", err))
	}
	return nil
}

// reserve locks the name of an instance that is not there.
func (d *Driver) reserve(name string) (*state.Lock, error) {
	if err := layout.CheckName("instance", name); err != nil {
		return nil, err
	}
	if err := d.checkSockets(name); err != nil {
		return nil, err
	}
	lock, err := d.store.TryLock(d.home.Lock("instance", name))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		return nil, &provision.BusyError{Name: fmt.Sprintf("instance %q", name)}
	}
	if _, err := os.Stat(string(d.home.Instance(name))); err == nil || d.waits(name) {
		d.release(lock, name)
		return nil, &provision.ConflictError{Name: name, What: "the name", Have: name, Want: "free"}
	}
	return lock, nil
}

// setAside ends the instance's machine and moves its folder to where it waits.
func (d *Driver) setAside(ctx context.Context, rec state.Record, memory bool, progress func(string)) error {
	name := rec.Spec.Name
	progress("set aside what is there")
	var err error
	if p, running := d.process(name, rec.Run); memory {
		err = d.suspend(ctx, rec, progress)
	} else {
		if running {
			d.flush(ctx, rec)
			err = d.end(name, p)
		}
		err = errors.Join(err, d.settle(rec, running))
	}
	if err != nil {
		return err
	}
	if err := os.Rename(string(d.home.Instance(name)), string(d.home.Before(name))); err != nil {
		return fmt.Errorf("set aside what is there: %w", err)
	}
	d.hook("renew:aside")
	return nil
}

// flushTime bounds flush.
const flushTime = 15 * time.Second

// flush has the guest write out what it has not written yet, as well as it can: the disk may be wanted again.
func (d *Driver) flush(ctx context.Context, rec state.Record) {
	if rec.Run == nil || !rec.Run.Ready {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	ep, err := d.endpoint(rec)
	if err == nil {
		var client *ssh.Client
		if client, err = ssh.Dial(ctx, ep, ssh.Options{}); err == nil {
			_, err = client.Run(ctx, run.Cmd{Argv: []string{"sync"}})
			_ = client.Close()
		}
	}
	if err != nil {
		d.opts.Log(fmt.Sprintf("the guest of %q could not write out its last changes: %v", rec.Spec.Name, err))
	}
}

// waits says whether an instance was set aside and nothing was decided yet.
func (d *Driver) waits(name string) bool {
	_, err := os.Lstat(string(d.home.Before(name)))
	return err == nil
}

// waitingStatus is what is known of an instance that was set aside.
func (d *Driver) waitingStatus(name string) *provision.Status {
	rec, err := d.store.LoadFrom(name, d.home.Before(name))
	if err != nil {
		return &provision.Status{Name: name, Power: provision.Broken, Reason: err.Error()}
	}
	return &provision.Status{Name: name, Power: provision.Stopped, Spec: rec.Spec, Created: rec.Created, Frozen: rec.Frozen, Suspended: rec.Suspended != nil}
}

// unsettled is waits where nobody is at it.
func (d *Driver) unsettled(name string) bool { return d.waits(name) && !d.busy(name) }

// putBack puts an instance that was set aside back in its place, where there is one. It depends on no ctx: what was begun is ended.
func (d *Driver) putBack(name string) error {
	if !d.waits(name) {
		return nil
	}
	d.opts.Log(fmt.Sprintf("%q was not made anew: what was there before is put back", name))
	rec, _ := d.store.Load(name) // whatever it says, no machine of that folder may run
	for p, running := d.process(name, rec.Run); running; p, running = d.process(name, rec.Run) {
		if err := d.kill(name, p); err != nil {
			return err
		}
	}
	if err := d.discard(name); err != nil {
		return err
	}
	return d.settleAside(name, name)
}

// settleAside makes an instance that was set aside the instance of a name that is free.
func (d *Driver) settleAside(name, as string) error {
	dir := d.home.Before(name)
	rec, err := d.store.LoadFrom(name, dir)
	if err != nil {
		return err
	}
	if rec.Spec.Name != as {
		// The new one has the port, where it was asked for.
		rec.Spec.Name, rec.PortChosen = as, true
		if err := d.store.SaveTo(dir, rec); err != nil {
			return err
		}
	}
	d.hook("renew:renamed")
	if err := os.Rename(string(dir), string(d.home.Instance(as))); err != nil {
		return fmt.Errorf("put instance %q in its place: %w", as, err)
	}
	return nil
}

// entries are the records of all instances, with those that wait and have nothing in their place yet.
func (d *Driver) entries() ([]state.Entry, error) {
	entries, err := d.store.List()
	if err != nil {
		return nil, err
	}
	waiting, err := d.waiting()
	if err != nil {
		return nil, err
	}
	for _, name := range waiting {
		if slices.ContainsFunc(entries, func(e state.Entry) bool { return e.Name == name }) {
			continue
		}
		rec, err := d.store.LoadFrom(name, d.home.Before(name))
		if none := (*provision.NotFoundError)(nil); !errors.As(err, &none) {
			entries = append(entries, state.Entry{Name: name, Record: rec, Err: err})
		}
	}
	slices.SortFunc(entries, func(a, b state.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

// waiting are the names of the instances that were set aside.
func (d *Driver) waiting() (names []string, err error) {
	files, err := os.ReadDir(d.home.Instances())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	for _, f := range files {
		if name := layout.BeforeName(f.Name()); name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// waitingFolders are leftovers of renewals that were interrupted.
func (d *Driver) waitingFolders() (left []provision.Leftover, err error) {
	names, err := d.waiting()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if d.unsettled(name) {
			left = append(left, provision.Leftover{
				Kind: kindFolder, Path: filepath.Join(d.home.Instances(), filepath.Base(string(d.home.Before(name)))),
				Why: fmt.Sprintf("instance %q, whose making anew was interrupted; it is put back", name),
			})
		}
	}
	return left, nil
}
