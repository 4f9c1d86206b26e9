//go:build vm

package accel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images/probe"
	"github.com/cgoa-labs/labctl/provision/qemu/accel"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
)

// TestProbeBoots boots the real probe under software emulation: program, initial RAM disk, command line and word.
func TestProbeBoots(t *testing.T) {
	kernel := os.Getenv("LABCTL_TEST_KERNEL")
	if kernel == "" {
		t.Skip("LABCTL_TEST_KERNEL is not set; it names a kernel to boot, such as /boot/vmlinuz or an image's vmlinuz")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	require.NoError(t, err)
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "init"), "github.com/cgoa-labs/labctl/cmd/labctl-probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	program, err := os.Open(filepath.Join(dir, "init"))
	require.NoError(t, err)
	defer program.Close()
	initrd, err := os.Create(filepath.Join(dir, "probe.img"))
	require.NoError(t, err)
	require.NoError(t, probe.Write(initrd, program))
	require.NoError(t, initrd.Close())
	took, err := accel.Boot(t.Context(), qemu, argv.Probe(kernel, initrd.Name(), "q35", argv.TCG), 2*time.Minute)
	require.NoError(t, err)
	t.Logf("the word came after %s", took)
}
