package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/accel"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
)

const (
	// overheadMiB is what a machine needs beside the guest's memory: QEMU itself and, under emulation, translated code.
	overheadMiB = 128 + argv.TranslationMiB
	// minFreeDisk is the least free space for instances. A guest that meets a full host stops in the middle of its work.
	minFreeDisk = 3 << 30
)

// Preflight implements provision.Driver.
func (d *Driver) Preflight(ctx context.Context, spec provision.Spec) []check.Result {
	ask := func(id, title string, question func() (string, error)) check.Result {
		return check.Check{ID: id, Title: title, Ask: func(context.Context) (check.Outcome, error) {
			got, err := question()
			if err != nil {
				return refusal(err)
			}
			return check.Pass(got), nil
		}}.Run(ctx)
	}
	results := []check.Result{
		ask("platform", "the host's platform", d.checkPlatform),
		ask("qemu", "QEMU", func() (string, error) { return d.version(ctx) }),
		ask("qemu-img", "qemu-img", d.imgBinary),
		ask("accelerator", "how guests run", func() (string, error) { return d.checkAccelerator(ctx) }),
		ask("state-folder", "the state folder", d.checkHome),
		ask("memory", "free memory", func() (string, error) {
			if d.absent(spec.Name) && len(d.spares(spec)) > 0 {
				return "a spare stands ready, which has its memory", nil
			}
			return d.checkMemory(spec)
		}),
		ask("disk", "free disk space", d.checkDisk),
	}
	if spec.Name == "" {
		return results
	}
	return append(results,
		ask("name", "the name", func() (string, error) { return spec.Name, layout.CheckName("instance", spec.Name) }),
		ask("socket-path", "the length of socket paths", func() (string, error) { return "", d.checkSockets(spec.Name) }),
		ask("ssh-port", "the SSH port", func() (string, error) { return d.checkPort(spec) }),
		ask("image", "the image", func() (string, error) { return "", d.checkSpec(spec) }),
	)
}

// refusal turns an error that states a fact about this host into a failed check; any other means that it could not be asked.
func refusal(err error) (check.Outcome, error) {
	var hinted interface {
		error
		Hint() string
	}
	if errors.As(err, &hinted) {
		return check.Fail("", hinted.Error(), hinted.Hint()), nil
	}
	var spec *provision.SpecError
	if errors.As(err, &spec) {
		return check.Fail(spec.Field+" "+spec.Want, spec.Got, "change the instance's size"), nil
	}
	var name *layout.NameError
	if errors.As(err, &name) {
		return check.Fail("", name.Error(), "choose another name"), nil
	}
	return check.Outcome{}, err
}

// admit refuses a spec that cannot be made on this host, before anything is changed.
func (d *Driver) admit(ctx context.Context, spec provision.Spec) error {
	if _, err := d.checkPlatform(); err != nil {
		return err
	}
	if _, err := d.imgBinary(); err != nil {
		return err
	}
	if _, err := d.checkHome(); err != nil {
		return err
	}
	if err := d.checkSockets(spec.Name); err != nil {
		return err
	}
	if err := d.checkSpec(spec); err != nil {
		return err
	}
	if _, err := d.checkPort(spec); err != nil {
		return err
	}
	_, err := d.checkDisk()
	return err
}

func (d *Driver) checkPlatform() (string, error) {
	got := runtime.GOOS + "/" + runtime.GOARCH
	if got != "linux/amd64" {
		return "", &provision.HostError{Problem: "instances run on linux/amd64 only, and this is " + got, Fix: "use a Linux machine with an x86-64 processor"}
	}
	return got, nil
}

func (d *Driver) checkAccelerator(ctx context.Context) (string, error) {
	if d.opts.Accelerator == argv.TCG {
		return "software emulation, as asked for", nil
	}
	chooser, err := d.chooser(ctx, "")
	if err != nil {
		return "", err
	}
	known := chooser.Known()
	if d.opts.Accelerator == argv.KVM && known.Accelerator == argv.TCG {
		return "", &provision.HostError{Problem: "KVM was asked for, but " + known.Cause, Fix: "set the accelerator to auto"}
	}
	return known.Why, nil
}

