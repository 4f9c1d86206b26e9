package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/provision/run"
)

var _ run.Runner = (*Client)(nil)

// Run implements run.Runner. It returns *LostError when the connection ended first. A command that leaves a child in the
// background with its output open is waited for until that child ends, as with every SSH client.
func (c *Client) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	if len(cmd.Argv) == 0 {
		return run.Result{}, errors.New("run: empty command")
	}
	if ctx.Err() != nil {
		return run.Result{}, fmt.Errorf("%s: %w", run.Quote(cmd.Argv), context.Cause(ctx))
	}
	start := time.Now()
	var stdout, stderr run.Buffer
	in := &input{from: cmd.Stdin}
	err := c.session(ctx, run.Quote(cmd.Argv), func(s *ssh.Session) error {
		s.Stdout, s.Stderr = also(&stdout, cmd.Stdout), also(&stderr, cmd.Stderr)
		if err := in.feed(s); err != nil {
			return err
		}
		return s.Start(line(cmd))
	})
	if broken := in.broken.Load(); err == nil && broken != nil {
		err = fmt.Errorf("%s: read its input: %w", run.Quote(cmd.Argv), *broken)
	}
	res := run.Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Took: time.Since(start)}
	return c.result(cmd.Argv, res, err)
}

// input feeds a session. The session's own way reports it as an error when a command ends without reading all of it.
type input struct {
	from   io.Reader
	broken atomic.Pointer[error]
}

func (in *input) feed(s *ssh.Session) error {
	if in.from == nil {
		return nil // the session then gives an empty input
	}
	pipe, err := s.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(pipe, in)
		pipe.Close()
	}()
	return nil
}

// Read tells what goes wrong on this side from what goes wrong on the guest's.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.from.Read(p)
	if err != nil && err != io.EOF {
		in.broken.Store(&err)
	}
	return n, err
}

func also(keep io.Writer, to io.Writer) io.Writer {
	if to == nil {
		return keep
	}
	return io.MultiWriter(keep, to)
}

// line is the shell line that runs cmd in place of the shell, so that a signal to the session reaches it.
func line(cmd run.Cmd) string {
	argv := cmd.Argv
	if len(cmd.Env) > 0 {
		argv = append(append([]string{"env", "--"}, cmd.Env...), argv...)
	}
	s := "exec " + run.Quote(argv)
	if cmd.Dir != "" {
		s = "cd -- " + run.Quote([]string{cmd.Dir}) + " && " + s
	}
	return s
}

// result turns how a session ended into what run.Runner promises.
func (c *Client) result(argv []string, res run.Result, err error) (run.Result, error) {
	var exit *ssh.ExitError
	if !errors.As(err, &exit) {
		return res, err
	}
	res.ExitCode = exit.ExitStatus()
	var cause error
	if exit.Signal() != "" {
		cause = fmt.Errorf("ended by signal %s", exit.Signal())
	}
	return res, run.NewExitError(argv, res, cause)
}

// session opens a session, starts something in it and waits for its end. When ctx ends first, what runs is ended.
func (c *Client) session(ctx context.Context, doing string, start func(*ssh.Session) error) error {
	select {
	case c.sessions <- struct{}{}:
		defer func() { <-c.sessions }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case <-c.closed:
		return &LostError{Doing: doing, Err: errors.New("it had ended before")}
	}
	// Opening and starting block on the guest, which may be stuck: they too must end with ctx.
	type opened struct {
		session *ssh.Session
		err     error
	}
	ready := make(chan opened, 1)
	go func() {
		s, err := c.conn.NewSession()
		if err == nil {
			err = start(s)
		}
		ready <- opened{s, err}
	}()
	var s *ssh.Session
	select {
	case o := <-ready:
		if o.err != nil {
			if o.session != nil {
				o.session.Close()
			}
			return c.lost(doing, o.err)
		}
		s = o.session
	case <-ctx.Done():
		go func() {
			if o := <-ready; o.session != nil {
				_ = o.session.Signal(ssh.SIGKILL)
				o.session.Close()
			}
		}()
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	defer s.Close()
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	select {
	case err := <-done:
		var exit *ssh.ExitError
		switch {
		case err == nil || errors.As(err, &exit) && ctx.Err() == nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
		}
		return c.lost(doing, err)
	case <-ctx.Done():
		c.end(s, done)
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
}

// end ends what runs in s: sshd passes signals on to the command's process group.
func (c *Client) end(s *ssh.Session, done <-chan error) {
	for _, signal := range []ssh.Signal{ssh.SIGTERM, ssh.SIGKILL} {
		if s.Signal(signal) != nil {
			return
		}
		timer := time.NewTimer(c.opts.Grace)
		select {
		case <-done:
			timer.Stop()
			// Only the leader is known to have ended.
			_ = s.Signal(ssh.SIGKILL)
			return
		case <-timer.C:
		}
	}
}

// lost tells a connection that ended from a session that the guest refused.
func (c *Client) lost(doing string, err error) error {
	var missing *ssh.ExitMissingError
	var refused *ssh.OpenChannelError
	switch {
	case errors.As(err, &missing), errors.Is(err, io.EOF):
		return &LostError{Doing: doing, Err: err}
	case errors.As(err, &refused):
		return fmt.Errorf("%s: the guest refused a session: %w", doing, err)
	}
	select {
	case <-c.closed:
		return &LostError{Doing: doing, Err: err}
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}
