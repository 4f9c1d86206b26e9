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

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/state"
)

// The kinds of leftovers.
const (
	kindProcess = "process"
	kindFolder  = "folder"
	kindFile    = "file"
)

// Leftovers implements provision.Driver. What another labctl is working on is no leftover.
func (d *Driver) Leftovers(context.Context) ([]provision.Leftover, error) {
	entries, err := d.store.List()
	if err != nil {
		return nil, err
	}
	// owned are the folders that are instances, broken ones included: what is theirs goes with them, by Delete.
	owned := map[string]state.Entry{}
	var left []provision.Leftover
	for _, e := range entries {
		if d.busy(e.Name) {
			owned[e.Name] = e
			continue
		}
		dir := string(d.home.Instance(e.Name))
		var broken *provision.BrokenError
		why := d.strayedSpare(e)
		switch {
		case why != "":
			left = append(left, provision.Leftover{Kind: kindFolder, Path: dir, Why: why})
		case e.Err == nil && !e.Record.Complete:
			left = append(left, provision.Leftover{Kind: kindFolder, Path: dir, Why: "half made: making the instance was interrupted"})
		case errors.As(e.Err, &broken) && d.unused(e.Name) && d.unrecorded(e.Name):
			left = append(left, provision.Leftover{Kind: kindFolder, Path: dir, Why: "half made: it has neither record nor disk"})
		default:
			owned[e.Name] = e
			left = append(left, d.strayFiles(e)...)
		}
	}
	processes, err := d.strayProcesses(owned)
	if err != nil {
		return nil, err
	}
	removed, err := d.removedFolders()
	if err != nil {
		return nil, err
	}
	locks, err := d.strayLocks(entries)
	if err != nil {
		return nil, err
	}
	waiting, err := d.waitingFolders()
	if err != nil {
		return nil, err
	}
	return slices.Concat(processes, left, removed, waiting, locks), nil
}

// busy says whether another labctl works on the instance.
func (d *Driver) busy(name string) bool {
	path := d.home.Lock("instance", name)
	if _, err := os.Stat(path); err != nil {
		return false
	}
	lock, err := d.store.TryLock(path)
	if err != nil || lock == nil {
		return true
	}
	_ = lock.Release()
	return false
}

func (d *Driver) unrecorded(name string) bool {
	_, err := os.Stat(d.home.Instance(name).Record())
	return errors.Is(err, fs.ErrNotExist)
}

// strayProcesses are machines of folders below ours that no instance owns, and second machines of one instance.
func (d *Driver) strayProcesses(owned map[string]state.Entry) ([]provision.Leftover, error) {
	found, err := host.Find(func(args []string) bool {
		_, ok := argv.Owner(args, d.home.Instances())
		return ok
	})
	if err != nil {
		return nil, err
	}
	var left []provision.Leftover
	started := map[string]state.Entry{}
	for _, e := range owned {
		if r := e.Record.Run; r != nil && r.Folder != "" {
			started[r.Folder] = e
		}
	}
	for _, f := range found {
		dir, _ := argv.Owner(f.Argv, d.home.Instances())
		name := filepath.Base(string(dir))
		e, ok := owned[name]
		if !ok {
			// One that was a spare shows the folder that it was started in.
			e, ok = started[name]
			name = e.Name
		}
		if !ok {
			left = append(left, provision.Leftover{Kind: kindProcess, Path: string(dir), PID: f.PID, Why: "a machine without an instance"})
			continue
		}
		if p, running := d.process(name, e.Record.Run); running && p.PID != f.PID && !d.busy(name) {
			left = append(left, provision.Leftover{Kind: kindProcess, Path: string(dir), PID: f.PID, Why: "a second machine of the same instance"})
		}
	}
	return left, nil
}

// strayFiles are what interrupted changes and ended machines left in an instance's folder.
func (d *Driver) strayFiles(e state.Entry) []provision.Leftover {
	dir := d.home.Instance(e.Name)
	var left []provision.Leftover
	if _, running := d.process(e.Name, e.Record.Run); !running {
		for _, path := range sockets(dir) {
			if _, err := os.Lstat(path); err == nil {
				left = append(left, provision.Leftover{Kind: kindFile, Path: path, Why: "a socket of a machine that has ended"})
			}
		}
	}
	if _, err := os.Lstat(dir.Suspended()); err == nil && e.Err == nil && e.Record.Suspended == nil {
		left = append(left, provision.Leftover{Kind: kindFile, Path: dir.Suspended(), Why: "memory of a guest that has gone on since"})
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return left
	}
	for _, f := range entries {
		if isTemporary(f.Name()) && f.Type().IsRegular() {
			left = append(left, provision.Leftover{Kind: kindFile, Path: filepath.Join(string(dir), f.Name()), Why: "a file whose writing was interrupted"})
		}
	}
	return left
}