// chooser is ready to choose an accelerator. machine may be empty where it is not going to probe.
func (d *Driver) chooser(ctx context.Context, machine string) (accel.Chooser, error) {
	binary, err := d.binary()
	if err != nil {
		return accel.Chooser{}, err
	}
	version, err := d.version(ctx)
	if err != nil {
		return accel.Chooser{}, err
	}
	return accel.Chooser{Binary: binary, Version: version, Machine: machine, Device: d.kvm, Facts: d.home.HostFacts()}, nil
}

// checkHome wants a state folder of our own that nobody else can look into: instances hold private keys.
func (d *Driver) checkHome() (string, error) {
	path := d.home.State
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		parent := host.Existing(path)
		if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
			return "", &provision.HostError{Problem: fmt.Sprintf("%s cannot be made, because %s is not writable", path, parent), Fix: "make it writable, or choose another state folder"}
		}
		return path + ", which will be made", nil
	}
	if err != nil {
		return "", err
	}
	switch owner, known := host.Owner(info); {
	case !info.IsDir():
		return "", &provision.HostError{Problem: path + " is not a folder", Fix: "choose another state folder"}
	case known && owner != os.Geteuid():
		return "", &provision.HostError{Problem: fmt.Sprintf("%s belongs to user %d, not to you (%d)", path, owner, os.Geteuid()), Fix: "run labctl as its owner, or choose another state folder"}
	case info.Mode().Perm()&0o077 != 0:
		return "", &provision.HostError{Problem: fmt.Sprintf("%s can be looked into by others (mode %o)", path, info.Mode().Perm()), Fix: "run `chmod 700 " + path + "`"}
	}
	if err := unix.Access(path, unix.W_OK|unix.X_OK); err != nil {
		return "", &provision.HostError{Problem: path + " is not writable", Fix: "make it writable, or choose another state folder"}
	}
	return path, nil
}

func (d *Driver) checkSockets(name string) error {
	for _, path := range sockets(d.home.Instance(name)) {
		if len(path) > layout.SocketPathLimit {
			return &provision.HostError{
				Problem: fmt.Sprintf("the socket path %s has %d bytes, %d more than Linux allows", path, len(path), len(path)-layout.SocketPathLimit),
				Fix:     "use a shorter instance name or a shorter state folder",
			}
		}
	}
	return nil
}

// checkMemory wants room for one instance.
func (d *Driver) checkMemory(spec provision.Spec) (string, error) {
	freeMiB, err := d.unpromised(spec.Name)
	if err != nil {
		return "", err
	}
	need := int64(spec.MemoryMiB + overheadMiB)
	if spec.MemoryMiB > 0 && freeMiB < need {
		return "", &provision.ResourceError{
			What: "memory", Need: fmt.Sprintf("%d MiB (%d for the guest, %d for QEMU)", need, spec.MemoryMiB, overheadMiB), Have: fmt.Sprintf("%d MiB", freeMiB),
			Fix: "end other programs, stop other instances, or give the instance less memory",
		}
	}
	return fmt.Sprintf("%d MiB", freeMiB), nil
}

// growth is the disk space that Fits wants for each instance.
const growth = 1 << 30

// Fits implements provision.Limited.
func (d *Driver) Fits(_ context.Context, specs []provision.Spec) error {
	var need, off int64
	taken := map[string]bool{}
	for _, spec := range specs {
		rec, err := d.store.Load(spec.Name)
		if _, running := d.process(spec.Name, rec.Run); err == nil && running {
			continue
		}
		if none := (*provision.NotFoundError)(nil); errors.As(err, &none) {
			spares := slices.DeleteFunc(d.spares(spec), func(name string) bool { return taken[name] })
			if len(spares) > 0 {
				taken[spares[0]] = true // it has its memory
				continue
			}
		}
		need += int64(spec.MemoryMiB + overheadMiB)
		off++
	}
	freeMiB, err := d.unpromised("")
	if err != nil || off == 0 {
		return err
	}
	if freeMiB < need {
		return &provision.ResourceError{
			What: "memory", Need: fmt.Sprintf("%d MiB for %d instances", need, off), Have: fmt.Sprintf("%d MiB, enough for %d of them", freeMiB, freeMiB*off/need),
			Fix: "begin with fewer, stop other instances, or give each less memory; `labctl up --queue` waits for room",
		}
	}
	free, err := host.DiskFree(d.home.Instances())
	if err != nil {
		return err
	}
	if want := minFreeDisk + off*growth; free < want {
		return &provision.ResourceError{
			What: "disk space below " + d.home.State, Need: fmt.Sprintf("%.1f GiB for %d instances", gib(want), off), Have: fmt.Sprintf("%.1f GiB", gib(free)),
			Fix: "begin with fewer, or remove files, instances or images that are not needed",
		}
	}
	return nil
}

