//go:build vm

package vm

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOffline carries the image in a bundle to a machine without a network, and makes an instance there from an empty state folder.
func TestOffline(t *testing.T) {
	dir := filepath.Join(state, "far")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "lab.bundle")
	must(t, quick, "bundle", "create", file)
	// A network namespace of its own, with nothing in it but loopback; and none of this machine's settings and caches.
	script := `set -eu
ip link set lo up
export HOME=$2 XDG_CACHE_HOME=$2/cache XDG_DATA_HOME=$2/data XDG_CONFIG_HOME=$2/config
unset LABCTL_STATE_DIR
"$1" bundle load "$3"
rm "$3"
trap '"$1" down far --yes' EXIT
"$1" up far
"$1" solve --lab ci --step 1 -i far
"$1" verify --lab ci --step 1 -i far
`
	ctx, cancel := context.WithTimeout(t.Context(), 2*boot)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--net", "sh", "-c", script, "sh", labctl, dir, file)
	if os.Geteuid() != 0 {
		cmd.Args = append([]string{"unshare", "--map-root-user"}, cmd.Args[1:]...)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, lastLines(string(out), 40))
	require.Contains(t, string(out), "lab ci, step 1: passed")
	entries, err := os.ReadDir(filepath.Join(dir, "data", "labctl", "instances"))
	require.NoError(t, err)
	require.Empty(t, entries)
}
