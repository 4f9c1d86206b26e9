package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/drivertest"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

// bench is a driver whose QEMU is the test binary.
type bench struct {
	*Driver
	image  layout.ImageDir
	mu     sync.Mutex
	logged []string
}

func newBench(t *testing.T, misbehaviour string) *bench {
	t.Helper()
	// Socket paths are short, and the test's own folder is long.
	dir, err := os.MkdirTemp("", "lab")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	t.Setenv(misbehave, misbehaviour)
	b := &bench{}
	opts := Options{
		Binary: filepath.Join(dir, "qemu-system-x86_64"), ImgBinary: filepath.Join(dir, "qemu-img"),
		BootTimeout: 20 * time.Second, StopGrace: 5 * time.Second,
		Log: func(line string) { b.mu.Lock(); defer b.mu.Unlock(); b.logged = append(b.logged, line) },
	}
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, opts.Binary))
	require.NoError(t, os.Symlink(self, opts.ImgBinary))
	home := layout.Home{State: filepath.Join(dir, "s"), Cache: filepath.Join(dir, "c")}
	b.image = home.Image("golden")
	writeImage(t, b.image, "golden disk")
	b.Driver, err = New(home, opts)
	require.NoError(t, err)
	b.kvm = "/no/such/kvm"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		list, err := b.List(ctx)
		require.NoError(t, err)
		spares, err := b.Spares(ctx)
		require.NoError(t, err)
		for _, s := range append(list, spares...) {
			require.NoError(t, b.Delete(ctx, s.Name))
		}
		left, err := b.Leftovers(ctx)
		require.NoError(t, err)
		require.NoError(t, b.Sweep(ctx, left))
		left, err = b.Leftovers(ctx)
		require.NoError(t, err)
		require.Empty(t, left, "the test left something that nothing removes")
		require.Zero(t, b.machines(t))
	})
	return b
}

// writeImage makes an image that is whole.
func writeImage(t *testing.T, dir layout.ImageDir, disk string) images.Metadata {
	t.Helper()
	require.NoError(t, os.MkdirAll(string(dir), 0o700))
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(string(dir))), 0o700))
	meta := images.Metadata{Schema: images.Schema, Name: "golden", KernelArgs: "root=/dev/vda rw console=ttyS0", MinMemoryMiB: 512, MinDiskGiB: 2}
	all := sha256.New()
	for path, content := range map[string]string{dir.Disk(): disk, dir.Kernel(): "kernel", dir.Initrd(): "initrd", dir.Probe(): "probe"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		sum := sha256.Sum256([]byte(content))
		meta.Files = append(meta.Files, images.File{Name: filepath.Base(path), Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	}
	fmt.Fprint(all, disk)
	meta.Digest = "sha256:" + hex.EncodeToString(all.Sum(nil))
	data, err := json.Marshal(meta)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir.Metadata(), data, 0o600))
	return meta
}

// guestFile is the path of a file in a guest's file system.
func (b *bench) guestFile(name, file string) string {
	return filepath.Join(string(b.home.Instance(name)), guestRoot, file)
}

func (b *bench) spec(name string) provision.Spec {
	meta, err := images.Read(b.image)
	if err != nil {
		panic(err)
	}
	return provision.Spec{Name: name, Image: b.image, ImageDigest: meta.Digest, CPUs: 2, MemoryMiB: 512, DiskGiB: 12}
}

func (b *bench) power(t *testing.T, name string) provision.Power {
	t.Helper()
	s, err := b.Status(t.Context(), name)
	require.NoError(t, err)
	return s.Power
}

func (b *bench) machines(t *testing.T) int {
	t.Helper()
	found, err := host.Find(func(args []string) bool {
		return len(args) > 0 && strings.Contains(strings.Join(args, " "), b.home.Instances()) && strings.Contains(strings.Join(args, " "), "-netdev")
	})
	require.NoError(t, err)
	return len(found)
}

func TestDriverKeepsTheContract(t *testing.T) {
	b := newBench(t, "")
	drivertest.Contract(t, drivertest.Setup{Driver: b.Driver, Spec: b.spec, Scratch: t.TempDir()})
}

