package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Bind shows the file From in the place of the file To.
type Bind struct{ From, To string }

// Box runs commands in a mount namespace of its own. It implements run.Runner. Commands of one Box see what those before them
// wrote; every Box starts from the guest's real files.
type Box struct {
	scratch *Scratch
	dir     string
	env     []string
	ns      *os.File
}

// Options describe a Box.
type Options struct {
	// Copied are folders that commands may change without changing the real ones. One that does not exist is left out.
	Copied []string
	// Binds are files that are shown in the place of others, which must exist.
	Binds []Bind
	// Env is the commands' whole environment, besides TMPDIR and what a command brings.
	Env []string
}

// killDelay is how long a cancelled command gets between SIGTERM and SIGKILL.
const killDelay = 2 * time.Second

// Box makes a new Box in the scratch folder. Close it before the scratch folder.
func (s *Scratch) Box(o Options) (*Box, error) {
	dir, err := os.MkdirTemp(s.Dir, "box.")
	if err != nil {
		return nil, spaceError(s.Dir, err)
	}
	b := &Box{scratch: s, dir: dir, env: o.Env}
	if err := os.Mkdir(b.Tmp(), 0o700); err != nil {
		return nil, spaceError(s.Dir, err)
	}
	b.ns, err = onThread(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return nil, fmt.Errorf("unshare: %w", err)
		}
		if err := b.mount(o); err != nil {
			return nil, err
		}
		return os.Open(fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid()))
	})
	if err != nil {
		return nil, fmt.Errorf("make a sandbox: %w", err)
	}
	return b, nil
}

// Tmp is the folder that TMPDIR names for commands.
func (b *Box) Tmp() string { return filepath.Join(b.dir, "tmp") }

// Close lets go of the namespace. Commands that still run keep it until they end.
func (b *Box) Close() error { return b.ns.Close() }

// mount furnishes the calling thread's namespace.
func (b *Box) mount(o Options) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for i, dir := range o.Copied {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		upper, work := filepath.Join(b.dir, fmt.Sprintf("upper%d", i)), filepath.Join(b.dir, fmt.Sprintf("work%d", i))
		for _, layer := range []string{upper, work} {
			if err := os.Mkdir(layer, 0o755); err != nil {
				return spaceError(b.dir, err)
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)
		if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlay %s: %w", dir, err)
		}
	}
	for _, bind := range o.Binds {
		if err := unix.Mount(bind.From, bind.To, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s over %s: %w", bind.From, bind.To, err)
		}
	}
	return nil
}

// Run implements run.Runner.
func (b *Box) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	if len(cmd.Argv) == 0 {
		return run.Result{}, errors.New("run: empty command")
	}
	if ctx.Err() != nil {
		return run.Result{}, fmt.Errorf("%s: %w", run.Quote(cmd.Argv), context.Cause(ctx))
	}
	return onThread(func() (run.Result, error) {
		// Mount namespaces belong to threads only where these do not share their working folder.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return run.Result{}, fmt.Errorf("sandbox: unshare: %w", err)
		}
		if err := unix.Setns(int(b.ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return run.Result{}, fmt.Errorf("sandbox: enter: %w", err)
		}
		return b.exec(ctx, cmd)
	})
}

// exec starts the command from the calling thread, whose namespace it inherits, and waits for it.
func (b *Box) exec(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	var stdout, stderr run.Buffer
	c := exec.CommandContext(ctx, cmd.Argv[0], cmd.Argv[1:]...)
	c.Dir, c.Stdin = cmd.Dir, cmd.Stdin
	if c.Dir == "" {
		c.Dir = "/"
	}
	c.Env = append(append(append([]string{}, b.env...), marker+"="+b.scratch.Dir, "TMPDIR="+b.Tmp()), cmd.Env...)
	c.Stdout, c.Stderr = tee(&stdout, cmd.Stdout), tee(&stderr, cmd.Stderr)
	// A command must not outlive this program, also where that is killed.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = killDelay
	start := time.Now()
	err := c.Run()
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	res := run.Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() != nil:
		return res, fmt.Errorf("%s: %w", run.Quote(cmd.Argv), context.Cause(ctx))
	case errors.Is(err, exec.ErrWaitDelay) && c.ProcessState.Success():
		return res, nil
	case !errors.As(err, &exit):
		return res, fmt.Errorf("run %s: %w", run.Quote(cmd.Argv), err)
	}
	res.ExitCode = exit.ExitCode()
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.ExitCode = run.SignalBase + int(ws.Signal())
		return res, run.NewExitError(cmd.Argv, res, fmt.Errorf("ended by signal %s", ws.Signal()))
	}
	return res, run.NewExitError(cmd.Argv, res, nil)
}

func tee(keep *run.Buffer, also io.Writer) io.Writer {
	if also == nil {
		return keep
	}
	return io.MultiWriter(keep, also)
}

// onThread runs f on a thread of its own that nothing else uses afterwards, so that what f does to the thread's mount
// namespace touches no other part of the program and ends with the thread.
func onThread[T any](f func() (T, error)) (value T, err error) {
	done := make(chan struct{})
	go locked(func() {
		value, err = f()
		close(done)
	})
	<-done
	return value, err
}

// locked runs f on a locked thread. The goroutine ends without unlocking it, so that the thread ends too. The process's
// first thread cannot end and is what /proc/self shows, so it is left alone.
func locked(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	// While this goroutine holds the first thread, the next one gets another.
	done := make(chan struct{})
	go locked(func() {
		f()
		close(done)
	})
	<-done
	runtime.UnlockOSThread()
}
