package runtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
)

// recorder is a testing.TB that keeps failures instead of failing.
type recorder struct {
	testing.TB
	errs    []string
	cleanup []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Cleanup(f func())  { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Error(args ...any) { r.errs = append(r.errs, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) {
	r.errs = append(r.errs, fmt.Sprintf(f, args...))
}
func (r *recorder) end() {
	for _, f := range r.cleanup {
		f()
	}
}

func TestFakeAnswersInOrder(t *testing.T) {
	f := runtest.New(t)
	f.On("git", "push").Stderr("rejected").Exit(1)
	f.On("git", "push").Stdout("ok\n")
	f.OnMatch("any kubectl", func(s runtest.Seen) bool { return s.Argv[0] == "kubectl" }).Any()

	_, err := f.Run(t.Context(), run.Cmd{Argv: []string{"git", "push"}})
	code, isExit := run.ExitCode(err)
	require.True(t, isExit)
	require.Equal(t, 1, code)
	require.ErrorContains(t, err, "git push: exit code 1: rejected")

	var out strings.Builder
	res, err := f.Run(t.Context(), run.Cmd{Argv: []string{"git", "push"}, Stdin: strings.NewReader("in"), Env: []string{"A=b"}, Dir: "/d", Stdout: &out})
	require.NoError(t, err)
	require.Equal(t, "ok\n", string(res.Stdout))
	require.Equal(t, "ok\n", out.String())
	require.Equal(t, runtest.Seen{Argv: []string{"git", "push"}, Env: []string{"A=b"}, Dir: "/d", Stdin: "in"}, f.Seen()[1])
}

func TestFakeFailsOnUnmatchedAndUnused(t *testing.T) {
	rec := &recorder{}
	f := runtest.New(rec)
	f.On("true").Times(2)
	_, err := f.Run(t.Context(), run.Cmd{Argv: []string{"false"}})
	require.ErrorContains(t, err, "unexpected command: false")
	_, err = f.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	rec.end()
	require.Len(t, rec.errs, 2)
	require.Contains(t, rec.errs[0], "unexpected command: false")
	require.Contains(t, rec.errs[1], "true (used 1 times, 1 missing)")

	// Once too often is unexpected too.
	rec = &recorder{}
	f = runtest.New(rec)
	f.On("true")
	for range 2 {
		_, err = f.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	}
	require.Error(t, err)
	rec.end()
	require.Len(t, rec.errs, 1)
}

func TestFakeErrDoAndContext(t *testing.T) {
	f := runtest.New(t)
	gone := errors.New("connection lost")
	f.On("a").Err(gone)
	f.On("b").Do(func(_ context.Context, s runtest.Seen) (run.Result, error) {
		return run.Result{Stdout: []byte(s.Stdin), ExitCode: 3}, nil
	})
	_, err := f.Run(t.Context(), run.Cmd{Argv: []string{"a"}})
	require.ErrorIs(t, err, gone)
	res, err := f.Run(t.Context(), run.Cmd{Argv: []string{"b"}, Stdin: strings.NewReader("x")})
	require.Equal(t, "x", string(res.Stdout))
	code, _ := run.ExitCode(err)
	require.Equal(t, 3, code)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Run(ended, run.Cmd{Argv: []string{"c"}})
	require.ErrorIs(t, err, context.Canceled)
}
