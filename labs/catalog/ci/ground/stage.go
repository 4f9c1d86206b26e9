package ground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/kube/recorder"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Stage is a place in which a learner's programs are tried, with a recorder before the cluster for those that log in as CI.
type Stage struct {
	*ground.Stage
	// CI sees the requests that come by way of ci-kubeconfig and passes on those that change nothing.
	CI *recorder.Recorder
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
	client, err := g.Kube()
	if err != nil {
		return nil, err
	}
	ca, err := client.CA()
	if err != nil {
		return nil, err
	}
	dir, err := g.ScratchDir("ci.")
	if err != nil {
		return nil, err
	}
	s := &Stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.CI, err = recorder.Start(recorder.Upstream{URL: client.Server(), CA: ca}); err != nil {
		return nil, err
	}
	binds, err := g.binds(s.CI, dir, stub)
	if err != nil {
		return nil, err
	}
	s.Stage, err = g.Ground.NewStage(binds...)
	return s, err
}

// binds puts the recorder's kubeconfig, and the stand-in if it is wanted, in the place of the real files that are there.
func (g *Ground) binds(ci *recorder.Recorder, dir string, stub bool) (binds []sandbox.Bind, err error) {
	if there, err := ground.Exists(g.CIKubeconfig()); err != nil {
		return nil, err
	} else if there {
		redirected := filepath.Join(dir, "ci-kubeconfig")
		if err := ci.Redirect(g.CIKubeconfig(), redirected); err != nil {
			return nil, err
		}
		binds = append(binds, sandbox.Bind{From: redirected, To: g.CIKubeconfig()})
	}
	if !stub {
		return binds, nil
	}
	file := filepath.Join(dir, "validate")
	if err := os.WriteFile(file, []byte(validateStub), 0o755); err != nil {
		return nil, fmt.Errorf("set a stage: %w", err)
	}
	return ground.InPlaceOf(binds, file, g.Validate())
}

// Close clears the stage.
func (s *Stage) Close() error {
	var err error
	if s.Stage != nil {
		err = s.Stage.Close()
	}
	if s.CI != nil {
		err = errors.Join(err, s.CI.Close())
	}
	return err
}

// Trial is what became of one run of a learner's program.
type Trial struct {
	ground.Trial
	// CI are the requests that it made as CI.
	CI []recorder.Request
}

// Try runs a program on the stage. An error means that the guest is in trouble and the run says nothing.
func (g *Ground) Try(ctx context.Context, s *Stage, cmd run.Cmd) (Trial, error) {
	trial, err := g.Ground.Try(ctx, s.Stage, cmd)
	requests, broken := s.CI.Take()
	t := Trial{trial, requests}
	if err != nil || t.Code == 0 {
		return t, err
	}
	if broken != nil {
		return t, broken
	}
	for _, r := range t.CI {
		if r.Trouble {
			return t, fmt.Errorf("the API server answered %d to %s", r.Status, r)
		}
	}
	return t, nil
}
