// Package accel chooses how an instance's CPUs run: by KVM where a probe boot proves it, else by software emulation.
package accel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images/probe"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Auto wants KVM where it works.
const Auto = "auto"

// ProbeTime is how long a probe boot under KVM may take; where KVM works it takes a second.
const ProbeTime = 10 * time.Second

// Chooser chooses an accelerator for one QEMU on this host.
type Chooser struct {
	// Binary is QEMU, Version its version and Machine the machine type to probe with.
	Binary, Version, Machine string
	// Device is /dev/kvm, but in tests.
	Device string
	// Facts is the file that keeps the answer for as long as the host is up and QEMU stays the same.
	Facts string
}

// Choice is an accelerator, and why that one, in one line.
type Choice struct {
	Accelerator, Why string
	// Cause is why KVM is not used, empty where it is or is not known yet.
	Cause string
}

// facts is the kept answer.
type facts struct {
	Schema   string `json:"schema"`
	HostBoot string `json:"hostBoot"`
	QEMU     string `json:"qemu"`
	KVM      bool   `json:"kvm"`
	Why      string `json:"why"`
}

const schema = "labctl.dev/host/v1"

// Choose answers what want ("auto", "kvm" or "tcg") means on this host, probing with the kernel and the probe of image when
// that is not known yet. It returns *provision.HostError when KVM was asked for and cannot be had.
func (c Chooser) Choose(ctx context.Context, want string, image layout.ImageDir) (Choice, error) {
	switch want {
	case argv.TCG:
		return Choice{Accelerator: argv.TCG, Why: "software emulation, as asked for"}, nil
	case Auto, argv.KVM, "":
	default:
		return Choice{}, &provision.HostError{Problem: fmt.Sprintf("there is no accelerator %q", want), Fix: "use auto, kvm or tcg"}
	}
	why := c.closed()
	if why == "" {
		known, err := c.recall()
		if err != nil {
			return Choice{}, err
		}
		if known == nil {
			if known, err = c.probe(ctx, image); err != nil {
				return Choice{}, err
			}
		}
		if known.KVM {
			return Choice{Accelerator: argv.KVM, Why: known.Why}, nil
		}
		why = known.Why
	}
	if want == argv.KVM {
		return Choice{}, &provision.HostError{Problem: "KVM cannot be used: " + why, Fix: "let labctl use software emulation (accelerator auto or tcg): it is slower and needs nothing"}
	}
	return emulate(why), nil
}

func emulate(cause string) Choice {
	return Choice{Accelerator: argv.TCG, Why: "software emulation, which is slower: " + cause, Cause: cause}
}

// Known is the answer without probing: what is known already, or that it will be found out.
func (c Chooser) Known() Choice {
	if why := c.closed(); why != "" {
		return emulate(why)
	}
	switch known, err := c.recall(); {
	case err != nil:
		return Choice{Why: err.Error()}
	case known == nil:
		return Choice{Why: "KVM will be tried when the first instance starts"}
	case known.KVM:
		return Choice{Accelerator: argv.KVM, Why: known.Why}
	default:
		return emulate(known.Why)
	}
}

// closed says why KVM is out of the question; empty when it is worth a try.
func (c Chooser) closed() string {
	device, err := os.OpenFile(c.Device, os.O_RDWR, 0)
	switch {
	case err == nil:
		device.Close()
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return "this host has no " + c.Device
	case errors.Is(err, fs.ErrPermission):
		return "this user may not open " + c.Device + " (membership of its group, mostly \"kvm\", would allow it)"
	}
	return err.Error()
}

// recall reads the kept answer; nil when there is none that still holds.
func (c Chooser) recall() (*facts, error) {
	boot, err := host.BootID()
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.Facts)
	if err != nil {
		return nil, nil // it can be found out again
	}
	var known facts
	if json.Unmarshal(data, &known) != nil || known.Schema != schema || known.HostBoot != boot || known.QEMU != c.Version {
		return nil, nil
	}
	return &known, nil
}

func (c Chooser) probe(ctx context.Context, image layout.ImageDir) (*facts, error) {
	for _, path := range []string{image.Kernel(), image.Probe()} {
		if _, err := os.Stat(path); err != nil {
			// Not kept: a whole image will tell.
			return &facts{Why: fmt.Sprintf("KVM could not be tried, because the image has no %s", filepath.Base(path))}, nil
		}
	}
	boot, err := host.BootID()
	if err != nil {
		return nil, err
	}
	answer := facts{Schema: schema, HostBoot: boot, QEMU: c.Version, KVM: true}
	took, err := Boot(ctx, c.Binary, argv.Probe(image.Kernel(), image.Probe(), c.Machine, argv.KVM), ProbeTime)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		answer.KVM, answer.Why = false, "a test boot under KVM failed: "+err.Error()
	} else {
		answer.Why = fmt.Sprintf("KVM, proven by a test boot of %.1f s", took.Seconds())
	}
	data, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Facts), 0o700); err != nil {
		return nil, fmt.Errorf("keep what the probe found: %w", err)
	}
	if err := renameio.WriteFile(c.Facts, append(data, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(c.Facts))); err != nil {
		return nil, fmt.Errorf("keep what the probe found: %w", err)
	}
	return &answer, nil
}

// Boot starts QEMU with args and waits for the probe's word on its standard output. The machine has ended when Boot
// returns. It says how long the word took, or in one line why it did not come within limit.
func Boot(ctx context.Context, binary string, args []string, limit time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("nothing came up within %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.WaitDelay = 5 * time.Second
	var stderr run.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	wait, err := run.StartBound(cmd)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	var took time.Duration
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.Contains(lines.Text(), probe.Word) {
			took = time.Since(start)
			break
		}
	}
	if took > 0 {
		cancel() // the word is all that was wanted; a machine that hangs on its way down would cost time
	}
	exit := wait()
	switch {
	case took > 0:
		return took, nil
	case ctx.Err() != nil:
		exit = context.Cause(ctx)
	case exit == nil:
		exit = errors.New("the machine ended without a word")
	}
	if said := firstLine(stderr.Bytes()); said != "" {
		return 0, fmt.Errorf("%w (QEMU said: %s)", exit, said)
	}
	return 0, exit
}

func firstLine(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}
