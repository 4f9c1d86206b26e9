package argv_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func machine() argv.Machine {
	home := layout.Home{State: "/s"}
	return argv.Machine{
		Name: "ada", Dir: home.Instance("ada"), Image: home.Image("golden"), KernelArgs: "root=/dev/vda rw console=ttyS0 quiet",
		Type: "pc-q35-7.2", Accelerator: argv.TCG, CPUs: 2, MemoryMiB: 3072, SSHPort: 22200,
	}
}

func golden(t *testing.T, name string, args []string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	// One option with its value a line.
	got := strings.ReplaceAll(strings.Join(args, "\n"), "\n-", "\x00-")
	got = strings.ReplaceAll(strings.ReplaceAll(got, "\n", " "), "\x00", "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run the test with -update when this change is meant; frozen guests depend on it")
}

func TestArgs(t *testing.T) {
	golden(t, "tcg", machine().Args())
	kvm := machine()
	kvm.Accelerator, kvm.Type = argv.KVM, "pc-q35-10.0"
	golden(t, "kvm", kvm.Args())
}

// TestFrozen: what differs from a machine that boots is where its memory is and what its disk stands on.
func TestFrozen(t *testing.T) {
	m := machine()
	m.Memory = argv.Memory{File: m.Dir.Memory(), Shared: true}
	golden(t, "freeze", m.Args())
	frozen := m.Image.Frozen("7f")
	m.FrozenDisk = frozen.Disk()
	m.Memory = argv.Memory{File: frozen.Memory(), Incoming: true}
	golden(t, "thaw", m.Args())
	m.Memory.ReadOnly = true
	golden(t, "thaw-read-only", m.Args())
}

func TestProbe(t *testing.T) {
	golden(t, "probe-tcg", argv.Probe("/i/vmlinuz", "/i/probe.img", "pc-q35-7.2", argv.TCG))
	golden(t, "probe-kvm", argv.Probe("/i/vmlinuz", "/i/probe.img", "pc-q35-7.2", argv.KVM))
}

func TestOverlay(t *testing.T) {
	require.Equal(t, []string{"create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/i/disk.raw", "-o", "extended_l2=on,cluster_size=128k", "/d.tmp", "12G"},
		argv.Overlay("/i/disk.raw", "raw", "/d.tmp", 12))
}

// TestGuestHardwareDependsOnNothingElse: name, folder and port may differ between a golden guest and its clones; what the
// guest sees may not.
func TestGuestHardwareDependsOnNothingElse(t *testing.T) {
	other := machine()
	other.Name, other.Dir, other.SSHPort = "bob", layout.Home{State: "/t"}.Instance("bob"), 22201
	a, b := machine().Args(), other.Args()
	require.Len(t, b, len(a))
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		switch a[i-1] {
		case "-name", "-qmp", "-chardev", "-netdev":
		case "-blockdev":
			require.Contains(t, a[i], `"node-name":"root-file"`)
		default:
			t.Errorf("%s %s became %s", a[i-1], a[i], b[i])
		}
	}
	for i, arg := range a {
		if arg == "-device" && strings.Contains(a[i+1], "-pci,") {
			require.Contains(t, a[i+1], ",addr=0x", "every PCI device has a fixed address")
		}
	}
}

func TestCommasArePartOfPaths(t *testing.T) {
	m := machine()
	m.Dir = "/s,t/instances/ada"
	args := strings.Join(m.Args(), "\n")
	require.Contains(t, args, "unix:/s,,t/instances/ada/qmp.sock,server=on")
	require.Contains(t, args, "path=/s,,t/instances/ada/console.log")
	require.Contains(t, args, "path=/s,,t/instances/ada/agent.sock,server=on")
	require.Contains(t, args, `"filename":"/s,t/instances/ada/disk.qcow2"`)
}

func TestNoSandbox(t *testing.T) {
	require.Contains(t, machine().Args(), "-sandbox")
	m := machine()
	m.NoSandbox = true
	require.NotContains(t, m.Args(), "-sandbox")
}

func TestOwner(t *testing.T) {
	m := machine()
	dir, ok := argv.Owner(append([]string{"qemu"}, m.Args()...), "/s/instances")
	require.True(t, ok)
	require.Equal(t, m.Dir, dir)
	_, ok = argv.Owner(m.Args(), "/t/instances")
	require.False(t, ok, "another state home")
	m.Dir = "/s,t/instances/ada"
	dir, ok = argv.Owner(m.Args(), "/s,t/instances/")
	require.True(t, ok)
	require.Equal(t, m.Dir, dir)
	for _, args := range [][]string{nil, {"-qmp"}, {"-qmp", "tcp::1"}, {"x", "unix:/s/instances/ada/qmp.sock"}, {"-qmp", "unix:/s/instances/qmp.sock"}, {"-qmp", "unix:/s/instances/a/b/qmp.sock"}} {
		_, ok := argv.Owner(args, "/s/instances")
		require.False(t, ok, "%q", args)
	}
}

func TestMachineTypes(t *testing.T) {
	help := `Supported machines are:
pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-7.2)
q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)
pc-q35-7.2           Standard PC (Q35 + ICH9, 2009)
pc-q35-7.1           Standard PC (Q35 + ICH9, 2009)
pc-q35-2.4           Standard PC (Q35 + ICH9, 2009) (deprecated)
none                 empty machine
`
	all, newest, err := argv.MachineTypes(help)
	require.NoError(t, err)
	require.Equal(t, []string{"pc-q35-7.2", "pc-q35-7.1", "pc-q35-2.4"}, all)
	require.Equal(t, "pc-q35-7.2", newest)
	_, _, err = argv.MachineTypes("Supported machines are:\nmicrovm microvm (i386)\n")
	require.ErrorContains(t, err, "no q35")
}

func TestVersion(t *testing.T) {
	got, err := argv.Version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright (c) 2003-2022\n")
	require.NoError(t, err)
	require.Equal(t, "7.2.22 (Debian 1:7.2+dfsg-7)", got)
	_, err = argv.Version("bash: no such thing")
	require.Error(t, err)
}
