//go:build vm

package qemu

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/drivertest"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

// realDriver runs real machines from the image that LABCTL_TEST_IMAGE names, in a state home of its own.
func realDriver(t *testing.T) (*Driver, func(name string) provision.Spec) {
	t.Helper()
	folder := os.Getenv("LABCTL_TEST_IMAGE")
	if folder == "" {
		t.Skip("LABCTL_TEST_IMAGE is not set; it names the folder of a golden image")
	}
	_, err := exec.LookPath("qemu-system-x86_64")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "lab")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	d, err := New(layout.Home{State: dir + "/s", Cache: dir + "/c"}, Options{Log: func(line string) { t.Log(line) }})
	require.NoError(t, err)
	image := layout.ImageDir(folder)
	meta, err := images.Read(image)
	require.NoError(t, err)
	return d, func(name string) provision.Spec {
		return provision.Spec{Name: name, Image: image, ImageDigest: meta.Digest, CPUs: 2, MemoryMiB: max(meta.MinMemoryMiB, 2048), DiskGiB: max(meta.MinDiskGiB, 12)}
	}
}

// TestRealMachinesKeepTheContract boots a guest twice. Under emulation it takes some minutes.
func TestRealMachinesKeepTheContract(t *testing.T) {
	d, spec := realDriver(t)
	start := time.Now()
	drivertest.Contract(t, drivertest.Setup{Driver: d, Spec: spec, Scratch: "/root"})
	t.Logf("took %s", time.Since(start).Round(time.Second))
}

// TestARealGuest looks at one guest from inside, over its SSH server.
func TestARealGuest(t *testing.T) {
	d, spec := realDriver(t)
	ctx := t.Context()
	require.NoError(t, d.Create(ctx, spec("ada")))
	t.Cleanup(func() { require.NoError(t, d.Delete(context.Background(), "ada")) })
	ep, err := d.Start(ctx, "ada", func(stage string) { t.Log(stage) })
	require.NoError(t, err)
	client, err := ssh.Dial(ctx, ep, ssh.Options{})
	require.NoError(t, err)
	defer client.Close()
	in := func(line string) string {
		t.Helper()
		res, err := client.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", line}})
		require.NoError(t, err)
		return strings.TrimSpace(string(res.Stdout))
	}

	t.Run("identity", func(t *testing.T) {
		rec, err := d.store.Load("ada")
		require.NoError(t, err)
		require.Equal(t, "ada", in("hostname"))
		require.Equal(t, rec.MachineID, in("cat /etc/machine-id"))
		require.Equal(t, "600 0 0", in("stat -c '%a %u %g' /etc/ssh/ssh_host_ed25519_key"))
		now, err := strconv.ParseInt(in("date +%s"), 10, 64)
		require.NoError(t, err)
		require.InDelta(t, time.Now().Unix(), now, 5)
	})
	t.Run("the network ends at the guest", func(t *testing.T) {
		// 10.0.2.2 is this host, seen from a guest of user networking.
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		for _, target := range []string{"10.0.2.2/" + port, "10.0.2.3/53", "192.0.2.1/80"} {
			require.NotEqual(t, "open", in("timeout 5 bash -c 'exec 3<>/dev/tcp/"+target+" && echo open' 2>/dev/null || true"), target)
		}
	})
	t.Run("the guest sees what it must", func(t *testing.T) {
		require.Contains(t, in("ls /dev/virtio-ports"), "org.labctl.agent.0")
		size, err := strconv.ParseInt(in("df --output=size -B1 / | tail -1"), 10, 64)
		require.NoError(t, err)
		require.InDelta(t, spec("ada").DiskGiB<<30, size, float64(2<<30), "the file system fills the disk")
	})
	t.Run("runner", func(t *testing.T) { runtest.Contract(t, client) })
	t.Run("upload", func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		start := time.Now()
		sent, err := client.Push(ctx, self, "/root/lab test/program", 0o755)
		require.NoError(t, err)
		require.True(t, sent)
		info, err := os.Stat(self)
		require.NoError(t, err)
		t.Logf("%d MiB took %s", info.Size()>>20, time.Since(start))
		sent, err = client.Push(ctx, self, "/root/lab test/program", 0o755)
		require.NoError(t, err)
		require.False(t, sent)
	})
	t.Run("reboot from inside", func(t *testing.T) {
		before := in("cat /proc/sys/kernel/random/boot_id")
		_, _ = client.Run(ctx, run.Cmd{Argv: []string{"systemctl", "reboot"}})
		rec, err := d.store.Load("ada")
		require.NoError(t, err)
		var after string
		_, err = check.Wait{Timeout: 4 * time.Minute, Attempt: time.Minute}.For(ctx, check.Check{ID: "reboot", Title: "the guest is back", Ask: func(ctx context.Context) (check.Outcome, error) {
			if err := d.reach(ctx, rec, 30*time.Second, 30*time.Second); err != nil {
				return check.Outcome{}, err
			}
			again, err := ssh.Dial(ctx, ep, ssh.Options{})
			if err != nil {
				return check.Outcome{}, err
			}
			defer again.Close()
			res, err := again.Run(ctx, run.Cmd{Argv: []string{"cat", "/proc/sys/kernel/random/boot_id"}})
			if after = strings.TrimSpace(string(res.Stdout)); err == nil && after == before {
				return check.NotYet("another boot", "the same", ""), nil
			}
			return check.Pass(after), err
		}})
		require.NoError(t, err)
	})
	t.Run("power off", func(t *testing.T) {
		start := time.Now()
		require.NoError(t, d.Stop(ctx, "ada"))
		t.Logf("took %s", time.Since(start))
		require.Less(t, time.Since(start), d.times("tcg").grace, "the guest did it by itself")
		warnings, err := os.ReadFile(d.home.Instance("ada").QEMULog())
		require.NoError(t, err)
		require.Empty(t, string(warnings), "QEMU has nothing to complain about")
	})
}
