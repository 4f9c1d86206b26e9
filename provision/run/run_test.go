package run_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
)

func TestLocalKeepsTheContract(t *testing.T) { runtest.Contract(t, run.Local{}) }

func TestLocalDoesNotWaitForBackgroundChildren(t *testing.T) {
	start := time.Now()
	res, err := run.Local{}.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", "echo done; sleep 60 & echo $!"}})
	require.NoError(t, err)
	require.Less(t, time.Since(start), 30*time.Second)
	lines := strings.Fields(string(res.Stdout))
	require.Equal(t, "done", lines[0])
	require.NoError(t, exec.Command("kill", lines[1]).Run(), "the child was left running on purpose")
}

func TestQuote(t *testing.T) {
	for want, argv := range map[string][]string{
		"":                     nil,
		"git commit -m 'a b'":  {"git", "commit", "-m", "a b"},
		`echo 'it'\''s'`:       {"echo", "it's"},
		"x ''":                 {"x", ""},
		"a=b@c:d/e.f,g_h+i%-j": {"a=b@c:d/e.f,g_h+i%-j"},
		"echo '~' '$x' '*'":    {"echo", "~", "$x", "*"},
	} {
		require.Equal(t, want, run.Quote(argv))
	}
	// What counts is what a shell makes of it.
	out, err := exec.Command("sh", "-c", run.Quote(append([]string{"printf", `%s\0`}, runtest.Hostile...))).Output()
	require.NoError(t, err)
	require.Equal(t, strings.Join(runtest.Hostile, "\x00")+"\x00", string(out))
}

func TestTail(t *testing.T) {
	require.Equal(t, "", run.Tail(nil, 10))
	require.Equal(t, "a | b", run.Tail([]byte("\n a\r\n\nb\n"), 10))
	require.Equal(t, "…cdef", run.Tail([]byte("abcdef"), 4))
	require.Equal(t, "…x", run.Tail([]byte("éx"), 2), "half a rune is dropped")
}

func TestExitError(t *testing.T) {
	cause := errors.New("ended by signal killed")
	err := run.NewExitError([]string{"a b"}, run.Result{ExitCode: 137, Stdout: []byte("out\n"), Stderr: []byte(" \n")}, cause)
	require.Equal(t, "'a b': exit code 137 (ended by signal killed): out", err.Error())
	require.ErrorIs(t, err, cause)
	code, ok := run.ExitCode(errors.Join(context.Canceled, err))
	require.True(t, ok)
	require.Equal(t, 137, code)
	_, ok = run.ExitCode(cause)
	require.False(t, ok)
	require.Equal(t, "x: exit code 1: why", run.NewExitError([]string{"x"}, run.Result{ExitCode: 1, Stdout: []byte("out"), Stderr: []byte("why")}, nil).Error())
}

func TestBufferKeepsTheNewest(t *testing.T) {
	var b run.Buffer
	require.Empty(t, b.Bytes())
	piece := strings.Repeat("x", 1<<20)
	for range 3*run.MaxOutput/len(piece) + 1 {
		n, err := b.Write([]byte(piece))
		require.NoError(t, err)
		require.Len(t, piece, n)
	}
	_, _ = b.Write([]byte("end"))
	got := b.Bytes()
	require.Len(t, got, run.MaxOutput)
	require.True(t, strings.HasSuffix(string(got), "xend"))
	got[0] = 'y'
	require.NotEqual(t, byte('y'), b.Bytes()[0], "Bytes is a copy")
}