func (d *Driver) removedFolders() ([]provision.Leftover, error) {
	entries, err := os.ReadDir(d.home.Instances())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var left []provision.Leftover
	for _, e := range entries {
		if layout.IsRemoved(e.Name()) {
			left = append(left, provision.Leftover{Kind: kindFolder, Path: filepath.Join(d.home.Instances(), e.Name()), Why: "its removal was interrupted"})
		}
	}
	return left, nil
}

// strayLocks are lock files of instances that are gone.
func (d *Driver) strayLocks(entries []state.Entry) ([]provision.Leftover, error) {
	files, err := filepath.Glob(d.home.Lock("instance", "*"))
	if err != nil {
		return nil, err
	}
	var left []provision.Leftover
	for _, path := range files {
		name := d.lockedName(path)
		there := d.waits(name) || slices.ContainsFunc(entries, func(e state.Entry) bool { return e.Name == name })
		if !there && !d.busy(name) {
			left = append(left, provision.Leftover{Kind: kindFile, Path: path, Why: fmt.Sprintf("the lock of instance %q, which is gone", name)})
		}
	}
	return left, nil
}

// lockedName is the instance that a lock file belongs to.
func (d *Driver) lockedName(path string) string {
	before, after, _ := strings.Cut(d.home.Lock("instance", "*"), "*")
	return strings.TrimSuffix(strings.TrimPrefix(path, before), after)
}

// Sweep implements provision.Driver. Each leftover is looked at again under its instance's lock; what is none any more, or
// is being worked on, stays.
func (d *Driver) Sweep(ctx context.Context, leftovers []provision.Leftover) error {
	now, err := d.Leftovers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range leftovers {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		if slices.ContainsFunc(now, func(n provision.Leftover) bool { return n.Kind == l.Kind && n.Path == l.Path && n.PID == l.PID }) {
			errs = append(errs, d.sweep(l))
		}
	}
	return errors.Join(errs...)
}

func (d *Driver) sweep(l provision.Leftover) error {
	if l.Kind == kindFolder && layout.IsRemoved(filepath.Base(l.Path)) {
		return os.RemoveAll(l.Path)
	}
	isLock := filepath.Dir(l.Path) == d.home.Locks()
	name := filepath.Base(l.Path)
	waiting := layout.BeforeName(name)
	switch {
	case waiting != "":
		name = waiting
	case isLock:
		name = d.lockedName(l.Path)
	case l.Kind == kindFile:
		name = filepath.Base(filepath.Dir(l.Path))
	}
	lock, err := d.store.TryLock(d.home.Lock("instance", name))
	if err != nil || lock == nil {
		return err
	}
	gone := false
	switch {
	case waiting != "":
		err = d.putBack(name)
	case isLock:
		gone = true
	case l.Kind == kindProcess:
		err = d.sweepProcess(name, l)
	case l.Kind == kindFolder:
		// Under the lock it is certain: a record that is complete, or a disk without one, is somebody's work.
		rec, loadErr := d.store.Load(name)
		switch {
		case d.strayedSpare(state.Entry{Name: name, Record: rec, Err: loadErr}) != "":
			err, gone = d.remove(name), true
		case loadErr == nil && !rec.Complete || loadErr != nil && d.unused(name) && d.unrecorded(name):
			err, gone = d.discard(name), true
		}
	default:
		err = removeFile(l.Path)
	}
	if _, statErr := os.Stat(string(d.home.Instance(name))); gone || errors.Is(statErr, fs.ErrNotExist) {
		return errors.Join(err, lock.Remove())
	}
	return errors.Join(err, lock.Release())
}

// sweepProcess ends a machine, once it is certain that the PID is still that machine's.
func (d *Driver) sweepProcess(name string, l provision.Leftover) error {
	p, err := host.Identify(l.PID)
	if err != nil {
		return nil // it has ended
	}
	if dir, ok := argv.Owner(host.Argv(l.PID), d.home.Instances()); !ok || string(dir) != l.Path {
		return nil
	}
	return d.kill(name, p)
}
