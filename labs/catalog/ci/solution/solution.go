// Package solution is lab ci's reference solution, done with the commands that the text teaches, and the lab's reset.
package solution

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/prompt"
	"github.com/cgoa-labs/labctl/provision/run"
)

//go:embed files
var files embed.FS

// Solution solves lab ci on a ground.
type Solution struct{ g *ground.Ground }

// New is the solution on the ground.
func New(g *ground.Ground) *Solution { return &Solution{g: g} }

// work is one step's solution at work.
type work struct {
	*ground.Ground
	log func(string)
}

func (s *Solution) start(log func(string)) work { return work{s.g, log} }

// InTheWayError says that something that is not the lab's stands where the lab's should be.
type InTheWayError struct{ Path, Want string }

func (e *InTheWayError) Error() string {
	return fmt.Sprintf("%s is there, but is not %s", e.Path, e.Want)
}

// Hint is the next action.
func (e *InTheWayError) Hint() string {
	return "move it away, or reset the lab; solving does not throw work away"
}

// File is a file of the solution, with the places filled in.
func File(p ground.Paths, name string) ([]byte, error) {
	data, err := files.ReadFile("files/" + name)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer("@WORK@", p.Work, "@GITURL@", p.GitURL).Replace(string(data))), nil
}

// write puts a file of the solution at path; an executable one where it says so.
func (w work) write(name, path string, mode os.FileMode) error {
	data, err := File(w.Paths, name)
	if err != nil {
		return err
	}
	w.log("write " + path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := w.keepMine(path, data); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, mode)
}

// keepMine puts a learner's own file aside, once, before another is written in its place.
func (w work) keepMine(path string, next []byte) error {
	have, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && bytes.Equal(have, next) {
		return nil
	}
	if err != nil {
		return err
	}
	mine := path + ".mine"
	if there, err := ground.Exists(mine); err != nil || there {
		return err
	}
	w.log("keep your " + path + " as " + mine)
	return renameio.WriteFile(mine, have, 0o644)
}

// run runs a command as a learner would at the prompt, and says so.
func (w work) run(ctx context.Context, env []string, stdin string, argv ...string) (string, error) {
	w.log(prompt.Shown(env, argv))
	env = append([]string{"KUBECONFIG=" + w.Kubeconfig, "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true"}, env...)
	res, err := w.Runner.Run(ctx, run.Cmd{Argv: argv, Env: env, Stdin: strings.NewReader(stdin), Dir: "/"})
	return strings.TrimSpace(string(res.Stdout)), err
}

func (w work) git(ctx context.Context, args ...string) (string, error) {
	return w.run(ctx, nil, "", append([]string{"git", "-C", w.Clone()}, args...)...)
}

func (w work) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return w.run(ctx, nil, stdin, append([]string{"kubectl"}, args...)...)
}

// all runs commands one after the other until one fails.
func all(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// toRemoteMain brings the clone to the remote main, whatever it holds.
func (w work) toRemoteMain(ctx context.Context) error {
	changed, err := w.CloneRepo().Changed(ctx)
	if err != nil {
		return err
	}
	if _, ok, err := w.CloneRepo().Resolve(ctx, "HEAD"); err != nil {
		return err
	} else if ok && len(changed) > 0 {
		// A learner's work is put away, not thrown away; the reflog keeps commits.
		if _, err := w.git(ctx, "stash", "push", "--quiet", "--include-untracked", "--message", "before labctl solve"); err != nil {
			return err
		}
	}
	return all(
		func() error { _, err := w.git(ctx, "fetch", "--quiet", "origin", "main"); return err },
		func() error {
			_, err := w.git(ctx, "checkout", "--quiet", "--force", "-B", "main", "FETCH_HEAD")
			return err
		},
		func() error { _, err := w.git(ctx, "update-ref", "refs/remotes/origin/main", "FETCH_HEAD"); return err },
	)
}

// commit writes deploy/web.yaml, commits it and, with push, pushes main.
func (w work) commit(ctx context.Context, content, message string, push bool) error {
	path := filepath.Join(w.Clone(), ground.WebPath)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	w.log("write " + path)
	if err := renameio.WriteFile(path, []byte(content), 0o644); err != nil {
		return err
	}
	return all(
		func() error { _, err := w.git(ctx, "add", ground.WebPath); return err },
		func() error { _, err := w.git(ctx, "commit", "--quiet", "--message", message); return err },
		func() error {
			if !push {
				return nil
			}
			_, err := w.git(ctx, "push", "--quiet", "origin", "main")
			return err
		},
	)
}

// webText is deploy/web.yaml in the clone's work tree.
func (w work) webText() (string, error) {
	data, err := os.ReadFile(filepath.Join(w.Clone(), ground.WebPath))
	return string(data), err
}

// refresh has Argo CD read the repository again at once.
func (w work) refresh(ctx context.Context) error {
	_, err := w.kubectl(ctx, "", "-n", "argocd", "annotate", "app", ground.App, "argocd.argoproj.io/refresh=hard", "--overwrite")
	return err
}

// appTime bounds a wait for Argo CD; an emulated guest takes minutes for what takes seconds elsewhere.
const appTime = 8 * time.Minute

// refreshAgain is how long a comparison that failed is left alone before another is asked for.
const refreshAgain = 20 * time.Second

// waitApp waits until ask passes for the Application, looking anew each time.
func (w work) waitApp(ctx context.Context, title string, ask func(ctx context.Context, client argo.Client) (check.Outcome, error)) error {
	client, err := w.Argo()
	if err != nil {
		return err
	}
	w.log("wait: " + title)
	last := ""
	_, err = check.Wait{Timeout: appTime, Attempt: time.Minute, First: time.Second, Most: 3 * time.Second, Observe: func(r check.Result) {
		if r.State != check.Passed && r.Got != last {
			last = r.Got
			w.log("… " + r.Got)
		}
	}}.For(ctx, check.Check{ID: "wait", Title: title, Ask: func(ctx context.Context) (check.Outcome, error) { return ask(ctx, client) }})
	return err
}

// waitInStep waits until ci-web is Synced and Healthy at main, and runs meanwhile for every look that is not yet so.
func (w work) waitInStep(ctx context.Context, meanwhile func(ctx context.Context, s argo.Standing) error) error {
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	asked := time.Now()
	return w.waitApp(ctx, "ci-web Synced and Healthy at "+main.Tip()[:7], func(ctx context.Context, client argo.Client) (check.Outcome, error) {
		app, standing, err := client.Look(ctx, ground.App, main.Tip())
		if err != nil {
			return check.Outcome{}, err
		}
		if app == nil {
			return check.Outcome{}, errors.New("there is no Application ci-web")
		}
		if standing.State != check.Passed && meanwhile != nil {
			if err := meanwhile(ctx, standing); err != nil {
				return check.Outcome{}, err
			}
		}
		// After a hiccup of the platform Argo CD looks again by itself, but only minutes later.
		if standing.Why == argo.Comparing && time.Since(asked) > refreshAgain {
			asked = time.Now()
			if err := w.refresh(ctx); err != nil {
				return check.Outcome{}, err
			}
		}
		return check.Outcome{State: standing.State, Got: standing.Got}, nil
	})
}