func TestTheGuestTakesItsIdentity(t *testing.T) {
	b := newBench(t, "")
	for _, name := range []string{"ada", "bob"} {
		require.NoError(t, b.Create(t.Context(), b.spec(name)))
		_, err := b.Start(t.Context(), name, nil)
		require.NoError(t, err)
	}
	read := func(name, file string) string {
		data, err := os.ReadFile(b.guestFile(name, file))
		require.NoError(t, err)
		return string(data)
	}
	require.Equal(t, "ada\n", read("ada", "etc/hostname"))
	for _, file := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key", "root/.ssh/authorized_keys"} {
		require.NotEqual(t, read("ada", file), read("bob", file), "no two instances share %s", file)
	}
	ep, err := b.Endpoint(t.Context(), "ada")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(read("ada", "etc/ssh/ssh_host_ed25519_key.pub"), ep.HostKey))
	c, err := ssh.Dial(t.Context(), ep, ssh.Options{})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	other, err := b.Endpoint(t.Context(), "bob")
	require.NoError(t, err)
	other.HostKey = ep.HostKey
	_, err = ssh.Dial(t.Context(), other, ssh.Options{})
	var wrong *ssh.HostKeyError
	require.ErrorAs(t, err, &wrong)
}

func TestFilesArePrivate(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	require.NoError(t, filepath.Walk(string(b.home.Instance("ada")), func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		if info.IsDir() && info.Name() == guestRoot {
			return filepath.SkipDir // the file system of the guest
		}
		if info.Mode().Type() != os.ModeSocket { // those are guarded by their folder
			require.Zero(t, info.Mode().Perm()&0o077, path)
		}
		return nil
	}))
}

func TestFailedStarts(t *testing.T) {
	for misbehaviour, want := range map[string]struct {
		stage, reason string
		console       bool
	}{
		"die":           {"QEMU's monitor", "QEMU ended: qemu-system-x86_64: could not set up the machine", false},
		"die-later":     {"the guest boots", "KVM internal error", true},
		"no-monitor":    {"QEMU's monitor", "gave up", true},
		"no-agent":      {"the guest boots", "did not answer within", true},
		"agent-refuses": {"the guest boots", "no space left on device", true},
		"no-ssh":        {"SSH", "no answer within", true},
	} {
		t.Run(misbehaviour, func(t *testing.T) {
			words := misbehaviour
			if misbehaviour == "die-later" {
				words += ",no-agent"
			}
			b := newBench(t, words)
			b.opts.BootTimeout = 1500 * time.Millisecond
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			_, err := b.Start(t.Context(), "ada", nil)
			var boot *provision.BootError
			require.ErrorAs(t, err, &boot)
			require.Equal(t, want.stage, boot.Stage)
			require.ErrorContains(t, err, want.reason)
			if want.console {
				require.Contains(t, boot.Console, "lab login:")
				require.NotContains(t, boot.Console, "\x1b")
			}
			require.Equal(t, provision.Stopped, b.power(t, "ada"))
			require.Zero(t, b.machines(t), "the machine is off again")
			left, err := b.Leftovers(t.Context())
			require.NoError(t, err)
			require.Empty(t, left)

			// The cause gone, the same command works.
			t.Setenv(misbehave, "")
			b.opts.BootTimeout = 20 * time.Second
			_, err = b.Start(t.Context(), "ada", nil)
			require.NoError(t, err)
		})
	}
}

func TestStop(t *testing.T) {
	for misbehaviour, logged := range map[string]bool{
		"": false, "no-poweroff": false, "no-agent-later": false, "no-button": false,
		"no-poweroff,no-button": true, "no-poweroff,no-button,no-quit": true,
	} {
		t.Run(misbehaviour, func(t *testing.T) {
			b := newBench(t, misbehaviour)
			b.opts.StopGrace = 600 * time.Millisecond
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			_, err := b.Start(t.Context(), "ada", nil)
			require.NoError(t, err)
			require.NoError(t, b.Stop(t.Context(), "ada"))
			require.Equal(t, provision.Stopped, b.power(t, "ada"))
			require.Zero(t, b.machines(t))
			require.Equal(t, logged, strings.Contains(strings.Join(b.logged, "\n"), "did not power off"))
			require.NoFileExists(t, b.home.Instance("ada").QMP())
		})
	}
}

