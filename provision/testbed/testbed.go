// Package testbed starts a testbed, which is a guest without a machine (see labs/testbed), and runs programs in it.
package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision/run"
)

// What the testbed's program says on its standard output, beside what goes on.
const (
	Ready  = "ready"
	Failed = "error: "
)

// Options say of what to make a testbed.
type Options struct {
	// Program is labctl-testbed.
	Program string
	// Image is the golden image whose guest it is; it is only read.
	Image layout.ImageDir
	// Home has the folder in which there is one testbed at a time.
	Home layout.Home
	// Say receives what goes on while it starts. It may be nil.
	Say func(string)
}

// Testbed is a testbed that is ready. It implements run.Runner. It ends with this program, however that ends.
type Testbed struct {
	process *os.Process
	wait    func() error
	lock    *flock.Flock
	dir     string
}

// BusyError says that there is a testbed already.
type BusyError struct{ Dir string }

func (e *BusyError) Error() string { return "another labctl has a testbed in " + e.Dir }

// Hint is the next action.
func (e *BusyError) Hint() string { return "wait until it has ended, or use another --state-dir" }

// StartError says that a testbed did not become ready.
type StartError struct {
	Err error
	// Tail is the end of what its processes printed.
	Tail string
}

func (e *StartError) Error() string {
	s := "the testbed did not become ready: " + e.Err.Error()
	if e.Tail != "" {
		s += "\n--- last lines of its processes ---\n" + e.Tail
	}
	return s
}

func (e *StartError) Unwrap() error { return e.Err }

// startTime bounds the way to a testbed that is ready; its program has bounds of its own for each part of it.
const startTime = 10 * time.Minute

// Start makes a testbed and waits until labs can be proved in it. Errors are *BusyError, *StartError, and those of the file system.
func Start(ctx context.Context, o Options) (_ *Testbed, err error) {
	t := &Testbed{dir: o.Home.Testbed(), lock: flock.New(o.Home.Lock("testbed", "testbed"), flock.SetPermissions(0o600))}
	if err := os.MkdirAll(o.Home.Locks(), 0o700); err != nil {
		return nil, err
	}
	if ok, err := t.lock.TryLock(); err != nil {
		return nil, err
	} else if !ok {
		return nil, &BusyError{Dir: t.dir}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	// What a testbed that was killed has left: its mounts went with it.
	if err := os.RemoveAll(t.dir); err != nil {
		return nil, err
	}
	root := filepath.Join(t.dir, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	logFile := filepath.Join(t.dir, "log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(o.Program, o.Image.Disk(), root)
	cmd.Stderr = log
	if err := isolate(cmd); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if t.wait, err = run.StartBound(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Program, err)
	}
	t.process = cmd.Process
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("it took longer than %s", startTime))
	defer cancel()
	if err := listen(ctx, stdout, o.Say); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		text, _ := os.ReadFile(logFile)
		return nil, &StartError{Err: err, Tail: lastLines(string(text), 12)}
	}
	return t, nil
}

// listen reads what the program says until it is ready, and goes on reading so that the program never waits for it.
func listen(ctx context.Context, from io.Reader, say func(string)) error {
	if say == nil {
		say = func(string) {}
	}
	ready := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(from)
		for lines.Scan() {
			line := lines.Text()
			why, failed := strings.CutPrefix(line, Failed)
			switch {
			case line == Ready:
				ready <- nil
			case failed:
				ready <- errors.New(why)
			default:
				say(line)
				continue
			}
			break
		}
		ready <- errors.New("its program has ended") // where nothing was said; nobody reads a second word
		_, _ = io.Copy(io.Discard, from)
	}()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

var errClosed = errors.New("the testbed has ended")

// environment is what programs get in a guest.
var environment = []string{"HOME=/root", "USER=root", "SHELL=/bin/bash", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// Run implements run.Runner.
func (t *Testbed) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	if t.process == nil {
		return run.Result{}, errClosed
	}
	dir := cmd.Dir
	if dir == "" {
		dir = "/root"
	}
	enter := []string{"nsenter", "--target", strconv.Itoa(t.process.Pid), "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--", "env", "-i", "-C", dir}
	for _, variables := range [][]string{environment, cmd.Env} {
		enter = append(enter, variables...)
	}
	res, err := run.Local{}.Run(ctx, run.Cmd{Argv: append(enter, cmd.Argv...), Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr})
	var exit *run.ExitError
	if errors.As(err, &exit) {
		exit.Argv = cmd.Argv // the way there says nothing to people
	}
	return res, err
}

// Upload puts a local file into the testbed, whole or not at all.
func (t *Testbed) Upload(_ context.Context, local, remote string, mode fs.FileMode) (err error) {
	if t.process == nil {
		return errClosed
	}
	to := filepath.Join("/proc", strconv.Itoa(t.process.Pid), "root", remote)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	from, err := os.Open(local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	half := to + ".new"
	file, err := os.OpenFile(half, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	if err := errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return os.Rename(half, to)
}

// Close ends the testbed, with every process and every file in it. It may be called again.
func (t *Testbed) Close() error {
	if t.process != nil {
		// Its namespaces end with their first process, which holds nothing that is worth a goodbye.
		_ = t.process.Kill()
		_ = t.wait()
		t.process = nil // its number may become another's
	}
	return errors.Join(os.RemoveAll(t.dir), t.lock.Unlock())
}
