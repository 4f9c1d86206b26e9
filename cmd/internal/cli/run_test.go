package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
)

type hinted struct{}

func (hinted) Error() string { return "the disk is full" }
func (hinted) Hint() string  { return "make room" }

// program is a small tree; run is what `tool work` does.
func program(run func(ctx context.Context) error) *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "A tool"}
	work := &cobra.Command{Use: "work", Args: cli.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }}
	work.Flags().Int("count", 1, "how often")
	group := &cobra.Command{Use: "box", Short: "Boxes"}
	group.AddCommand(&cobra.Command{Use: "open NAME", Args: cli.OneArg("the name of a box"), RunE: func(*cobra.Command, []string) error { return nil }})
	topic := &cobra.Command{Use: "colours", Short: "What colours mean", Long: "Green is good."}
	root.AddCommand(work, group, topic)
	return root
}

func run(t *testing.T, o cli.Options, work func(context.Context) error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut, Env: func(string) string { return "" }}
	code = cli.Run(t.Context(), s, program(work), args, o)
	return code, out.String(), errOut.String()
}

func TestCodesAndWords(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	tests := []struct {
		name   string
		args   []string
		err    error
		code   int
		stderr string
	}{
		{name: "all is well", args: []string{"work"}},
		{name: "an error", args: []string{"work"}, err: errors.New("no luck"), code: 3, stderr: "tool: no luck\n"},
		{name: "an error with a hint", args: []string{"work"}, err: fmt.Errorf("copy: %w", hinted{}), code: 3,
			stderr: "tool: copy: the disk is full\n  hint: make room\n"},
		{name: "an error that the program knows", args: []string{"work"}, err: os.ErrNotExist, code: 7, stderr: "tool: file does not exist\n"},
		{name: "all is said", args: []string{"work"}, err: cli.Exit(1), code: 1},
		{name: "unknown command", args: []string{"wrok"}, code: 2, stderr: "tool: there is no command \"tool wrok\"\n  hint: did you mean `tool work`?\n"},
		{name: "unknown subcommand", args: []string{"box", "zzz"}, code: 2, stderr: "tool: there is no command \"tool box zzz\"\n  hint: `tool box --help` lists the commands\n"},
		{name: "unknown flag", args: []string{"work", "--cuont", "1"}, code: 2, stderr: "tool: unknown flag: --cuont\n  hint: `tool work --help` shows how it is used\n"},
		{name: "bad flag value", args: []string{"work", "--count", "x"}, code: 2,
			stderr: "tool: --count: \"x\" is not a whole number\n  hint: `tool work --help` shows how it is used\n"},
		{name: "argument too many", args: []string{"work", "hard"}, code: 2, stderr: "tool: `tool work` takes no arguments, but got \"hard\"\n  hint: `tool work --help` shows how it is used\n"},
		{name: "argument missing", args: []string{"box", "open"}, code: 2, stderr: "tool: `tool box open` needs the name of a box\n  hint: `tool box open --help` shows how it is used\n"},
		{name: "two for one", args: []string{"box", "open", "a", "b"}, code: 2, stderr: "tool: `tool box open` takes only the name of a box, but got also \"b\"\n  hint: `tool box open --help` shows how it is used\n"},
		{name: "unknown help", args: []string{"help", "zzz"}, code: 2, stderr: "tool: there is no help on \"zzz\"\n  hint: `tool help` lists commands and topics\n"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			work := nothing
			if tc.err != nil {
				work = func(context.Context) error { return tc.err }
			}
			o := cli.Options{Classify: func(err error) (int, bool) { return 7, errors.Is(err, os.ErrNotExist) }}
			code, stdout, stderr := run(t, o, work, tc.args...)
			require.Equal(t, tc.code, code)
			require.Empty(t, stdout)
			require.Equal(t, tc.stderr, stderr)
		})
	}
}

func TestHelpIsAResult(t *testing.T) {
	for _, args := range [][]string{nil, {"box"}, {"help", "box"}, {"box", "--help"}} {
		code, stdout, stderr := run(t, cli.Options{}, nil, args...)
		require.Zero(t, code)
		require.Contains(t, stdout, "Usage:", args)
		require.Empty(t, stderr)
	}
	_, stdout, _ := run(t, cli.Options{}, nil, "help", "colours")
	require.Contains(t, stdout, "Green is good.")
}