func TestAnInterruptedStopSaysSo(t *testing.T) {
	b := newBench(t, "no-poweroff,no-button")
	b.opts.StopGrace = time.Hour
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = b.Stop(ctx, "ada")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "may still be powering off")
	require.Equal(t, provision.Running, b.power(t, "ada"))
}

func TestTheGuestMayPowerItselfOff(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	p, err := host.Identify(s.PID)
	require.NoError(t, err)
	require.NoError(t, b.monitor(t.Context(), "ada", "system_powerdown", nil))
	require.NoError(t, p.WaitExit(t.Context()))
	require.Equal(t, provision.Stopped, b.power(t, "ada"))
	var off *provision.NotRunningError
	_, err = b.Endpoint(t.Context(), "ada")
	require.ErrorAs(t, err, &off)
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
}

func TestBusy(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	lock, err := b.store.TryLock(b.home.Lock("instance", "ada"))
	require.NoError(t, err)
	defer lock.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var busy *provision.BusyError
	_, err = b.Start(ctx, "ada", nil)
	require.ErrorAs(t, err, &busy)
	require.Equal(t, os.Getpid(), busy.PID)
	require.ErrorAs(t, b.Stop(ctx, "ada"), &busy)
	require.ErrorAs(t, b.Delete(ctx, "ada"), &busy)
	require.ErrorAs(t, b.Create(ctx, b.spec("ada")), &busy)
	require.Contains(t, b.logged[0], fmt.Sprintf("waiting for another labctl (pid %d)", os.Getpid()))
	require.Equal(t, provision.Stopped, b.power(t, "ada"), "looking needs no lock")
}

func TestPorts(t *testing.T) {
	b := newBench(t, "")
	blocker, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer blocker.Close()
	taken := blocker.Addr().(*net.TCPAddr).Port
	spec := b.spec("ada")
	spec.SSHPort = taken
	var busy *provision.PortError
	require.ErrorAs(t, b.Create(t.Context(), spec), &busy)
	require.Equal(t, taken, busy.Port)
	require.Contains(t, busy.Owner, fmt.Sprintf("(pid %d)", os.Getpid()))
	require.Equal(t, provision.Absent, b.power(t, "ada"))

	// A wanted port that is taken later is refused, and nothing is started.
	blocker.Close()
	require.NoError(t, b.Create(t.Context(), spec))
	blocker, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", taken))
	require.NoError(t, err)
	_, err = b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &busy)
	var boot *provision.BootError
	require.False(t, errors.As(err, &boot))
	require.Zero(t, b.machines(t))
	blocker.Close()
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)

	// A chosen one gives way.
	require.NoError(t, b.Create(t.Context(), b.spec("bob")))
	s, err := b.Status(t.Context(), "bob")
	require.NoError(t, err)
	other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.Spec.SSHPort))
	require.NoError(t, err)
	defer other.Close() // and kept from the garbage collector, which would close it
	ep, err := b.Start(t.Context(), "bob", nil)
	require.NoError(t, err)
	require.NotEqual(t, s.Spec.SSHPort, ep.Port)
	after, err := b.Status(t.Context(), "bob")
	require.NoError(t, err)
	require.Equal(t, ep.Port, after.Spec.SSHPort, "and is kept")
	require.NoError(t, b.Create(t.Context(), b.spec("bob")), "still the instance that was asked for")
}

