package k3s_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/bootstrap/k3s"
	"github.com/cgoa-labs/labctl/provision/run"
)

// guest answers the script's steps, one after the other, and keeps which were asked for.
type guest struct {
	t       *testing.T
	answers map[string][]string
	errs    map[string]error
	steps   []string
}

func (g *guest) Run(_ context.Context, cmd run.Cmd) (run.Result, error) {
	script, err := io.ReadAll(cmd.Stdin)
	require.NoError(g.t, err)
	step := cmd.Argv[len(cmd.Argv)-1]
	require.Contains(g.t, string(script), "\n"+step+")\n", "the script has this step")
	g.steps = append(g.steps, step)
	out := ""
	if left := g.answers[step]; len(left) > 0 {
		out, g.answers[step] = left[0], left[1:]
	}
	return run.Result{Stdout: []byte(out)}, g.errs[step]
}

func isolate(g *guest) (bool, []string, error) {
	var said []string
	done, err := k3s.Isolate(g.t.Context(), g, func(line string) { said = append(said, line) })
	return done, said, err
}

func TestIsolate(t *testing.T) {
	g := &guest{t: t, answers: map[string][]string{"lagging": {"argocd\nkube-system\n", "\n"}}}
	done, said, err := isolate(g)
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, []string{"keys", "lagging", "lagging", "pods"}, g.steps, "no pod is made anew before its namespace has the new authority")
	require.Len(t, said, 3)
}

func TestIsolatedAlready(t *testing.T) {
	g := &guest{t: t, answers: map[string][]string{"keys": {"done\n"}}}
	done, said, err := isolate(g)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, []string{"keys"}, g.steps)
	require.NotContains(t, strings.Join(said, "\n"), "pod")
}

func TestHalfIsolated(t *testing.T) {
	for answer, want := range map[string]bool{"halfway\n": true, "": false} {
		half, err := k3s.HalfIsolated(t.Context(), &guest{t: t, answers: map[string][]string{"halfway": {answer}}})
		require.NoError(t, err)
		require.Equal(t, want, half)
	}
}

func TestIsolateStopsAtWhatFails(t *testing.T) {
	for step, steps := range map[string][]string{"keys": {"keys"}, "pods": {"keys", "lagging", "pods"}} {
		g := &guest{t: t, errs: map[string]error{step: &run.ExitError{Argv: []string{"sh"}, ExitCode: 1, Tail: "no room"}}}
		done, _, err := isolate(g)
		require.ErrorContains(t, err, "no room")
		require.False(t, done)
		require.Equal(t, steps, g.steps)
	}
}
