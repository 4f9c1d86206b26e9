package accel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images/probe"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/accel"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
)

// script is a program that takes QEMU's place.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "qemu")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

type fixture struct {
	accel.Chooser
	image layout.ImageDir
	runs  string
}

// newFixture has a device that can be opened, and a QEMU that does what body says and keeps count of its runs.
func newFixture(t *testing.T, body string) fixture {
	t.Helper()
	dir := t.TempDir()
	f := fixture{image: layout.ImageDir(dir), runs: filepath.Join(dir, "runs")}
	for _, path := range []string{f.image.Kernel(), f.image.Probe(), filepath.Join(dir, "kvm")} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	f.Chooser = accel.Chooser{
		Binary: script(t, fmt.Sprintf("echo \"$*\" >> %s\n%s", f.runs, body)), Version: "7.2.22", Machine: "pc-q35-7.2",
		Device: filepath.Join(dir, "kvm"), Facts: filepath.Join(dir, "cache", "host.json"),
	}
	return f
}

func (f fixture) count(t *testing.T) int {
	data, err := os.ReadFile(f.runs)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	return strings.Count(string(data), "\n")
}

const comesUp = "echo booting; echo " + probe.Word + "; exec sleep 300"

func TestKVMThatWorks(t *testing.T) {
	f := newFixture(t, comesUp)
	require.Equal(t, accel.Choice{Accelerator: "", Why: "KVM will be tried when the first instance starts"}, f.Known())
	for range 2 {
		choice, err := f.Choose(t.Context(), accel.Auto, f.image)
		require.NoError(t, err)
		require.Equal(t, argv.KVM, choice.Accelerator)
		require.Contains(t, choice.Why, "proven by a test boot")
	}
	require.Equal(t, 1, f.count(t), "the answer is kept")
	require.Equal(t, argv.KVM, f.Known().Accelerator)
	args, err := os.ReadFile(f.runs)
	require.NoError(t, err)
	require.Contains(t, string(args), "-accel kvm")
	require.Contains(t, string(args), f.image.Probe())

	f.Version = "9.0.0"
	_, err = f.Choose(t.Context(), argv.KVM, f.image)
	require.NoError(t, err)
	require.Equal(t, 2, f.count(t), "another QEMU is another question")

	data, err := os.ReadFile(f.Facts)
	require.NoError(t, err)
	boot, err := host.BootID()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.Facts, []byte(strings.ReplaceAll(string(data), boot, "an earlier boot")), 0o600))
	_, err = f.Choose(t.Context(), accel.Auto, f.image)
	require.NoError(t, err)
	require.Equal(t, 3, f.count(t), "so is another boot of the host")
	require.NoError(t, os.WriteFile(f.Facts, []byte("{"), 0o600))
	_, err = f.Choose(t.Context(), accel.Auto, f.image)
	require.NoError(t, err)
	require.Equal(t, 4, f.count(t))
}

func TestKVMThatDoesNotWork(t *testing.T) {
	for why, body := range map[string]string{
		"KVM internal error. Suberror: 1": "echo 'KVM internal error. Suberror: 1' >&2; echo emulation failure >&2; exit 1",
		"ended without a word":            "echo something else",
		"exit status 3":                   "exit 3",
	} {
		f := newFixture(t, body)
		for range 2 {
			choice, err := f.Choose(t.Context(), accel.Auto, f.image)
			require.NoError(t, err)
			require.Equal(t, argv.TCG, choice.Accelerator)
			require.Contains(t, choice.Why, why)
			require.NotContains(t, choice.Why, "\n")
		}
		require.Equal(t, 1, f.count(t), "a no is kept as well")
		require.Equal(t, argv.TCG, f.Known().Accelerator)
		_, err := f.Choose(t.Context(), argv.KVM, f.image)
		var wrong *provision.HostError
		require.ErrorAs(t, err, &wrong)
		require.ErrorContains(t, err, why)
		require.NotEmpty(t, wrong.Hint())
	}
}

func TestNoKVM(t *testing.T) {
	f := newFixture(t, comesUp)
	f.Device = "/no/such/device"
	choice, err := f.Choose(t.Context(), accel.Auto, f.image)
	require.NoError(t, err)
	require.Equal(t, accel.Choice{Accelerator: argv.TCG, Why: "software emulation, which is slower: this host has no /no/such/device", Cause: "this host has no /no/such/device"}, choice)
	require.Equal(t, choice, f.Known())
	_, err = f.Choose(t.Context(), argv.KVM, f.image)
	require.ErrorContains(t, err, "no /no/such/device")
	require.Zero(t, f.count(t))
	require.NoFileExists(t, f.Facts)
}

func TestOtherAnswersNeedNoProbe(t *testing.T) {
	f := newFixture(t, comesUp)
	choice, err := f.Choose(t.Context(), argv.TCG, f.image)
	require.NoError(t, err)
	require.Equal(t, argv.TCG, choice.Accelerator)
	_, err = f.Choose(t.Context(), "hvf", f.image)
	require.ErrorContains(t, err, `no accelerator "hvf"`)

	require.NoError(t, os.Remove(f.image.Probe()))
	choice, err = f.Choose(t.Context(), accel.Auto, f.image)
	require.NoError(t, err)
	require.Equal(t, argv.TCG, choice.Accelerator)
	require.Contains(t, choice.Why, "the image has no probe.img")
	require.Zero(t, f.count(t))
	require.NoFileExists(t, f.Facts, "nothing was found out")
}

func TestAnInterruptedProbeIsNoAnswer(t *testing.T) {
	f := newFixture(t, "exec sleep 300")
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	_, err := f.Choose(ctx, accel.Auto, f.image)
	require.ErrorIs(t, err, why)
	require.NoFileExists(t, f.Facts)
}

func TestBootIsBounded(t *testing.T) {
	mark := strconv.FormatInt(time.Now().UnixNano(), 10)
	_, err := accel.Boot(t.Context(), script(t, "echo "+mark+" >&2; exec sleep 300"), nil, 100*time.Millisecond)
	require.ErrorContains(t, err, "nothing came up within 100ms")
	require.ErrorContains(t, err, mark)
	_, err = accel.Boot(t.Context(), "/no/such/qemu", nil, time.Second)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestProbeDiesWithLabctl kills a labctl that probes, the hard way.
func TestProbeDiesWithLabctl(t *testing.T) {
	if qemu := os.Getenv("LABCTL_TEST_PROBE"); qemu != "" {
		_, _ = accel.Boot(context.Background(), qemu, nil, time.Minute)
		os.Exit(0)
	}
	pidFile := filepath.Join(t.TempDir(), "pid")
	labctl := exec.Command(os.Args[0], "-test.run=^TestProbeDiesWithLabctl$")
	labctl.Env = append(os.Environ(), "LABCTL_TEST_PROBE="+script(t, fmt.Sprintf("echo $$ > %s.tmp; mv %s.tmp %s; exec sleep 300", pidFile, pidFile, pidFile)))
	require.NoError(t, labctl.Start())
	var pid int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(pidFile)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	qemu, err := host.Identify(pid)
	require.NoError(t, err)
	require.NoError(t, labctl.Process.Signal(syscall.SIGKILL))
	_ = labctl.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, qemu.WaitExit(ctx))
}