func TestAChangedImageIsRefused(t *testing.T) {
	b := newBench(t, "")
	old := b.spec("ada")
	require.NoError(t, b.Create(t.Context(), old))
	writeImage(t, b.image, "another disk")
	var changed *provision.ImageChangedError
	_, err := b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &changed)
	require.ErrorAs(t, b.Create(t.Context(), func() provision.Spec { s := old; s.Name = "bob"; return s }()), &changed)
	require.Zero(t, b.machines(t))

	var damaged *images.DamagedError
	for path, content := range map[string]string{b.image.Kernel(): "KERNEL", b.image.Disk(): "shorter"} {
		writeImage(t, b.image, "golden disk")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err = b.Start(t.Context(), "ada", nil)
		require.ErrorAs(t, err, &damaged)
		require.Equal(t, filepath.Base(path), damaged.File)
	}
	writeImage(t, b.image, "golden disk")
	require.NoError(t, os.Remove(b.image.Initrd()))
	_, err = b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &damaged)
	require.Equal(t, "missing", damaged.Got)
	require.NoError(t, os.Remove(b.image.Metadata()))
	var none *images.NotFoundError
	_, err = b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &none)
	writeImage(t, b.image, "golden disk")
}

func TestRefusalsChangeNothing(t *testing.T) {
	b := newBench(t, "")
	for field, spoil := range map[string]func(s *provision.Spec){
		"CPUs": func(s *provision.Spec) { s.CPUs = 0 }, "memory": func(s *provision.Spec) { s.MemoryMiB = 511 },
		"disk": func(s *provision.Spec) { s.DiskGiB = 1 }, "the SSH port": func(s *provision.Spec) { s.SSHPort = 70000 },
	} {
		spec := b.spec("ada")
		spoil(&spec)
		var bad *provision.SpecError
		require.ErrorAs(t, b.Create(t.Context(), spec), &bad)
		require.Equal(t, field, bad.Field)
	}
	require.Equal(t, provision.Absent, b.power(t, "ada"))

	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	b.freeMemory = func() (int64, error) { return 600 << 20, nil }
	var little *provision.ResourceError
	_, err := b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &little)
	require.Contains(t, little.Need, "1152 MiB (512 for the guest, 640 for QEMU)")
	require.Equal(t, "600 MiB", little.Have)
	require.Zero(t, b.machines(t))
	b.freeMemory = func() (int64, error) { return 1300 << 20, nil }
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	// What ada was promised counts, although it has not touched it.
	require.NoError(t, b.Create(t.Context(), b.spec("bob")))
	_, err = b.Start(t.Context(), "bob", nil)
	require.ErrorAs(t, err, &little)

	b.opts.Binary = "/no/such/qemu"
	var wrong *provision.HostError
	_, err = b.Start(t.Context(), "bob", nil)
	require.ErrorAs(t, err, &wrong)
	require.Contains(t, wrong.Fix, "apt-get install")
	require.Empty(t, b.Info().Version)
	b.opts.ImgBinary = "/no/such/qemu-img"
	require.ErrorAs(t, b.Create(t.Context(), b.spec("carol")), &wrong)
	require.Equal(t, provision.Absent, b.power(t, "carol"))
}

func TestCreateWithoutSpace(t *testing.T) {
	b := newBench(t, "no-space")
	require.ErrorContains(t, b.Create(t.Context(), b.spec("ada")), "no space left on device")
	require.Equal(t, provision.Absent, b.power(t, "ada"), "what was not made is not there")
	b.requireNothingLeft(t)
}

func TestHalfMade(t *testing.T) {
	b := newBench(t, "")
	b.killed(t, "create", "create:record")
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, provision.Broken, s.Power)
	require.Contains(t, s.Reason, "was interrupted")
	var half *provision.IncompleteError
	_, err = b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &half)
	require.ErrorAs(t, b.Stop(t.Context(), "ada"), &half)
	require.NoError(t, b.Create(t.Context(), b.spec("ada")), "the same command again finishes it")
	require.Equal(t, provision.Stopped, b.power(t, "ada"))
}

