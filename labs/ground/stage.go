package ground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cgoa-labs/labctl/labs/kube/recorder"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Stage is a place in which a learner's programs are tried: the real paths, nothing that lasts, and a recorder in the place of the
// cluster.
type Stage struct {
	*sandbox.Box
	// Admin sees the requests that come by way of the administrator's kubeconfigs and passes none on.
	Admin *recorder.Recorder
}

// ScratchDir makes a folder that lasts as long as the pass of verification.
func (g *Ground) ScratchDir(pattern string) (string, error) {
	scratch, err := g.scratchNow()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(scratch.Dir, pattern)
	if err != nil {
		return "", fmt.Errorf("set a stage: %w", err)
	}
	return dir, nil
}

// NewStage sets a stage, with more files shown in the place of others.
func (g *Ground) NewStage(more ...sandbox.Bind) (stage *Stage, err error) {
	scratch, err := g.scratchNow()
	if err != nil {
		return nil, err
	}
	dir, err := g.ScratchDir("stage.")
	if err != nil {
		return nil, err
	}
	s := &Stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Admin, err = recorder.Start(recorder.Upstream{}); err != nil {
		return nil, err
	}
	admin := filepath.Join(dir, "admin-kubeconfig")
	if err := s.Admin.Stub(admin); err != nil {
		return nil, err
	}
	for _, path := range []string{g.At.Kubeconfig, g.At.AdminCopy(), filepath.Join(g.At.Home, ".kube", "config")} {
		if more, err = InPlaceOf(more, admin, path); err != nil {
			return nil, err
		}
	}
	s.Box, err = scratch.Box(sandbox.Options{Copied: g.At.Copied, Binds: more, Env: g.env()})
	return s, err
}

// InPlaceOf adds the file from in the place of the file to, where that is there.
func InPlaceOf(binds []sandbox.Bind, from, to string) ([]sandbox.Bind, error) {
	there, err := Exists(to)
	if there {
		binds = append(binds, sandbox.Bind{From: from, To: to})
	}
	return binds, err
}

func (g *Ground) env() []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if own := os.Getenv("PATH"); own != "" {
		path = own + ":" + path
	}
	return []string{"PATH=" + path, "HOME=" + g.At.Home, "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "LANG=C.UTF-8", "GIT_TERMINAL_PROMPT=0"}
}

// Close clears the stage.
func (s *Stage) Close() error {
	var err error
	if s.Box != nil {
		err = s.Box.Close()
	}
	if s.Admin != nil {
		err = errors.Join(err, s.Admin.Close())
	}
	return err
}

// Trial is what became of one run of a learner's program.
type Trial struct {
	// Code is the exit code; Output the end of what it printed, in one line.
	Code   int
	Output string
	// TimedOut says that it did not end in time, although the guest is well.
	TimedOut bool
	// Admin are the requests that it made as the administrator.
	Admin []recorder.Request
}

// trialTime bounds one run. An emulated guest takes a few seconds for each kubectl.
const trialTime = 2 * time.Minute

// Try runs a program on the stage. An error means that the guest is in trouble and the run says nothing.
func (g *Ground) Try(ctx context.Context, s *Stage, cmd run.Cmd) (Trial, error) {
	late := errors.New("no end in time")
	tryCtx, cancel := context.WithTimeoutCause(ctx, trialTime, late)
	defer cancel()
	res, err := s.Run(tryCtx, cmd)
	var t Trial
	t.Admin, _ = s.Admin.Take() // it passes nothing on, so nothing can go wrong in that
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	code, exited := run.ExitCode(err)
	switch {
	case err == nil:
	case exited:
		t.Code = code
	case errors.Is(err, late):
		t.TimedOut, t.Code = true, -1
	default:
		return t, err
	}
	t.Output = run.Tail(append(res.Stdout, res.Stderr...), 600)
	if t.Code != 0 {
		if err := g.Trouble(ctx); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Script is the command that calls a learner's script by its path, as a shell would, also where it has no first line that names
// an interpreter.
func Script(path string, args ...string) []string {
	return append([]string{"sh", "-c", `"$0" "$@"`, path}, args...)
}
