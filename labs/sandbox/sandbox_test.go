package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
)

// home makes a folder that stands for the learner's, and a scratch folder outside it.
func home(t *testing.T) (dir string, s *sandbox.Scratch) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mount namespaces need root")
	}
	dir = t.TempDir()
	s, err := sandbox.New(t.TempDir(), "labctl-test")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()); require.NoDirExists(t, s.Dir) })
	return dir, s
}

func box(t *testing.T, s *sandbox.Scratch, o sandbox.Options) *sandbox.Box {
	t.Helper()
	o.Env = append(o.Env, "PATH="+os.Getenv("PATH"))
	b, err := s.Box(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestRunnerKeepsTheContract(t *testing.T) {
	dir, s := home(t)
	runtest.Contract(t, box(t, s, sandbox.Options{Copied: []string{dir}}))
}

func sh(t *testing.T, r run.Runner, script string) string {
	t.Helper()
	res, err := r.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", script}})
	require.NoError(t, err)
	return strings.TrimSpace(string(res.Stdout))
}

func TestWritesStayInTheSandbox(t *testing.T) {
	dir, s := home(t)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("real"), 0o644))
	r := box(t, s, sandbox.Options{Copied: []string{dir}})

	require.Equal(t, "changed", sh(t, r, fmt.Sprintf("cd %s; echo changed > file; mkdir new; cat file", dir)))
	require.Equal(t, "changed", sh(t, r, "cat "+file), "the next command sees it")
	require.Equal(t, "gone", sh(t, r, "rm "+file+"; test -e "+file+" || echo gone"))
	other := box(t, s, sandbox.Options{Copied: []string{dir}})
	require.Equal(t, "real", sh(t, other, "cat "+file), "another box starts from the real files")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "real", string(text))
	require.NoDirExists(t, filepath.Join(dir, "new"))
}

func TestBindsReplaceFiles(t *testing.T) {
	dir, s := home(t)
	file, fake := filepath.Join(dir, "file"), filepath.Join(s.Dir, "fake")
	require.NoError(t, os.WriteFile(file, []byte("real"), 0o644))
	require.NoError(t, os.WriteFile(fake, []byte("fake"), 0o644))
	o := sandbox.Options{Copied: []string{dir}, Binds: []sandbox.Bind{{From: fake, To: file}}}
	r := box(t, s, o)
	require.Equal(t, "fake", sh(t, r, "cat "+file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "real", string(text))

	o.Binds[0].To = filepath.Join(dir, "none")
	_, err = s.Box(o)
	require.ErrorContains(t, err, "bind")
}

func TestTheProgramItselfStaysOutside(t *testing.T) {
	dir, s := home(t)
	before, err := os.Readlink("/proc/self/ns/mnt")
	require.NoError(t, err)
	b := box(t, s, sandbox.Options{Copied: []string{dir}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			res, err := b.Run(context.Background(), run.Cmd{Argv: []string{"readlink", "/proc/self/ns/mnt"}})
			if err != nil || strings.TrimSpace(string(res.Stdout)) == before {
				t.Errorf("command %d: %s, %v", i, res.Stdout, err)
			}
		})
	}
	wg.Wait()
	_, err = check.Wait{Timeout: 10 * time.Second, First: time.Millisecond}.For(t.Context(), check.Check{Title: "threads outside", Ask: func(context.Context) (check.Outcome, error) {
		tasks, err := filepath.Glob("/proc/self/task/*/ns/mnt")
		for _, task := range tasks {
			// A thread that has ended meanwhile cannot be read.
			if ns, err := os.Readlink(task); err == nil && ns != before {
				return check.NotYet("", task, ""), nil
			}
		}
		return check.Pass(""), err
	}})
	require.NoError(t, err)
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), dir)
}

func TestEnvironmentIsExactlyWhatWasGiven(t *testing.T) {
	t.Setenv("KUBECONFIG", "/secret")
	_, s := home(t)
	r := box(t, s, sandbox.Options{Env: []string{"HOME=/h"}})
	out := sh(t, r, "env")
	require.NotContains(t, out, "KUBECONFIG")
	require.Contains(t, out, "HOME=/h")
	require.Contains(t, out, "TMPDIR="+r.Tmp())
	require.Equal(t, r.Tmp(), sh(t, r, `dirname "$(mktemp)"`))
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil && !zombie(pid) }

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func gone(t *testing.T, pid int) {
	t.Helper()
	_, err := check.Wait{Timeout: 10 * time.Second}.For(t.Context(), check.Check{Title: "process gone", Ask: func(context.Context) (check.Outcome, error) {
		if alive(pid) {
			return check.NotYet("", "alive", ""), nil
		}
		return check.Pass(""), nil
	}})
	require.NoError(t, err)
}

