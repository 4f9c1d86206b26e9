//go:build linux

package testbed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision/run"
)

// start starts a program in a testbed's place.
func start(t *testing.T, script string) (*Testbed, layout.Home, []string, error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
	home := layout.Home{State: t.TempDir()}
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755))
	var said []string
	bed, err := Start(t.Context(), Options{Program: program, Image: layout.ImageDir("/image"), Home: home, Say: func(s string) { said = append(said, s) }})
	if bed != nil {
		t.Cleanup(func() { _ = bed.Close() })
	}
	return bed, home, said, err
}

func TestRunsProgramsInItsNamespaces(t *testing.T) {
	t.Setenv("SECRET", "of the parent")
	bed, home, said, err := start(t, "echo \"disk $1\"\nhostname inside\necho ready\nexec sleep 1000\n")
	require.NoError(t, err)
	require.Equal(t, []string{"disk /image/disk.raw"}, said)

	res, err := bed.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", `hostname; echo "$HOME $SECRET $MORE"; pwd; readlink /proc/self/ns/net; cat`},
		Env: []string{"MORE=of the call"}, Dir: "/usr", Stdin: strings.NewReader("typed")})
	require.NoError(t, err)
	own, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	lines := strings.Split(string(res.Stdout), "\n")
	require.Equal(t, []string{"inside", "/root  of the call", "/usr"}, lines[:3])
	require.NotEqual(t, own, lines[3], "it has this machine's network")
	require.Equal(t, "typed", lines[4])

	_, err = bed.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", "echo why >&2; exit 7"}})
	var exit *run.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 7, exit.ExitCode)
	require.Equal(t, "why", exit.Tail)
	require.NotContains(t, err.Error(), "nsenter")

	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "new", "to")
	require.NoError(t, os.WriteFile(from, []byte("whole"), 0o600))
	require.NoError(t, bed.Upload(t.Context(), from, to, 0o755))
	info, err := os.Stat(to)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	require.Error(t, bed.Upload(t.Context(), from+"nowhere", to, 0o755))

	// One at a time.
	_, err = Start(t.Context(), Options{Program: "/bin/true", Home: home})
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	_, err = bed.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.NoError(t, err, "who comes second must not end the first")

	require.NoError(t, bed.Close())
	require.NoDirExists(t, home.Testbed())
	_, err = bed.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.Error(t, err)
}

func TestSaysWhyItDidNotStart(t *testing.T) {
	for script, want := range map[string]string{
		"echo one >&2\necho two >&2\necho 'error: no image'\nexec sleep 1000\n": "no image",
		"echo one >&2\necho two >&2\nexit 3\n":                                  "its program has ended",
	} {
		_, home, _, err := start(t, script)
		var failed *StartError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, want, failed.Err.Error())
		require.Equal(t, "one\ntwo", failed.Tail)
		require.NoDirExists(t, home.Testbed(), "a failed start leaves nothing")
	}
}

func TestCtrlCWhileItStarts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
	why := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	home := layout.Home{State: t.TempDir()}
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho begun\nexec sleep 1000\n"), 0o755))
	begun := time.Now()
	_, err := Start(ctx, Options{Program: program, Home: home, Say: func(string) { cancel(why) }})
	require.ErrorIs(t, err, why)
	require.Less(t, time.Since(begun), time.Minute)
	require.NoDirExists(t, home.Testbed())
}
