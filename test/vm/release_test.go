//go:build vm

package vm

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
)

// TestRelease goes the whole way from upstream's releases, which a local stand-in serves, to a lab that is solved.
func TestRelease(t *testing.T) {
	const image, name = "release", "released"
	upstream(t)
	lock := filepath.Join(t.TempDir(), "labctl.lock")
	must(t, quick, "image", "lock", lock)
	must(t, quick, "image", "lock", lock, "--check")
	built := must(t, 2*boot, "image", "build", "--name", image, "--source", "release", "--lock", lock, "-o", "json")
	var doc struct{ Image images.Image }
	require.NoError(t, json.Unmarshal([]byte(built.stdout), &doc))
	require.Equal(t, images.Release, doc.Image.Metadata.Source)
	require.Equal(t, "v3.5.2", doc.Image.Metadata.Versions["argocd"])
	require.Empty(t, doc.Image.Metadata.StandIns)
	t.Setenv("LABCTL_IMAGE_NAME", image)
	t.Setenv("LABCTL_IMAGE_LOCK", lock)
	must(t, boot, "up", name)
	require.Empty(t, doctor(t, name))
	must(t, laboro, "solve", "--lab", "ci", "-i", name)
	r := report(t, laboro, "verify", "--lab", "ci", "-i", name)
	require.Equal(t, check.Passed, r.State, explain(r))
	must(t, quick, "down", name, "--yes")
	must(t, quick, "image", "rm", image, "--yes")
}

// doctor are the checks of the guest's contract that did not pass.
func doctor(t *testing.T, name string) []check.Result {
	t.Helper()
	var doc struct{ Checks []check.Result }
	require.NoError(t, json.Unmarshal([]byte(must(t, quick, "doctor", "--guest", name, "-o", "json").stdout), &doc))
	require.NotEmpty(t, doc.Checks)
	var bad []check.Result
	for _, c := range doc.Checks {
		if c.State != check.Passed {
			bad = append(bad, c)
		}
	}
	return bad
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