// daemonised starts a program in a session of its own and prints its pid.
const daemonised = `setsid -f sh -c 'echo $$; exec sleep 300 >/dev/null 2>&1' | head -n 1`

func TestNothingIsLeftRunning(t *testing.T) {
	_, s := home(t)
	r := box(t, s, sandbox.Options{})
	var child, daemon int
	out := sh(t, r, "sleep 300 >/dev/null 2>&1 & echo $!; "+daemonised)
	_, err := fmt.Sscan(out, &child, &daemon)
	require.NoError(t, err)
	gone(t, child)
	require.True(t, alive(daemon), "a daemon lives on until the scratch folder is closed")
	require.NoError(t, s.Close())
	gone(t, daemon)
}

// TestKilledOwner runs this test binary as a program with a scratch folder and kills it at work.
func TestKilledOwner(t *testing.T) {
	if root := os.Getenv("SANDBOX_TEST_ROOT"); root != "" {
		s, err := sandbox.New(root, "labctl-test")
		require.NoError(t, err)
		r := box(t, s, sandbox.Options{})
		_, _ = r.Run(context.Background(), run.Cmd{Argv: []string{"sh", "-c", "echo $$ $(" + daemonised + ") > " + root + "/pids.tmp; mv " + root + "/pids.tmp " + root + "/pids; sleep 300"}})
		return
	}
	_, _ = home(t)
	root := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestKilledOwner$")
	cmd.Env = append(os.Environ(), "SANDBOX_TEST_ROOT="+root)
	require.NoError(t, cmd.Start())
	_, err := check.Wait{Timeout: 20 * time.Second}.For(t.Context(), check.Check{Title: "pids", Ask: func(context.Context) (check.Outcome, error) {
		_, err := os.Stat(filepath.Join(root, "pids"))
		return check.Pass(""), err
	}})
	require.NoError(t, err)
	mine, err := sandbox.Left(root, "labctl-test")
	require.NoError(t, err)
	require.Empty(t, mine, "a living owner's folder is not left over")
	swept, err := sandbox.Sweep(root, "labctl-test")
	require.NoError(t, err)
	require.Empty(t, swept)

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	var leader, daemon int
	text, err := os.ReadFile(filepath.Join(root, "pids"))
	require.NoError(t, err)
	_, err = fmt.Sscan(string(text), &leader, &daemon)
	require.NoError(t, err)
	gone(t, leader)
	require.True(t, alive(daemon))

	s, err := sandbox.New(root, "labctl-test")
	require.NoError(t, err)
	gone(t, daemon)
	require.NoError(t, s.Close())
	left, err := filepath.Glob(filepath.Join(root, "labctl-test.*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOnlyItsOwnIsSwept(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"labctl-other.1.1.x", "labctl-test", "labctl-test.x", "labctl-test.a.b.c", "labctl-test2.1.1.x"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o755))
	}
	stale := filepath.Join(root, fmt.Sprintf("labctl-test.%d.1.x", os.Getpid()))
	require.NoError(t, os.Mkdir(stale, 0o755))
	swept, err := sandbox.Sweep(root, "labctl-test")
	require.NoError(t, err)
	require.Equal(t, []string{stale}, swept, "a pid that was used again is told by its start time")
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 5)
}

func TestAFullDiskIsSaid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	_, err := sandbox.New(dir, "labctl-test")
	var full *sandbox.SpaceError
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NotEmpty(t, full.Hint())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestTimeoutIsNotAnExitCode(t *testing.T) {
	_, s := home(t)
	why := errors.New("too slow")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, why)
	defer cancel()
	_, err := box(t, s, sandbox.Options{}).Run(ctx, run.Cmd{Argv: []string{"sh", "-c", "trap '' TERM; sleep 60"}})
	require.ErrorIs(t, err, why)
	_, exited := run.ExitCode(err)
	require.False(t, exited)
}
