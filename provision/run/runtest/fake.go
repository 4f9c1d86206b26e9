// Package runtest has a scripted run.Runner for tests, and the contract that every real Runner must keep.
package runtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Fake is a run.Runner that answers from a script. A command that no expectation matches fails the test, and so does an
// expectation that was not used when the test ends. It is safe for concurrent use.
type Fake struct {
	t     testing.TB
	mu    sync.Mutex
	calls []*Call
	seen  []Seen
}

// Seen is a command that reached the Fake, with its input read to the end.
type Seen struct {
	Argv  []string
	Env   []string
	Dir   string
	Stdin string
}

// New makes a Fake whose script is checked when t ends.
func New(t testing.TB) *Fake {
	t.Helper()
	f := &Fake{t: t}
	t.Cleanup(f.verify)
	return f
}

// Call is one expectation. By default it is used exactly once, prints nothing and ends with code 0.
type Call struct {
	what  string
	match func(Seen) bool
	// left is how often the call may still be used; below 0 means without limit.
	left, used int
	optional   bool
	res        run.Result
	err        error
	do         func(ctx context.Context, cmd Seen) (run.Result, error)
}

// On expects exactly this argv. Expectations are tried in the order in which they were made.
func (f *Fake) On(argv ...string) *Call {
	return f.OnMatch(run.Quote(argv), func(s Seen) bool { return slices.Equal(s.Argv, argv) })
}

// OnMatch expects a command that match accepts; what names it in messages.
func (f *Fake) OnMatch(what string, match func(Seen) bool) *Call {
	c := &Call{what: what, match: match, left: 1}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c)
	return c
}

// Stdout sets what the command prints.
func (c *Call) Stdout(s string) *Call { c.res.Stdout = []byte(s); return c }

// Stderr sets what the command prints on standard error.
func (c *Call) Stderr(s string) *Call { c.res.Stderr = []byte(s); return c }

// Exit sets the exit code; other than 0 it becomes a *run.ExitError.
func (c *Call) Exit(code int) *Call { c.res.ExitCode = code; return c }

// Err makes the command fail to run at all.
func (c *Call) Err(err error) *Call { c.err = err; return c }

// Do answers with a function instead.
func (c *Call) Do(do func(ctx context.Context, cmd Seen) (run.Result, error)) *Call {
	c.do = do
	return c
}

// Times sets how often the command is expected; each use must happen.
func (c *Call) Times(n int) *Call { c.left = n; return c }

// Any allows any number of uses, also none.
func (c *Call) Any() *Call { c.left, c.optional = -1, true; return c }

// Seen is every command so far, in order.
func (f *Fake) Seen() []Seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// Run implements run.Runner.
func (f *Fake) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	seen := Seen{Argv: slices.Clone(cmd.Argv), Env: slices.Clone(cmd.Env), Dir: cmd.Dir}
	if cmd.Stdin != nil {
		input, err := io.ReadAll(cmd.Stdin)
		if err != nil {
			return run.Result{}, fmt.Errorf("%s: read input: %w", run.Quote(cmd.Argv), err)
		}
		seen.Stdin = string(input)
	}
	if ctx.Err() != nil {
		return run.Result{}, fmt.Errorf("%s: %w", run.Quote(cmd.Argv), context.Cause(ctx))
	}
	call := f.take(seen)
	if call == nil {
		err := fmt.Errorf("runtest: unexpected command: %s", run.Quote(cmd.Argv))
		f.t.Error(err)
		return run.Result{}, err
	}
	res, err := call.res, call.err
	if call.do != nil {
		res, err = call.do(ctx, seen)
	}
	for _, out := range []struct {
		to   io.Writer
		data []byte
	}{{cmd.Stdout, res.Stdout}, {cmd.Stderr, res.Stderr}} {
		if out.to != nil {
			_, _ = out.to.Write(out.data)
		}
	}
	if err == nil && res.ExitCode != 0 {
		err = run.NewExitError(cmd.Argv, res, nil)
	}
	return res, err
}

func (f *Fake) take(seen Seen) *Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, seen)
	for _, c := range f.calls {
		if c.left != 0 && c.match(seen) {
			c.left--
			c.used++
			return c
		}
	}
	return nil
}

func (f *Fake) verify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.left > 0 && !c.optional {
			f.t.Errorf("runtest: expected command was not run: %s (used %d times, %d missing)", c.what, c.used, c.left)
		}
	}
}
