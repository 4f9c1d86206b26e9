package cmd_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl"
)

// terminal runs labctl as if a person sat before it, who types answers.
type terminal struct {
	t    *testing.T
	home string
}

func newTerminal(t *testing.T) *terminal {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("WORK", home)
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("LABCTL_GUEST_DIR", home)
	t.Setenv("FAKE", "")
	t.Setenv("ANSWER", "")
	t.Setenv("LAB_SAYS", "")
	require.NoError(t, placeLabs(home))
	return &terminal{t, home}
}

// screen is written to by the program and by whatever handles its signals, as a file can be.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (c *terminal) run(in io.Reader, args ...string) (code int, stdout, stderr string) {
	var out, errOut screen
	code = labctl.Run(c.t.Context(), cli.Streams{
		In: in, Out: &out, Err: &errOut, InTTY: true, OutTTY: true, ErrTTY: true,
		Columns: func() int { return 100 },
		Env: func(name string) string {
			return map[string]string{"LANG": "en_US.UTF-8", "TERM": "xterm"}[name]
		},
	}, args, fakeParts())
	return code, out.String(), errOut.String()
}

func TestOnATerminal(t *testing.T) {
	c := newTerminal(t)
	code, stdout, stderr := c.run(nil, "up")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "\x1b[1mlearner\x1b[0m is ready")
	require.Contains(t, stderr, "\x1b[32m✓\x1b[0m start learner")
	require.NotContains(t, stderr, "start learner ...", "plain lines are for where there is no terminal")

	code, stdout, stderr = c.run(strings.NewReader("n\n"), "down", "learner")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	require.Equal(t, "Remove instance learner (running) and all work in it? [y/N] nothing was changed\n", stderr)
	require.DirExists(t, filepath.Join(c.home, ".local/share/labctl/instances/learner"))

	code, _, stderr = c.run(strings.NewReader("\n"), "reset", "--lab", "ci")
	require.Equal(t, 2, code)
	require.Equal(t, "Remove all work on lab ci in learner? [y/N] nothing was changed\n", stderr)

	code, stdout, _ = c.run(strings.NewReader("yes\n"), "down", "learner")
	require.Zero(t, code)
	require.Equal(t, "learner is gone\n", stdout)
	require.NoDirExists(t, filepath.Join(c.home, ".local/share/labctl/instances/learner"))
}

// interrupting sends the signal that Ctrl-C sends, when it is asked for input.
type interrupting struct{ hang io.Reader }

func (r interrupting) Read(p []byte) (int, error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		return 0, err
	}
	return r.hang.Read(p)
}

func TestInterruptAtAQuestion(t *testing.T) {
	c := newTerminal(t)
	code, _, stderr := c.run(nil, "up")
	require.Zero(t, code, stderr)
	hang, _ := io.Pipe()
	code, _, stderr = c.run(interrupting{hang}, "down", "learner")
	require.Equal(t, 130, code)
	require.Contains(t, stderr, "labctl: stopped by Ctrl-C\n")
	require.DirExists(t, filepath.Join(c.home, ".local/share/labctl/instances/learner"))
}

func TestLogInOnATerminalIsTheSystemsClient(t *testing.T) {
	c := newTerminal(t)
	code, _, stderr := c.run(nil, "up")
	require.Zero(t, code, stderr)
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\nprintf '<%s>' \"$@\"; read -r line; echo \"$line\"; exit 7\n"), 0o755))
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))

	code, stdout, stderr := c.run(strings.NewReader("typed\n"), "ssh")
	require.Equal(t, 7, code)
	require.Empty(t, stderr)
	require.Equal(t, "<-p><40007><127.0.0.1>typed\n", stdout)

	code, stdout, _ = c.run(strings.NewReader("typed\n"), "ssh", "learner", "--", "top", "-d", "1")
	require.Equal(t, 7, code)
	require.Equal(t, "<-p><40007><-t><127.0.0.1><top -d 1>typed\n", stdout)

	// Where there is none, labctl logs in by itself.
	t.Setenv("PATH", t.TempDir())
	code, stdout, stderr = c.run(strings.NewReader("typed\n"), "ssh")
	require.Zero(t, code, stderr)
	require.Equal(t, "shell: typed\n", stdout)
}
