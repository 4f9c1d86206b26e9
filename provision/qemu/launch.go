package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/state"
)

// launch powers the machine on and records it, before and after. Nothing of the host is taken before all checks passed.
func (d *Driver) launch(ctx context.Context, rec *state.Record, progress func(string)) (host.Process, error) {
	none := host.Process{}
	spec := rec.Spec
	for _, question := range []func() (string, error){
		d.checkPlatform, d.binary, d.checkHome,
		func() (string, error) { return "", d.checkSpec(spec) },
		func() (string, error) { return d.checkMemory(spec) },
		d.checkDisk,
	} {
		if _, err := question(); err != nil {
			return none, err
		}
	}
	machine, err := d.machineType(ctx, rec.Machine)
	if err != nil {
		return none, err
	}
	chooser, err := d.chooser(ctx, machine)
	if err != nil {
		return none, err
	}
	choice, err := chooser.Choose(ctx, d.opts.Accelerator, spec.Image)
	if err != nil {
		return none, err
	}
	how, err := d.stand(ctx, rec, machine, choice.Accelerator)
	if err != nil {
		return none, err
	}
	progress("power on: " + choice.Why + "; " + how)
	dir := d.home.Instance(spec.Name)
	if err := d.clear(dir); err != nil {
		return none, err
	}
	rec.Machine = machine
	rec.Run = &state.Run{Accelerator: choice.Accelerator, Started: time.Now().UTC()}
	// The record goes first: a machine that runs unrecorded would be nobody's.
	if err := d.withPort(ctx, rec, func() error { return d.store.Save(*rec) }); err != nil {
		rec.Run = nil
		return none, err
	}
	d.hook("start:recorded")
	meta, err := images.Read(spec.Image)
	if err != nil {
		return none, err
	}
	memory, frozenDisk, err := d.memory(ctx, *rec)
	if err != nil {
		return none, err
	}
	args := argv.Machine{
		Name: spec.Name, Dir: dir, Image: spec.Image, KernelArgs: meta.KernelArgs, Type: machine, Accelerator: choice.Accelerator,
		CPUs: spec.CPUs, MemoryMiB: spec.MemoryMiB, SSHPort: rec.Spec.SSHPort, Memory: memory, FrozenDisk: frozenDisk, NoSandbox: d.opts.NoSandbox,
	}.Args()
	// QEMU would make it readable for all.
	if err := os.WriteFile(dir.Console(), nil, 0o600); err != nil {
		return none, fmt.Errorf("make the guest's console: %w", err)
	}
	p, err := d.exec(ctx, dir.QEMULog(), args)
	if err != nil {
		return none, err
	}
	d.hook("start:launched")
	return p, d.record(rec, p)
}

// record keeps which process the machine is.
func (d *Driver) record(rec *state.Record, p host.Process) error {
	rec.Run.PID, rec.Run.StartTicks, rec.Run.HostBoot = p.PID, p.StartTicks, p.HostBoot
	return d.store.Save(*rec)
}

// exec starts QEMU in a session of its own, so that neither the end of labctl nor a signal to its terminal reaches it.
func (d *Driver) exec(ctx context.Context, log string, args []string) (host.Process, error) {
	binary, err := d.binary()
	if err != nil {
		return host.Process{}, err
	}
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return host.Process{}, fmt.Errorf("open QEMU's log: %w", err)
	}
	defer stderr.Close()
	line := append(append(withoutCapabilities(ctx), binary), args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return host.Process{}, fmt.Errorf("start QEMU: %w", err)
	}
	p, err := host.Identify(cmd.Process.Pid)
	// Reaped here for as long as labctl is its parent, by the system later.
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return host.Process{}, died(log)
	}
	awaitExec(ctx, p, binary)
	return p, nil
}

// awaitExec returns when the process shows QEMU's own arguments, by which it can be found again, or has ended. Until then,
// for a moment, it shows none.
func awaitExec(ctx context.Context, p host.Process, binary string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		if args := host.Argv(p.PID); len(args) > 0 && args[0] == binary {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// withoutCapabilities is what goes in front of QEMU where labctl runs as root. A user of its own (-runas, or a
// credential) could not reach the files below root's home, and the sandbox forbids QEMU to change its user. So it stays
// root, but without a single capability and with no way to gain one: a root that may only do what file modes allow.
func withoutCapabilities(ctx context.Context) []string {
	if os.Geteuid() != 0 {
		return nil
	}
	path, err := exec.LookPath("setpriv")
	if err != nil {
		return nil
	}
	prefix := []string{path, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"}
	// In some containers even root may not give capabilities up.
	if _, err := ask(ctx, append(prefix, "true")...); err != nil {
		return nil
	}
	return prefix
}
