package qemu

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/run"
)

// install is how to get what a host lacks, on the systems that labctl is made for.
const install = "install it: apt-get install qemu-system-x86 qemu-utils"

// toolTime bounds a question to one of QEMU's programs.
const toolTime = 20 * time.Second

func (d *Driver) binary() (string, error) {
	return tool(d.opts.Binary, "qemu-system-x86_64")
}

func (d *Driver) imgBinary() (string, error) {
	return tool(d.opts.ImgBinary, "qemu-img")
}

func tool(wanted, name string) (string, error) {
	if wanted == "" {
		wanted = name
	}
	path, err := exec.LookPath(wanted)
	if err != nil {
		return "", &provision.HostError{Problem: name + " is not installed, or not on PATH", Fix: install}
	}
	return path, nil
}

func ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, toolTime, fmt.Errorf("no answer within %s", toolTime))
	defer cancel()
	res, err := run.Local{}.Run(ctx, run.Cmd{Argv: args})
	return string(res.Stdout), err
}

// version is QEMU's version.
func (d *Driver) version(ctx context.Context) (string, error) {
	binary, err := d.binary()
	if err != nil {
		return "", err
	}
	out, err := ask(ctx, binary, "--version")
	if err != nil {
		return "", err
	}
	version, err := argv.Version(out)
	if err != nil {
		return "", fmt.Errorf("%s: %w", binary, err)
	}
	return version, nil
}

// machineType is the machine type to use: the kept one, or where this QEMU does not offer that any more, or none is kept,
// the newest q35.
func (d *Driver) machineType(ctx context.Context, kept string) (string, error) {
	binary, err := d.binary()
	if err != nil {
		return "", err
	}
	help, err := ask(ctx, binary, "-machine", "help")
	if err != nil {
		return "", err
	}
	all, newest, err := argv.MachineTypes(help)
	if err != nil {
		return "", fmt.Errorf("%s: %w", binary, err)
	}
	if slices.Contains(all, kept) {
		return kept, nil
	}
	if kept != "" {
		d.opts.Log(fmt.Sprintf("this QEMU has no machine type %s; %s is used from now on", kept, newest))
	}
	return newest, nil
}

// died is QEMU's own reason for ending, as far as it gave one.
func died(log string) error {
	said := tail(log, 2000)
	if said == "" {
		return errors.New("QEMU ended without a message, as when it is killed from outside")
	}
	return fmt.Errorf("QEMU ended: %s", strings.ReplaceAll(said, "\n", " | "))
}