func TestPanicIsOneSentence(t *testing.T) {
	var log bytes.Buffer
	o := cli.Options{Log: func() (*slog.Logger, string) { return slog.New(slog.NewTextHandler(&log, nil)), "/logs/tool.log" }}
	code, _, stderr := run(t, o, func(context.Context) error { panic("index out of reach") }, "work")
	require.Equal(t, 3, code)
	require.Equal(t, "tool: a fault in the program: index out of reach\n  hint: please report it, with the end of /logs/tool.log\n", stderr)
	require.Contains(t, log.String(), "run_test.go", "the log has the stack")
}

func TestFirstSignalStopsSecondKills(t *testing.T) {
	killed := make(chan int, 1)
	o := cli.Options{Kill: func(code int) { killed <- code }}
	code, _, stderr := run(t, o, func(ctx context.Context) error {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		<-ctx.Done()
		// Until it is late enough to be another request.
		require.Eventually(t, func() bool {
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
			select {
			case code := <-killed:
				return code == 130
			default:
				return false
			}
		}, 30*time.Second, 20*time.Millisecond)
		return fmt.Errorf("wait: %w", context.Cause(ctx))
	}, "work")
	require.Equal(t, 130, code)
	require.Equal(t, "tool: stopping (Ctrl-C); once more ends it at once\n"+
		"tool: ended at once; the next command may find something half done and will say so\n"+
		"tool: stopped by Ctrl-C\n  hint: the same command again goes on\n", stderr)
}

// TestTwoSignalsAtOnceAreOneRequest: programs such as timeout(1) send one to the process and another to its group.
func TestTwoSignalsAtOnceAreOneRequest(t *testing.T) {
	o := cli.Options{Kill: func(int) { t.Error("it was ended at once") }}
	code, _, stderr := run(t, o, func(ctx context.Context) error {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		<-ctx.Done()
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		return context.Cause(ctx)
	}, "work")
	require.Equal(t, 130, code)
	require.NotContains(t, stderr, "ended at once;")
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestAResultThatCannotBeWrittenIsTrouble, whatever the verdict was: nobody has seen it.
func TestAResultThatCannotBeWrittenIsTrouble(t *testing.T) {
	for _, verdict := range []error{nil, cli.Exit(cli.CheckFailed)} {
		var stderr bytes.Buffer
		results := cli.NewResults(full{})
		root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error {
			_, _ = fmt.Fprintln(results, "8 of 8 steps passed")
			return verdict
		}}
		s := cli.Streams{In: strings.NewReader(""), Out: results, Err: &stderr, Env: os.Getenv}
		require.Equal(t, cli.Trouble, cli.Run(t.Context(), s, root, nil, cli.Options{}))
		require.Equal(t, "tool: write the result: no space left on device\n", stderr.String())
	}
}

func TestInterruptWinsOverWhatItBroke(t *testing.T) {
	code, _, stderr := run(t, cli.Options{}, func(ctx context.Context) error {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		<-ctx.Done()
		return errors.New("connection lost")
	}, "work")
	require.Equal(t, 130, code)
	require.Equal(t, "tool: stopping (terminated); once more ends it at once\ntool: stopped by terminated\n  hint: the same command again goes on\n", stderr)
}

func TestWorkThatEndsWellDespiteASignalIsDone(t *testing.T) {
	code, _, _ := run(t, cli.Options{}, func(ctx context.Context) error {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		<-ctx.Done()
		return nil
	}, "work")
	require.Zero(t, code)
}

func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "tool.log")
	unused := &cli.LogFile{Path: path, Max: 1000}
	unused.Logger()
	require.NoError(t, unused.Close())
	require.NoDirExists(t, filepath.Dir(path), "a log without records makes no file")

	log := &cli.LogFile{Path: path, Max: 1000}
	for i := range 50 {
		log.Logger().Debug("line", "number", i)
	}
	require.NoError(t, log.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Greater(t, info.Size(), int64(1000), "one run is kept whole")
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	log = &cli.LogFile{Path: path, Max: 1000}
	log.Logger().Debug("next run")
	require.NoError(t, log.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Less(t, len(text), 700)
	require.True(t, strings.HasPrefix(string(text), "time="), "it starts with a whole line: %q", text)
	require.Contains(t, string(text), "number=49")
	require.NotContains(t, string(text), "number=1 ")
	require.Contains(t, string(text), "next run")

	nowhere := &cli.LogFile{Path: "/proc/none/tool.log", Max: 1}
	nowhere.Logger().Debug("dropped")
	require.NoError(t, nowhere.Close())
}
