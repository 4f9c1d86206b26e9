package ssh

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Shell runs a login shell until it ends. With tty the guest gets a terminal; where stdin is one here, it is put into raw
// mode for that time and its size is passed on. A code other than 0 becomes *run.ExitError.
func (c *Client) Shell(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, tty bool) error {
	var watch func(*ssh.Session)
	width, height := 80, 24
	if file, ok := stdin.(*os.File); ok && tty && term.IsTerminal(int(file.Fd())) {
		fd := int(file.Fd())
		old, err := term.MakeRaw(fd)
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(fd, old) }()
		if w, h, err := term.GetSize(fd); err == nil {
			width, height = w, h
		}
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, syscall.SIGWINCH)
		ended := make(chan struct{})
		defer close(ended)
		defer signal.Stop(resized)
		watch = func(s *ssh.Session) {
			for {
				select {
				case <-ended:
					return
				case <-resized:
					if w, h, err := term.GetSize(fd); err == nil {
						_ = s.WindowChange(h, w)
					}
				}
			}
		}
	}
	err := c.session(ctx, "the shell", func(s *ssh.Session) error {
		s.Stdout, s.Stderr = stdout, stderr
		if err := (&input{from: stdin}).feed(s); err != nil {
			return err
		}
		if tty {
			if err := s.RequestPty(terminal(), height, width, ssh.TerminalModes{}); err != nil {
				return err
			}
		}
		if err := s.Shell(); err != nil {
			return err
		}
		if watch != nil {
			go watch(s)
		}
		return nil
	})
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		_, err = c.result([]string{"shell"}, run.Result{}, err)
	}
	return err
}

func terminal() string {
	if name := os.Getenv("TERM"); name != "" {
		return name
	}
	return "xterm"
}