func TestBrokenInstances(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	require.NoError(t, b.Create(t.Context(), b.spec("bob")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.home.Instance("ada").Record(), []byte("{"), 0o600))

	list, err := b.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []provision.Power{provision.Broken, provision.Stopped}, []provision.Power{list[0].Power, list[1].Power})
	require.Contains(t, list[0].Reason, "cannot be decoded")
	var broken *provision.BrokenError
	_, err = b.Start(t.Context(), "ada", nil)
	require.ErrorAs(t, err, &broken)
	require.ErrorAs(t, b.Create(t.Context(), b.spec("ada")), &broken, "its disk may be somebody's work")
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Empty(t, left, "it is somebody's work, not a leftover")
	require.Equal(t, 1, b.machines(t))
	require.NoError(t, b.Delete(t.Context(), "ada"))
	require.Zero(t, b.machines(t))
}

func TestMachineTypeIsKept(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	require.Equal(t, "pc-q35-7.2", rec.Machine)
	for kept, want := range map[string]string{"pc-q35-7.1": "pc-q35-7.1", "pc-q35-2.4": "pc-q35-7.2"} {
		rec.Machine = kept
		require.NoError(t, b.store.Save(rec))
		_, err = b.Start(t.Context(), "ada", nil)
		require.NoError(t, err)
		got, err := b.store.Load("ada")
		require.NoError(t, err)
		require.Equal(t, want, got.Machine)
		require.NoError(t, b.Stop(t.Context(), "ada"))
	}
	require.Contains(t, strings.Join(b.logged, "\n"), "no machine type pc-q35-2.4")
}

// TestTheMachineOutlivesLabctl also checks that it is out of reach of the terminal's signals.
func TestTheMachineOutlivesLabctl(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	labctl := b.act(t, "start", "")
	require.NoError(t, labctl.Wait())
	require.Equal(t, provision.Running, b.power(t, "ada"))
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	require.Equal(t, fmt.Sprint(s.PID), fields[3], "it leads a session of its own")
	stdin, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", s.PID))
	require.NoError(t, err)
	require.Equal(t, "/dev/null", stdin)
	ep, err := b.Endpoint(t.Context(), "ada")
	require.NoError(t, err)
	c, err := ssh.Dial(t.Context(), ep, ssh.Options{})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestRootGivesItsCapabilitiesUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only where labctl runs as root")
	}
	if withoutCapabilities(t.Context()) == nil {
		t.Skip("no setpriv, or no permission to give capabilities up")
	}
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	require.NoError(t, err)
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd", "CapInh"} {
		require.Contains(t, string(status), set+":\t0000000000000000\n")
	}
	require.Contains(t, string(status), "NoNewPrivs:\t1\n")
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console")
	require.Empty(t, tail(path, 100))
	require.NoError(t, os.WriteFile(path, []byte("first line\r\nsecond \x1b[31mline\x07\xff\r\nlast\r\n"), 0o600))
	require.Equal(t, "first line\nsecond line\nlast", tail(path, 1000))
	require.Equal(t, "last", tail(path, 12), "only whole lines")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o600))
	require.Len(t, tail(path, 10), 10, "a line without an end is cut")
}

func TestNewChecksItsOptions(t *testing.T) {
	_, err := New(layout.Home{}, Options{Accelerator: "hvf"})
	require.ErrorContains(t, err, `is "hvf", but must be auto, kvm or tcg`)
}

// TestAPortThatIsLost: another program takes the port between its choice and QEMU's start.
func TestAPortThatIsLost(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	var thief net.Listener
	b.hook = func(point string) {
		if point != "start:recorded" || thief != nil {
			return
		}
		rec, err := b.store.Load("ada")
		require.NoError(t, err)
		thief, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", rec.Spec.SSHPort))
		require.NoError(t, err)
	}
	ep, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	defer thief.Close()
	require.NotEqual(t, thief.Addr().(*net.TCPAddr).Port, ep.Port)
	require.Equal(t, 1, b.machines(t))

	// One that was asked for is not exchanged.
	require.NoError(t, b.Stop(t.Context(), "ada"))
	require.NoError(t, b.Delete(t.Context(), "ada"))
	spec := b.spec("ada")
	spec.SSHPort = ep.Port
	require.NoError(t, b.Create(t.Context(), spec))
	require.NoError(t, thief.Close())
	thief = nil
	_, err = b.Start(t.Context(), "ada", nil)
	require.ErrorContains(t, err, "Could not set up host forwarding rule")
}
