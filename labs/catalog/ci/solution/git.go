package solution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Baseline solves step 1.
func (s *Solution) Baseline(ctx context.Context, log func(string)) error {
	w := s.start(log)
	return all(
		func() error { return w.repositories(ctx) },
		func() error { return w.firstCommit(ctx) },
		func() error { return w.application(ctx) },
		func() error { return w.refresh(ctx) },
		func() error { return w.waitInStep(ctx, nil) },
	)
}

func (w work) repositories(ctx context.Context) error {
	for _, dir := range []string{w.Work, w.GitRoot} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	bare, err := w.BareRepo().State(ctx)
	if err != nil {
		return err
	}
	if !bare.Exists {
		if _, err := w.run(ctx, nil, "", "git", "init", "--quiet", "--bare", "--initial-branch=main", w.Bare()); err != nil {
			return err
		}
	} else if !bare.Repo || !bare.Bare {
		return &InTheWayError{w.Bare(), "a bare repository"}
	}
	clone, err := w.CloneRepo().State(ctx)
	if err != nil {
		return err
	}
	if !clone.Exists {
		_, err := w.run(ctx, nil, "", "git", "clone", "--quiet", w.Bare(), w.Clone())
		return err
	}
	if !clone.Repo || clone.Bare {
		return &InTheWayError{w.Clone(), "a clone"}
	}
	url, ok, err := w.CloneRepo().RemoteURL(ctx, "origin")
	if err != nil {
		return err
	}
	if !ok {
		_, err = w.git(ctx, "remote", "add", "origin", w.Bare())
		return err
	}
	if path, local := git.LocalPath(url, w.Clone()); local {
		if real, err := filepath.EvalSymlinks(path); err == nil && real == bare.GitDir {
			return nil
		}
	}
	_, err = w.git(ctx, "remote", "set-url", "origin", w.Bare())
	return err
}

func (w work) firstCommit(ctx context.Context) error {
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	if len(main.Baselines()) > 0 {
		return nil
	}
	if len(main.Commits) > 0 {
		err = w.toRemoteMain(ctx)
	} else {
		_, err = w.git(ctx, "symbolic-ref", "HEAD", ground.Main)
	}
	if err != nil {
		return err
	}
	content, err := File(w.Paths, "web.yaml")
	if err != nil {
		return err
	}
	if text, err := w.webText(); err == nil && text == string(content) && len(main.Commits) == 0 {
		// A learner has written just this; it may be committed already.
		if _, ok, err := w.CloneRepo().Resolve(ctx, "HEAD"); err == nil && ok {
			if changed, err := w.CloneRepo().Changed(ctx); err == nil && len(changed) == 0 {
				_, err := w.git(ctx, "push", "--quiet", "origin", "HEAD:main")
				return err
			}
		}
	}
	return w.commit(ctx, string(content), "web: two replicas of "+ground.FirstImage, true)
}

