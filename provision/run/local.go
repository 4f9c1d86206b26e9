package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Local runs commands on this machine, each in a process group of its own, so that ending one ends its children too.
type Local struct{}

// killDelay is how long a cancelled command gets between SIGTERM and SIGKILL.
const killDelay = 5 * time.Second

// Run implements Runner.
func (Local) Run(ctx context.Context, cmd Cmd) (Result, error) {
	if len(cmd.Argv) == 0 {
		return Result{}, errors.New("run: empty command")
	}
	var stdout, stderr Buffer
	c := exec.CommandContext(ctx, cmd.Argv[0], cmd.Argv[1:]...)
	c.Dir, c.Stdin = cmd.Dir, cmd.Stdin
	c.Env = append(os.Environ(), cmd.Env...)
	c.Stdout, c.Stderr = tee(&stdout, cmd.Stdout), tee(&stderr, cmd.Stderr)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = killDelay
	start := time.Now()
	err := c.Run()
	if c.Process != nil && ctx.Err() != nil {
		// The leader is gone; what it left in its group must not outlive the command.
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	res := Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Took: time.Since(start)}
	if err == nil {
		return res, nil
	}
	if ctx.Err() != nil {
		return res, fmt.Errorf("%s: %w", Quote(cmd.Argv), context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success() {
		// The command itself ended well; only a child that it left in the background kept its output open.
		return res, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return res, fmt.Errorf("run %s: %w", Quote(cmd.Argv), err)
	}
	res.ExitCode = exit.ExitCode()
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.ExitCode = SignalBase + int(ws.Signal())
		return res, NewExitError(cmd.Argv, res, fmt.Errorf("ended by signal %s", ws.Signal()))
	}
	return res, NewExitError(cmd.Argv, res, nil)
}

// NewExitError builds the error for a command that ended with res.ExitCode.
func NewExitError(argv []string, res Result, cause error) *ExitError {
	out := res.Stderr
	if len(bytes.TrimSpace(out)) == 0 {
		out = res.Stdout
	}
	return &ExitError{Argv: argv, ExitCode: res.ExitCode, Tail: Tail(out, 2000), Cause: cause}
}

func tee(keep *Buffer, also io.Writer) io.Writer {
	if also == nil {
		return keep
	}
	return io.MultiWriter(keep, also)
}