// unpromised is the free memory in MiB after running guests have touched all they were promised. The memory of the instance of this
// name counts as free.
func (d *Driver) unpromised(name string) (int64, error) {
	free, err := d.freeMemory()
	if err != nil {
		return 0, err
	}
	entries, err := d.store.List()
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if e.Err != nil || e.Record.Run == nil {
			continue
		}
		p, ok := d.process(e.Name, e.Record.Run)
		if !ok {
			continue
		}
		resident, err := host.Resident(p.PID)
		switch {
		case err != nil:
		case e.Name == name:
			free += resident // its machine ends before another starts
		default:
			free -= max(int64(e.Record.Spec.MemoryMiB)<<20-resident, 0)
		}
	}
	return max(free>>20, 0), nil
}

func (d *Driver) checkDisk() (string, error) {
	free, err := host.DiskFree(d.home.Instances())
	if err != nil {
		return "", err
	}
	if free < minFreeDisk {
		return "", &provision.ResourceError{
			What: "disk space below " + d.home.State, Need: fmt.Sprintf("%.1f GiB", gib(minFreeDisk)), Have: fmt.Sprintf("%.1f GiB", gib(free)),
			Fix: "remove files, instances or images that are not needed",
		}
	}
	return fmt.Sprintf("%.1f GiB", gib(free)), nil
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// checkPort looks at the port that was asked for. An instance's own machine may hold it.
func (d *Driver) checkPort(spec provision.Spec) (string, error) {
	if spec.SSHPort == 0 {
		return "a free one will be taken", nil
	}
	if spec.SSHPort < 1 || spec.SSHPort > 65535 {
		return "", &provision.SpecError{Field: "the SSH port", Got: fmt.Sprint(spec.SSHPort), Want: "1 to 65535, or 0 for a free one"}
	}
	if rec, err := d.store.Load(spec.Name); err == nil && rec.Spec.SSHPort == spec.SSHPort {
		if _, running := d.process(spec.Name, rec.Run); running {
			return fmt.Sprintf("%d, in use by the instance itself", spec.SSHPort), nil
		}
	}
	return fmt.Sprint(spec.SSHPort), d.portFree(spec.Name, spec.SSHPort)
}

// hashLimit is the size up to which an image's file is hashed at each start: kernel and initial RAM disk take a few
// hundredths of a second. The disk takes seconds and is left to `labctl image inspect` and doctor.
const hashLimit = 128 << 20

// checkSpec wants an image that is what the spec says, and a guest that is big enough for it.
func (d *Driver) checkSpec(spec provision.Spec) error {
	meta, err := images.Read(spec.Image)
	if err != nil {
		return err
	}
	name := filepath.Base(string(spec.Image))
	if meta.Digest != spec.ImageDigest {
		return &provision.ImageChangedError{Name: spec.Name, Image: name, Want: spec.ImageDigest, Have: meta.Digest}
	}
	for _, f := range meta.Files {
		if err := checkFile(name, filepath.Join(string(spec.Image), f.Name), f); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		field string
		got   int
		least int
		unit  string
	}{
		{"CPUs", spec.CPUs, 1, ""}, {"memory", spec.MemoryMiB, max(meta.MinMemoryMiB, 64), " MiB"}, {"disk", spec.DiskGiB, max(meta.MinDiskGiB, 1), " GiB"},
	} {
		if c.got < c.least {
			return &provision.SpecError{Field: c.field, Got: fmt.Sprintf("%d%s", c.got, c.unit), Want: fmt.Sprintf("at least %d%s", c.least, c.unit)}
		}
	}
	return nil
}

func checkFile(image, path string, want images.File) error {
	damaged := func(want, got string) error {
		return &images.DamagedError{Name: image, File: filepath.Base(path), Want: want, Got: got}
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return damaged(fmt.Sprintf("%d bytes long", want.Size), "missing")
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != want.Size {
		return damaged(fmt.Sprintf("%d bytes long", want.Size), fmt.Sprintf("%d bytes long", info.Size()))
	}
	if info.Size() > hashLimit {
		return nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.SHA256 {
		return damaged("sha256 "+want.SHA256, "sha256 "+got)
	}
	return nil
}
