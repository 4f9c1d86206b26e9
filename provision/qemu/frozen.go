package qemu

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/state"
)

// frozenFormat changes when frozen guests of before can no longer be resumed.
const frozenFormat = "1"

// Beyond frozenOld a frozen guest should be made anew: its clock jumps by its age when it is resumed. Beyond frozenTooOld its
// certificates come near their end.
const (
	frozenOld    = 30 * 24 * time.Hour
	frozenTooOld = 200 * 24 * time.Hour
)

// FrozenKey implements provision.Freezer.
func (d *Driver) FrozenKey(ctx context.Context, spec provision.Spec) (string, error) {
	machine, err := d.machineType(ctx, "")
	if err != nil {
		return "", err
	}
	chooser, err := d.chooser(ctx, machine)
	if err != nil {
		return "", err
	}
	choice, err := chooser.Choose(ctx, d.opts.Accelerator, spec.Image)
	if err != nil {
		return "", err
	}
	return d.frozenKey(spec, machine, choice.Accelerator)
}

func (d *Driver) frozenKey(spec provision.Spec, machine, accelerator string) (string, error) {
	meta, err := images.Read(spec.Image)
	if err != nil {
		return "", err
	}
	binary, err := d.binary()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	program, err := os.Open(binary)
	if err != nil {
		return "", err
	}
	defer program.Close()
	if _, err := io.Copy(sum, program); err != nil {
		return "", err
	}
	// The command line without what may differ between a guest and its clones is the hardware that the guest sees.
	hardware := argv.Machine{
		Name: "frozen", Dir: "/instance", Image: "/image", KernelArgs: meta.KernelArgs, Type: machine, Accelerator: accelerator,
		CPUs: spec.CPUs, MemoryMiB: spec.MemoryMiB, SSHPort: 1,
	}.Args()
	parts := append([]string{frozenFormat, meta.Digest, fmt.Sprint(spec.DiskGiB)}, hardware...)
	if accelerator == argv.KVM {
		// Under KVM the guest sees the host's own processor.
		processor, err := processor("/proc/cpuinfo")
		if err != nil {
			return "", err
		}
		parts = append(parts, processor...)
	}
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))[:32], nil
}

// processor is what tells one model of processor from another.
func processor(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var lines []string
	for in := bufio.NewScanner(file); in.Scan() && in.Text() != ""; {
		name, _, _ := strings.Cut(in.Text(), "\t")
		switch name {
		case "vendor_id", "model name", "stepping", "microcode", "flags":
			lines = append(lines, in.Text())
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s names no processor", path)
	}
	return lines, nil
}

// stand makes the disk of an instance that was not handed out yet: on the image's frozen guest where it has one that fits,
// whose clone the instance then is, and otherwise on the image. It says which and why. What is on another's disk stays.
func (d *Driver) stand(ctx context.Context, rec *state.Record, machine, accelerator string) (string, error) {
	if !rec.Fresh {
		if err := d.checkFrozenDisk(*rec); err != nil || rec.Suspended == nil {
			return "boot", err
		}
		return d.resumable(rec, machine, accelerator)
	}
	name, why, err := d.choose(rec.Spec, machine, accelerator)
	if err != nil {
		return "", err
	}
	rec.Frozen = name
	return why, d.makeDisk(ctx, *rec)
}

// choose returns the name of the frozen guest to clone, or none, and why.
func (d *Driver) choose(spec provision.Spec, machine, accelerator string) (name, why string, err error) {
	switch {
	case spec.Freezable:
		return "", "boot", nil
	case spec.Cold:
		return "", "boot, as asked for", nil
	}
	key, err := d.frozenKey(spec, machine, accelerator)
	if err != nil {
		return "", "", err
	}
	frozen, err := images.FindFrozen(spec.Image, key)
	var none *images.NoFrozenError
	if errors.As(err, &none) {
		return "", "boot, because " + whyNone(spec), nil
	}
	if err != nil {
		return "", "", err
	}
	age := time.Since(frozen.Created)
	if age > frozenTooOld {
		return "", fmt.Sprintf("boot, because the image's frozen guest is %d days old; `labctl image build` makes it anew", int(age.Hours()/24)), nil
	}
	for _, f := range frozen.Files {
		err := checkFile(filepath.Base(string(spec.Image)), filepath.Join(string(spec.Image.Frozen(frozen.Name)), f.Name), f)
		var damaged *images.DamagedError
		if errors.As(err, &damaged) {
			return "", fmt.Sprintf("boot, because of the image's frozen guest %s is %s; `labctl image build` makes it anew", f.Name, damaged.Got), nil
		}
		if err != nil {
			return "", "", err
		}
	}
	why = "a clone of the image's frozen guest"
	if age > frozenOld {
		why += fmt.Sprintf(", which is %d days old; `labctl image build` makes it anew", int(age.Hours()/24))
	}
	return frozen.Name, why, nil
}

// whyNone says why no frozen guest of the image fits.
func whyNone(spec provision.Spec) string {
	all, err := images.FrozenGuests(spec.Image)
	if err != nil || len(all) == 0 {
		return "the image has no frozen guest; `labctl image build` makes one"
	}
	for _, f := range all {
		if f.CPUs == spec.CPUs && f.MemoryMiB == spec.MemoryMiB && f.DiskGiB == spec.DiskGiB {
			return "the image's frozen guest is of another QEMU or processor; `labctl image build` makes one for this"
		}
	}
	f := all[0]
	return fmt.Sprintf("the image's frozen guest has %d CPUs, %d MiB of memory and %d GiB of disk", f.CPUs, f.MemoryMiB, f.DiskGiB)
}

// checkFrozenDisk wants the layer that a clone's disk stands on.
func (d *Driver) checkFrozenDisk(rec state.Record) error {
	if rec.Frozen == "" {
		return nil
	}
	dir := rec.Spec.Image.Frozen(rec.Frozen)
	frozen, err := images.ReadFrozen(dir)
	if err != nil {
		return &images.DamagedError{Name: filepath.Base(string(rec.Spec.Image)), File: filepath.Base(dir.Disk()), Want: "there", Got: "missing"}
	}
	for _, f := range frozen.Files {
		if path := filepath.Join(string(dir), f.Name); path == dir.Disk() {
			return checkFile(filepath.Base(string(rec.Spec.Image)), path, f)
		}
	}
	return nil
}

// memory is where the machine's memory is, and frozenDisk the layer below its own disk.
func (d *Driver) memory(ctx context.Context, rec state.Record) (memory argv.Memory, frozenDisk string, err error) {
	if rec.Spec.Freezable {
		memory = argv.Memory{File: d.home.Instance(rec.Spec.Name).Memory(), Shared: true}
	}
	if rec.Suspended != nil {
		memory.Incoming = true // all of it comes with the stream
	}
	if rec.Frozen == "" {
		return memory, "", nil
	}
	frozen := rec.Spec.Image.Frozen(rec.Frozen)
	if rec.Fresh {
		version, err := d.version(ctx)
		if err != nil {
			return memory, "", err
		}
		memory = argv.Memory{File: frozen.Memory(), ReadOnly: argv.AtLeast(version, 8, 2), Incoming: true}
	}
	return memory, frozen.Disk(), nil
}
