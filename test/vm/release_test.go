//go:build vm

package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images"
)

// TestRelease goes the whole way from upstream's releases, which a local stand-in serves, by way of a bundle, to a machine without a network and an
// empty state folder, where a lab's first steps, or with PROOF=all all of them, are solved.
func TestRelease(t *testing.T) {
	const image = "release"
	upstream(t)
	dir := filepath.Join(state, "far")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lock, file := filepath.Join(dir, "labctl.lock"), filepath.Join(dir, "lab.bundle")
	must(t, quick, "image", "lock", lock)
	must(t, quick, "image", "lock", lock, "--check")
	built := must(t, 2*boot, "image", "build", "--name", image, "--source", "release", "--lock", lock, "--no-freeze", "-o", "json")
	var doc struct{ Image images.Image }
	require.NoError(t, json.Unmarshal([]byte(built.stdout), &doc))
	require.Equal(t, images.Release, doc.Image.Metadata.Source)
	require.Equal(t, "v3.5.2", doc.Image.Metadata.Versions["argocd"])
	require.Empty(t, doc.Image.Metadata.StandIns)
	must(t, quick, "bundle", "create", file, "--image", image)
	must(t, quick, "image", "rm", image, "--yes")

	// A network namespace of its own, with nothing in it but loopback; and none of this machine's settings and caches.
	script := `set -eu
ip link set lo up
export HOME=$2 XDG_CACHE_HOME=$2/cache XDG_DATA_HOME=$2/data XDG_CONFIG_HOME=$2/config LABCTL_IMAGE_NAME=release
unset LABCTL_STATE_DIR LABCTL_IMAGE_RELEASE_MIRROR LABCTL_IMAGE_REGISTRY_MIRRORS
"$1" bundle load "$3"
rm "$3"
trap '"$1" down far --yes' EXIT
"$1" up far
"$1" doctor --guest far
for step in $4; do "$1" solve --lab ci -i far --step $step; done
for step in $4; do "$1" verify --lab ci -i far --step $step; done
`
	// The lab's other steps are solved in TestLearner: from the same parts, they tell nothing more here.
	steps := []string{"1", "2"}
	if os.Getenv("PROOF") == "all" {
		steps = []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*boot)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", script, "sh", labctl, dir, file, strings.Join(steps, " "))
	if os.Geteuid() != 0 {
		cmd.Args = append([]string{"unshare", "--map-root-user"}, cmd.Args[1:]...)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	t.Log(lastLines(string(out), 80))
	require.NoError(t, err)
	require.Contains(t, string(out), "lab ci, step "+steps[len(steps)-1]+": passed")
	entries, err := os.ReadDir(filepath.Join(dir, "data", "labctl", "instances"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

// upstream serves what the modules source built under upstream's names until the test ends, and leads labctl there.
func upstream(t *testing.T) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "upstream")
	out, err := exec.Command("go", "build", "-o", program, "../upstream").CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.Command(program, "--modules-dir", "../../images/modules")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	scanner := bufio.NewScanner(stdout)
	for range 2 {
		require.True(t, scanner.Scan(), "upstream ended")
		key, value, ok := strings.Cut(strings.TrimPrefix(scanner.Text(), "export "), "=")
		require.True(t, ok, scanner.Text())
		t.Setenv(key, value)
	}
}
