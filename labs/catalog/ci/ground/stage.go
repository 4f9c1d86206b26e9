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

// Stage is a place in which a learner's programs are tried: the real paths, nothing that lasts, and a recorder before the cluster.
type Stage struct {
	*sandbox.Box
	// CI sees the requests that come by way of ci-kubeconfig and passes on those that change nothing. Admin sees those
	// that come by way of the administrator's kubeconfigs and passes none on.
	CI, Admin *recorder.Recorder
	dir       string
	stubbed   bool
}

// Refuse is the word in a manifest that makes the stand-in for validate.sh refuse it.
const Refuse = "labctl-verify-refuse"

// validateStub stands in for validate.sh where only what the hook makes of its answer is asked: it costs no call of the API
// server. Like kubectl it looks at the folder's own files only, and wants one.
const validateStub = `#!/bin/sh
for f in "$1"/*.yaml; do
  [ -f "$f" ] || { echo "no manifests in '$1'" >&2; exit 1; }
  if grep -q ` + Refuse + ` "$f"; then echo "$f: refused" >&2; exit 1; fi
done
exit 0
`

// NewStage sets a stage. With stub, validate.sh is replaced by a stand-in that refuses what says Refuse.
func (g *Ground) NewStage(stub bool) (stage *Stage, err error) {
	scratch, err := g.scratchNow()
	if err != nil {
		return nil, err
	}
	client, err := g.Kube()
	if err != nil {
		return nil, err
	}
	ca, err := client.CA()
	if err != nil {
		return nil, err
	}
	s := &Stage{stubbed: stub}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.dir, err = os.MkdirTemp(scratch.Dir, "stage."); err != nil {
		return nil, fmt.Errorf("set a stage: %w", err)
	}
	if s.CI, err = recorder.Start(recorder.Upstream{URL: client.Server(), CA: ca}); err != nil {
		return nil, err
	}
	if s.Admin, err = recorder.Start(recorder.Upstream{}); err != nil {
		return nil, err
	}
	binds, err := g.binds(s, stub)
	if err != nil {
		return nil, err
	}
	s.Box, err = scratch.Box(sandbox.Options{Copied: g.Copied, Binds: binds, Env: g.env()})
	return s, err
}

func (g *Ground) env() []string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if own := os.Getenv("PATH"); own != "" {
		path = own + ":" + path
	}
	return []string{"PATH=" + path, "HOME=" + g.Home, "USER=root", "LOGNAME=root", "SHELL=/bin/sh", "LANG=C.UTF-8", "GIT_TERMINAL_PROMPT=0"}
}

// binds puts the recorders' kubeconfigs, and the stand-in if it is wanted, in the place of the real files that are there.
func (g *Ground) binds(s *Stage, stub bool) ([]sandbox.Bind, error) {
	var binds []sandbox.Bind
	add := func(from, to string) error {
		ok, err := Exists(to)
		if ok {
			binds = append(binds, sandbox.Bind{From: from, To: to})
		}
		return err
	}
	ci, admin := filepath.Join(s.dir, "ci-kubeconfig"), filepath.Join(s.dir, "admin-kubeconfig")
	if ok, err := Exists(g.CIKubeconfig()); err != nil {
		return nil, err
	} else if ok {
		if err := s.CI.Redirect(g.CIKubeconfig(), ci); err != nil {
			return nil, err
		}
	}
	if err := s.Admin.Stub(admin); err != nil {
		return nil, err
	}
	err := errors.Join(
		add(ci, g.CIKubeconfig()),
		add(admin, g.Kubeconfig), add(admin, g.AdminCopy()), add(admin, filepath.Join(g.Home, ".kube", "config")))
	if stub && err == nil {
		file := filepath.Join(s.dir, "validate")
		if err := os.WriteFile(file, []byte(validateStub), 0o755); err != nil {
			return nil, fmt.Errorf("set a stage: %w", err)
		}
		err = add(file, g.Validate())
	}
	return binds, err
}

// Close clears the stage.
func (s *Stage) Close() error {
	var err error
	if s.Box != nil {
		err = s.Box.Close()
	}
	for _, r := range []*recorder.Recorder{s.CI, s.Admin} {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
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
	// CI and Admin are the requests that it made through the recorders.
	CI, Admin []recorder.Request
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
	var broken [2]error
	t.CI, broken[0] = s.CI.Take()
	t.Admin, broken[1] = s.Admin.Take()
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
		if err := errors.Join(broken[0], g.Trouble(ctx)); err != nil {
			return t, err
		}
		for _, r := range t.CI {
			if r.Trouble {
				return t, fmt.Errorf("the API server answered %d to %s", r.Status, r)
			}
		}
	}
	return t, nil
}

// Script is the command that calls a learner's script by its path, as a shell would, also where it has no first line that names
// an interpreter.
func Script(path string, args ...string) []string {
	return append([]string{"sh", "-c", `"$0" "$@"`, path}, args...)
}
