package runtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Hostile are words that a shell would change if they were not quoted.
var Hostile = []string{"", " ", "a b", "it's", `"`, "$HOME", "`id`", "*", "~", "a\nb", `\`, "-n", "é", "a;b", "#c", "!x", "a=b", "{1,2}"}

// Contract checks what package run promises of a Runner. r must run POSIX commands on some machine.
func Contract(t *testing.T, r run.Runner) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	sh := func(script string) run.Cmd { return run.Cmd{Argv: []string{"sh", "-c", script}} }

	t.Run("streams are kept apart", func(t *testing.T) {
		res, err := r.Run(ctx, sh("echo out; echo err >&2"))
		require.NoError(t, err)
		require.Equal(t, "out\n", string(res.Stdout))
		require.Equal(t, "err\n", string(res.Stderr))
		require.Zero(t, res.ExitCode)
		require.Positive(t, res.Took)
	})
	t.Run("streams are also passed on", func(t *testing.T) {
		var out, errOut bytes.Buffer
		cmd := sh("echo out; echo err >&2")
		cmd.Stdout, cmd.Stderr = &out, &errOut
		_, err := r.Run(ctx, cmd)
		require.NoError(t, err)
		require.Equal(t, "out\n", out.String())
		require.Equal(t, "err\n", errOut.String())
	})
	t.Run("exit code and output tail are in the error", func(t *testing.T) {
		res, err := r.Run(ctx, sh("echo why >&2; exit 7"))
		var exit *run.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 7, exit.ExitCode)
		require.Equal(t, 7, res.ExitCode)
		require.Contains(t, err.Error(), "why")
	})
	t.Run("a signal is told from a code", func(t *testing.T) {
		_, err := r.Run(ctx, sh("kill -9 $$"))
		var exit *run.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, run.SignalBase+9, exit.ExitCode)
		require.Error(t, exit.Cause)
	})
	t.Run("a missing program is an error", func(t *testing.T) {
		_, err := r.Run(ctx, run.Cmd{Argv: []string{"/no/such/program"}})
		require.Error(t, err)
	})
	t.Run("an empty command is an error", func(t *testing.T) {
		_, err := r.Run(ctx, run.Cmd{})
		require.Error(t, err)
	})
	t.Run("words arrive as they are", func(t *testing.T) {
		res, err := r.Run(ctx, run.Cmd{Argv: append([]string{"printf", `<%s>\n`}, Hostile...)})
		require.NoError(t, err)
		var want strings.Builder
		for _, word := range Hostile {
			fmt.Fprintf(&want, "<%s>\n", word)
		}
		require.Equal(t, want.String(), string(res.Stdout))
	})
	t.Run("environment and folder", func(t *testing.T) {
		cmd := sh(`printf '%s|%s|' "$LABCTL_A" "$LABCTL_B"; pwd`)
		cmd.Env, cmd.Dir = []string{"LABCTL_A=it's $HOME", "LABCTL_B=x=y"}, "/usr"
		res, err := r.Run(ctx, cmd)
		require.NoError(t, err)
		require.Equal(t, "it's $HOME|x=y|/usr\n", string(res.Stdout))
	})
	t.Run("a missing folder is an error", func(t *testing.T) {
		cmd := sh("true")
		cmd.Dir = "/no/such/folder"
		_, err := r.Run(ctx, cmd)
		require.Error(t, err)
	})
	t.Run("no input is an empty input", func(t *testing.T) {
		res, err := r.Run(ctx, run.Cmd{Argv: []string{"cat"}})
		require.NoError(t, err)
		require.Empty(t, res.Stdout)
	})
	t.Run("input is passed to its end", func(t *testing.T) {
		input := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
		res, err := r.Run(ctx, run.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(input)})
		require.NoError(t, err)
		require.True(t, input == string(res.Stdout), "got %d bytes", len(res.Stdout))
	})
	t.Run("input that the command does not read is no error", func(t *testing.T) {
		_, err := r.Run(ctx, run.Cmd{Argv: []string{"true"}, Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
		require.NoError(t, err)
	})
	t.Run("input that cannot be read is an error", func(t *testing.T) {
		broken := errors.New("disk on fire")
		_, err := r.Run(ctx, run.Cmd{Argv: []string{"cat"}, Stdin: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(broken))})
		require.ErrorIs(t, err, broken)
	})
	t.Run("output beyond the limit keeps the newest", func(t *testing.T) {
		over := 1 << 20
		res, err := r.Run(ctx, sh(fmt.Sprintf("head -c %d /dev/zero; printf end", run.MaxOutput+over)))
		require.NoError(t, err)
		require.Len(t, res.Stdout, run.MaxOutput)
		require.True(t, bytes.HasSuffix(res.Stdout, []byte("end")))
	})
	t.Run("commands run beside each other", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				res, err := r.Run(ctx, sh(fmt.Sprintf("echo %d", i)))
				if err != nil || string(res.Stdout) != fmt.Sprintf("%d\n", i) {
					t.Errorf("command %d: %q, %v", i, res.Stdout, err)
				}
			})
		}
		wg.Wait()
	})
	t.Run("an ended ctx runs nothing", func(t *testing.T) {
		ended, stop := context.WithCancel(ctx)
		stop()
		_, err := r.Run(ended, sh("true"))
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("cancel ends the command and its children", func(t *testing.T) { cancelEnds(ctx, t, r, "") })
	t.Run("cancel ends a command that ignores SIGTERM", func(t *testing.T) { cancelEnds(ctx, t, r, "trap '' TERM; ") })
}

func cancelEnds(ctx context.Context, t *testing.T, r run.Runner, prefix string) {
	why := errors.New("the learner went home")
	cancelled, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := r.Run(cancelled, run.Cmd{
			Argv:   []string{"sh", "-c", prefix + "sleep 300 & echo $$ $!; wait; sleep 300"},
			Stdout: in,
		})
		done <- err
		in.Close()
	}()
	var leader, child int
	_, err := fmt.Fscanln(out, &leader, &child)
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	cancel(why)
	select {
	case err := <-done:
		require.ErrorIs(t, err, why)
		_, isExit := run.ExitCode(err)
		require.False(t, isExit, "an interrupted command has no exit code of its own")
	case <-ctx.Done():
		t.Fatal("Run did not return after its ctx had ended")
	}
	for _, pid := range []int{leader, child} {
		_, err := check.Wait{Timeout: 20 * time.Second, First: 20 * time.Millisecond}.For(ctx, check.Check{
			Title: fmt.Sprintf("process %d is gone", pid),
			Ask: func(ctx context.Context) (check.Outcome, error) {
				// A zombie counts as gone: its reaper is not ours.
				res, err := r.Run(ctx, run.Cmd{Argv: []string{"sed", "-n", "s/^State:\t*//p", fmt.Sprintf("/proc/%d/status", pid)}})
				if _, isExit := run.ExitCode(err); isExit || bytes.HasPrefix(res.Stdout, []byte("Z")) {
					return check.Pass("gone"), nil
				}
				return check.NotYet("gone", string(res.Stdout), ""), err
			},
		})
		require.NoError(t, err)
	}
}
