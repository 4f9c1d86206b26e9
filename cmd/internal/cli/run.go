package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Version is the program's version, set by the linker.
var Version = "unknown"

// Options is what Run needs beside the command tree. The zero value works.
type Options struct {
	// Classify gives the exit code of an error of the program's own layers.
	Classify func(error) (code int, known bool)
	// Log returns the debug log, and the name of its file where it has one.
	Log func() (*slog.Logger, string)
	// Kill ends the program at once, after a second signal; by default os.Exit.
	Kill func(code int)
}

// Run runs root on args and returns the exit code. The first SIGINT, SIGTERM or SIGHUP ends ctx with an *InterruptError
// as its cause, the second ends the program. A panic becomes one sentence; its details go to the log.
func Run(ctx context.Context, s Streams, root *cobra.Command, args []string, o Options) int {
	if o.Log == nil {
		o.Log = func() (*slog.Logger, string) { return slog.New(slog.DiscardHandler), "" }
	}
	if o.Kill == nil {
		o.Kill = os.Exit
	}
	ctx, stop := interruptible(ctx, s, root.Name(), o.Kill)
	defer stop()
	prepare(root)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetArgs(args)

	start := time.Now()
	err := execute(ctx, root, o.Log)
	if results, ok := s.Out.(*Results); ok && results.lost() != nil {
		// Whatever the verdict was, nobody has seen it.
		if exit := (*ExitError)(nil); err == nil || errors.As(err, &exit) {
			err = fmt.Errorf("write the result: %w", results.lost())
		}
	}
	n := code(err, o.Classify)
	log, _ := o.Log()
	var interrupt *InterruptError
	var exit *ExitError
	switch {
	case err == nil:
	case errors.As(context.Cause(ctx), &interrupt):
		// Whatever the error says, this is why.
		err, n = interrupt, Interrupted
		PrintError(s.Err, root.Name(), err)
	case errors.As(err, &exit):
	default:
		PrintError(s.Err, root.Name(), err)
	}
	log.Debug("end", "args", args, "code", n, "took", time.Since(start).Round(time.Millisecond), "error", err)
	return n
}

func execute(ctx context.Context, root *cobra.Command, log func() (*slog.Logger, string)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			logger, file := log()
			logger.Error("panic", "value", p, "stack", string(debug.Stack()))
			err = &PanicError{Value: p, Log: file}
		}
	}()
	return root.ExecuteContext(ctx)
}

// again is from when on a second signal is one that somebody sent because the first was not enough. Programs such as timeout(1) send
// one to the process and, at once, another to its group.
const again = 500 * time.Millisecond

// interruptible ends ctx at the first signal and the program at a later one.
func interruptible(parent context.Context, s Streams, program string, kill func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				if !first.IsZero() && time.Since(first) < again {
					continue
				}
				if !first.IsZero() {
					say(s, program+": ended at once; the next command may find something half done and will say so")
					kill(Interrupted)
					return
				}
				name := "Ctrl-C"
				if sig != os.Interrupt {
					name = sig.String()
				}
				say(s, program+": stopping ("+name+"); once more ends it at once")
				first = time.Now()
				cancel(&InterruptError{Signal: name})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// say writes a line over whatever the spinner has on the terminal's last line.
func say(s Streams, line string) {
	if s.ErrTTY {
		line = "\r\x1b[K" + line
	}
	_, _ = io.WriteString(s.Err, line+"\n")
}