func (w work) application(ctx context.Context) error {
	data, err := os.ReadFile(w.AppFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	good := false
	if documents, err := ground.Documents(data); err == nil {
		app, err := argo.Parse(documents, ground.App)
		good = err == nil && app != nil && app.Namespace == "argocd" && argo.Differs(app, w.Wanted()) == nil
	}
	if !good {
		if err := w.write("app.yaml", w.AppFile(), 0o644); err != nil {
			return err
		}
	}
	_, err = w.kubectl(ctx, "", "apply", "-f", w.AppFile())
	return err
}

// replicasLine is the line that two steps spoil, each in its own way.
var replicasLine = regexp.MustCompile(`(?m)^([ \t]*)replicas:.*$`)

// withReplicasLine is the manifest, or the solution's own where that one is written in a way that has no such line.
func (w work) withReplicasLine(text string) (string, error) {
	if replicasLine.MatchString(text) {
		return text, nil
	}
	data, err := File(w.Paths, "web.yaml")
	return string(data), err
}

// Broken solves step 2.
func (s *Solution) Broken(ctx context.Context, log func(string)) (err error) {
	w := s.start(log)
	restore, err := w.openDoor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if err := w.toRemoteMain(ctx); err != nil {
		return err
	}
	broken, err := w.breakMain(ctx)
	if err != nil {
		return err
	}
	return all(
		func() error { return w.refresh(ctx) },
		func() error { return w.observe(ctx, broken) },
		func() error { return w.revert(ctx, broken) },
		func() error { return w.adminCopy(ctx) },
		func() error { return w.refresh(ctx) },
		func() error { return w.waitInStep(ctx, w.terminator(broken)) },
	)
}

// openDoor takes step 5's hook out of the way where it is there already, since it would refuse the very commit that this step
// needs, and returns what puts it back. A solve that was killed in between is made good for by the next one.
func (w work) openDoor(ctx context.Context) (restore func() error, err error) {
	hook, err := w.BareRepo().HookPath(ctx, "pre-receive")
	if err != nil {
		return nil, err
	}
	if err := closeDoor(hook); err != nil {
		return nil, err
	}
	if err := os.Rename(hook, hook+aside); err == nil {
		w.log("move " + hook + " aside meanwhile")
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return func() error { return closeDoor(hook) }, nil
}

const aside = ".aside"

// closeDoor puts back a hook that was moved aside, and never over another.
func closeDoor(hook string) error {
	if there, err := ground.Exists(hook + aside); err != nil || !there {
		return err
	}
	if there, err := ground.Exists(hook); err != nil {
		return err
	} else if there {
		return &InTheWayError{hook + aside, "needed, since " + hook + " is there too"}
	}
	return os.Rename(hook+aside, hook)
}

// breakMain makes and pushes the broken commit; one that main is at is used.
func (w work) breakMain(ctx context.Context) (string, error) {
	main, err := w.ReadMain(ctx)
	if err != nil {
		return "", err
	}
	if main.TipWeb().BrokenString() {
		for _, c := range main.Commits {
			if main.BroughtIn(c, ground.WebFile.BrokenString) {
				return c.SHA, nil
			}
		}
	}
	text, err := w.webText()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if ok, _ := main.TipWeb().Valid(); !ok {
		data, err := File(w.Paths, "web.yaml")
		if err != nil {
			return "", err
		}
		text = string(data)
		if err := w.commit(ctx, text, "web: a manifest that can be applied", true); err != nil {
			return "", err
		}
	}
	if text, err = w.withReplicasLine(text); err != nil {
		return "", err
	}
	if err := w.commit(ctx, replicasLine.ReplaceAllString(text, "${1}replicas: two"), "web: two replicas, in words", true); err != nil {
		return "", err
	}
	return w.git(ctx, "rev-parse", "HEAD")
}

// observe waits until Argo CD has tried the broken commit and failed, and writes down what it then says.
func (w work) observe(ctx context.Context, broken string) error {
	var seen struct {
		Commit       string `json:"commit"`
		SyncStatus   string `json:"sync_status"`
		Message      string `json:"operation_message"`
		LiveReplicas int    `json:"live_replicas"`
	}
	seen.Commit = broken
	err := w.waitApp(ctx, "Argo CD to fail on "+broken[:7], func(ctx context.Context, client argo.Client) (check.Outcome, error) {
		app, err := client.Application(ctx, ground.App)
		if err != nil {
			return check.Outcome{}, err
		}
		if app == nil {
			return check.Outcome{}, errors.New("there is no Application ci-web")
		}
		op := app.Status.OperationState
		tried := op != nil && op.Operation.Sync != nil && op.Operation.Sync.Revision == broken
		if !tried || !(op.RetryCount > 0 || op.Phase.Failed() || op.Phase == "Error") || app.Status.Sync.Revision != broken ||
			strings.HasPrefix(op.Message, "Retrying operation") { // says nothing of why, while an attempt is under way
			return check.NotYet("", argo.Describe(app), ""), nil
		}
		seen.SyncStatus, seen.Message = string(app.Status.Sync.Status), op.Message
		return check.Pass(""), nil
	})
	if err != nil {
		return err
	}
	replicas, err := w.kubectl(ctx, "", "-n", ground.Production, "get", "deploy", ground.Web, "-o", "jsonpath={.spec.replicas}")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(replicas, &seen.LiveReplicas); err != nil {
		return fmt.Errorf("read the live replicas %q: %w", replicas, err)
	}
	return w.writeJSON(w.Broken(), seen)
}

func (w work) writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	w.log("write " + path)
	return renameio.WriteFile(path, append(data, '\n'), 0o644)
}

// brokenCommit is the commit that broken.json names.
func (w work) brokenCommit() (string, error) {
	data, err := os.ReadFile(w.Broken())
	if err != nil {
		return "", err
	}
	var file struct{ Commit string }
	if err := json.Unmarshal(data, &file); err != nil {
		return "", fmt.Errorf("read %s: %w", w.Broken(), err)
	}
	return file.Commit, nil
}

// revert undoes the broken commit on main, where that has not been done.
func (w work) revert(ctx context.Context, broken string) error {
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	if ok, _ := main.TipWeb().Valid(); ok {
		return nil
	}
	if _, err := w.git(ctx, "revert", "--no-edit", broken); err != nil {
		// Something else has changed the line since; say what is wanted instead.
		_, _ = w.git(ctx, "revert", "--abort")
		data, err := File(w.Paths, "web.yaml")
		if err != nil {
			return err
		}
		return w.commit(ctx, string(data), "web: back to a number", true)
	}
	_, err = w.git(ctx, "push", "--quiet", "origin", "main")
	return err
}

// adminCopy makes the kubeconfig for the argocd command's core mode.
func (w work) adminCopy(ctx context.Context) error {
	data, err := os.ReadFile(w.Kubeconfig)
	if err != nil {
		return err
	}
	w.log("write " + w.AdminCopy())
	if err := renameio.WriteFile(w.AdminCopy(), data, 0o600); err != nil {
		return err
	}
	_, err = w.kubectl(ctx, "", "config", "--kubeconfig", w.AdminCopy(), "set-context", "--current", "--namespace=argocd")
	return err
}

// terminator ends the operation that goes on retrying the broken commit, and asks again if that did not take.
func (w work) terminator(broken string) func(context.Context, argo.Standing) error {
	var last time.Time
	const again = 20 * time.Second
	return func(ctx context.Context, s argo.Standing) error {
		if s.Operation != broken || time.Since(last) < again {
			return nil
		}
		last = time.Now()
		_, err := w.run(ctx, []string{"KUBECONFIG=" + w.AdminCopy()}, "", "argocd", "app", "terminate-op", ground.App, "--core")
		if _, exited := run.ExitCode(err); exited {
			// It may have ended by itself a moment ago; the next look tells.
			w.log("… " + err.Error())
			return nil
		}
		return err
	}
}

// Blocked solves step 6.
func (s *Solution) Blocked(ctx context.Context, log func(string)) error {
	w := s.start(log)
	if err := w.toRemoteMain(ctx); err != nil {
		return err
	}
	text, err := w.webText()
	if err != nil {
		return err
	}
	if text, err = w.withReplicasLine(text); err != nil {
		return err
	}
	if err := w.commit(ctx, replicasLine.ReplaceAllString(text, "${1}replica: 2"), "web: a misspelt key", false); err != nil {
		return err
	}
	// A shell joins the two outputs in the order in which they come.
	out, err := w.run(ctx, nil, "", "sh", "-c", `git -C "$0" push origin main 2>&1`, w.Clone())
	if err == nil {
		if _, err := w.git(ctx, "revert", "--no-edit", "HEAD"); err == nil {
			_, _ = w.git(ctx, "push", "--quiet", "origin", "main")
		}
		return errors.New("the push of a misspelt key was taken; is step 5's hook in place?")
	}
	if _, exited := run.ExitCode(err); !exited {
		return err
	}
	w.log("write " + w.Blocked())
	if err := renameio.WriteFile(w.Blocked(), []byte(out+"\n"), 0o644); err != nil {
		return err
	}
	_, err = w.git(ctx, "reset", "--quiet", "--hard", "origin/main")
	return err
}

// Bump solves step 7.
func (s *Solution) Bump(ctx context.Context, log func(string)) error {
	w := s.start(log)
	if err := w.write("bump.sh", w.Bump(), 0o755); err != nil {
		return err
	}
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	bump := func(tag string) error {
		_, err := w.run(ctx, nil, "", w.Bump(), tag)
		return err
	}
	newImage := "nginx:" + ground.NewTag
	done := false
	for _, c := range main.Commits {
		done = done || c.Subject == "ci: web "+newImage && main.BroughtIn(c, func(f ground.WebFile) bool { return f.Image() == newImage })
	}
	if !done || main.TipWeb().Image() != newImage {
		if main.TipWeb().Image() == newImage {
			// Somebody else's commit has the image; the script's own needs something to change.
			if err := bump(strings.TrimPrefix(ground.FirstImage, "nginx:")); err != nil {
				return err
			}
		}
		if err := bump(ground.NewTag); err != nil {
			return err
		}
	}
	return all(
		func() error { return w.refresh(ctx) },
		func() error { return w.waitInStep(ctx, nil) },
	)
}
