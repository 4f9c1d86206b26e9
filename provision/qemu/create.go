package qemu

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/state"
)

// Create implements provision.Driver. The record comes first and says "half made" until keys and disk are there, so that
// whatever an interrupted Create leaves is known for what it is.
func (d *Driver) Create(ctx context.Context, spec provision.Spec) error {
	lock, err := d.lock(ctx, spec.Name)
	if err != nil {
		return err
	}
	defer d.release(lock, spec.Name)
	return d.create(ctx, spec)
}

// create is Create by who holds the lock.
func (d *Driver) create(ctx context.Context, spec provision.Spec) error {
	rec, err := d.store.Load(spec.Name)
	var none *provision.NotFoundError
	var broken *provision.BrokenError
	switch {
	case err == nil && rec.Spec.Spare:
		return &provision.ConflictError{Name: spec.Name, What: "the name", Have: "a spare's", Want: "free"}
	case err == nil && rec.Complete:
		return d.reshape(ctx, rec, spec)
	case err == nil, errors.As(err, &none):
	case errors.As(err, &broken) && d.unused(spec.Name):
	default:
		return err
	}
	if err := d.admit(ctx, spec); err != nil {
		return err
	}
	if none != nil {
		if taken, err := d.take(ctx, spec); taken || err != nil {
			return err
		}
	}
	if rec, err = d.begin(ctx, spec); err == nil {
		err = d.fill(ctx, rec)
	}
	if err != nil {
		// Nothing of it was ever used.
		return errors.Join(err, d.discard(spec.Name))
	}
	rec.Complete, rec.Fresh = true, true
	if err := d.store.Save(rec); err != nil {
		return err
	}
	return d.tidy(rec)
}

// unused says whether a folder without a usable record holds nothing that could be missed: no disk.
func (d *Driver) unused(name string) bool {
	_, err := os.Stat(d.home.Instance(name).Disk())
	return errors.Is(err, fs.ErrNotExist)
}

// reshape accepts an existing instance where it is as wanted; its port can still be changed while it is off.
func (d *Driver) reshape(ctx context.Context, rec state.Record, want provision.Spec) error {
	_, running := d.process(rec.Spec.Name, rec.Run)
	move := !running && want.SSHPort != 0 && want.SSHPort != rec.Spec.SSHPort
	have := rec.Spec
	if move {
		have.SSHPort = want.SSHPort
	}
	if err := provision.Conflict(have, want); err != nil || !move {
		return err
	}
	rec.Spec.SSHPort, rec.PortChosen = want.SSHPort, false
	return d.withPort(ctx, &rec, func() error { return d.store.Save(rec) })
}

// begin makes the folder and the record of a half-made instance.
func (d *Driver) begin(ctx context.Context, spec provision.Spec) (state.Record, error) {
	machine, err := d.machineType(ctx, "")
	if err != nil {
		return state.Record{}, err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails, see crypto/rand
	rec := state.Record{
		Driver: Name, Spec: spec, PortChosen: spec.SSHPort == 0, Created: time.Now().UTC(), MachineID: hex.EncodeToString(id), Machine: machine,
	}
	rec.Spec.SSHPort = d.keptPort(spec)
	if err := os.MkdirAll(string(d.home.Instance(spec.Name)), 0o700); err != nil {
		return rec, fmt.Errorf("make the instance's folder: %w", err)
	}
	d.hook("create:folder")
	err = d.withPort(ctx, &rec, func() error { return d.store.Save(rec) })
	d.hook("create:record")
	return rec, err
}

// fill makes keys and disk. What is there already stays: it may be of the Create that this one finishes.
func (d *Driver) fill(ctx context.Context, rec state.Record) error {
	dir := d.home.Instance(rec.Spec.Name)
	for path, comment := range map[string]string{dir.UserKey(): "labctl", dir.HostKey(): rec.Spec.Name} {
		if _, err := os.Stat(path); err == nil {
			continue
		}
		private, _, err := ssh.GenerateKey(comment)
		if err != nil {
			return err
		}
		if err := layout.Write(path, private); err != nil {
			return fmt.Errorf("keep the instance's key: %w", err)
		}
	}
	d.hook("create:keys")
	return d.makeDisk(ctx, rec)
}

// makeDisk makes the disk of an instance that was never handed out, in the place of the one that may be there.
func (d *Driver) makeDisk(ctx context.Context, rec state.Record) error {
	dir := d.home.Instance(rec.Spec.Name)
	qemuImg, err := d.imgBinary()
	if err != nil {
		return err
	}
	base, format := rec.Spec.Image.Disk(), "raw"
	if rec.Frozen != "" {
		base, format = rec.Spec.Image.Frozen(rec.Frozen).Disk(), "qcow2"
	}
	fresh := dir.Disk() + freshSuffix
	if _, err := ask(ctx, append([]string{qemuImg}, argv.Overlay(base, format, fresh, rec.Spec.DiskGiB)...)...); err != nil {
		return fmt.Errorf("make the instance's disk: %w", err)
	}
	if err := os.Chmod(fresh, 0o600); err != nil {
		return fmt.Errorf("make the instance's disk: %w", err)
	}
	if err := os.Rename(fresh, dir.Disk()); err != nil {
		return fmt.Errorf("make the instance's disk: %w", err)
	}
	d.hook("create:disk")
	return nil
}

// freshSuffix is that of a disk on its way in.
const freshSuffix = ".tmp"

// isTemporary says of a file in an instance's folder whether it is one on its way in, which nobody writes while the lock
// is held by another.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, freshSuffix)
}

// tidy removes what an interrupted change left in the instance's folder. The caller holds the lock.
func (d *Driver) tidy(rec state.Record) error {
	dir := string(d.home.Instance(rec.Spec.Name))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("tidy the instance's folder: %w", err)
	}
	for _, e := range entries {
		if isTemporary(e.Name()) && e.Type().IsRegular() {
			if err := removeFile(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("tidy the instance's folder: %w", err)
			}
		}
	}
	if rec.Suspended == nil {
		return removeFile(d.home.Instance(rec.Spec.Name).Suspended())
	}
	return nil
}

// sockets are the files that a machine makes and that are of no use without it.
func sockets(dir layout.InstanceDir) []string {
	return []string{dir.QMP(), dir.Agent(), dir.Transfer()}
}
