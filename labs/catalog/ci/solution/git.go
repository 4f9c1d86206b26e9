package solution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/prompt"
	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Baseline solves step 1.
func (s *Solution) Baseline(ctx context.Context, log func(string)) error {
	w := s.start(log)
	return prompt.All(
		func() error { return w.Repositories(ctx) },
		func() error { return w.firstCommit(ctx) },
		func() error { return w.application(ctx) },
		func() error { return w.follow(ctx, nil) },
	)
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
		err = w.ToRemoteMain(ctx)
	} else {
		_, err = w.Git(ctx, "symbolic-ref", "HEAD", ground.Main)
	}
	if err != nil {
		return err
	}
	content, err := w.file("web.yaml")
	if err != nil {
		return err
	}
	if text, err := w.webText(); err == nil && text == string(content) && len(main.Commits) == 0 {
		// A learner has written just this; it may be committed already.
		if _, ok, err := w.CloneRepo().Resolve(ctx, "HEAD"); err == nil && ok {
			if changed, err := w.CloneRepo().Changed(ctx); err == nil && len(changed) == 0 {
				_, err := w.Git(ctx, "push", "--quiet", "origin", "HEAD:main")
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
	if documents, err := shared.Documents(data); err == nil {
		app, err := argo.Parse(documents, ground.App)
		good = err == nil && app != nil && app.Namespace == "argocd" && argo.Differs(app, w.Wanted()) == nil
	}
	if !good {
		if err := w.write("app.yaml", w.AppFile(), 0o644); err != nil {
			return err
		}
	}
	_, err = w.Kubectl(ctx, "", "apply", "-f", w.AppFile())
	return err
}

// replicasLine is the line that two steps spoil, each in its own way.
var replicasLine = regexp.MustCompile(`(?m)^([ \t]*)replicas:.*$`)

// withReplicasLine is the manifest, or the solution's own where that one is written in a way that has no such line.
func (w work) withReplicasLine(text string) (string, error) {
	if replicasLine.MatchString(text) {
		return text, nil
	}
	data, err := w.file("web.yaml")
	return string(data), err
}

// Broken solves step 2.
func (s *Solution) Broken(ctx context.Context, log func(string)) (err error) {
	w := s.start(log)
	restore, err := w.OpenDoor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if err := w.ToRemoteMain(ctx); err != nil {
		return err
	}
	broken, err := w.breakMain(ctx)
	if err != nil {
		return err
	}
	return prompt.All(
		func() error { return w.Refresh(ctx, ground.App) },
		func() error { return w.observe(ctx, broken) },
		func() error { return w.revert(ctx, broken) },
		func() error { return w.CopyKubeconfig(ctx) },
		func() error { return w.follow(ctx, w.terminator(broken)) },
	)
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
		data, err := w.file("web.yaml")
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
	return w.Git(ctx, "rev-parse", "HEAD")
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
	err := w.WaitApp(ctx, text.Say("Argo CD to fail on %s", broken[:7]), func(ctx context.Context, client argo.Client) (check.Outcome, error) {
		app, err := client.Application(ctx, ground.App)
		if err != nil {
			return check.Outcome{}, err
		}
		if app == nil {
			return check.Outcome{}, errors.New("there is no Application ci-web")
		}
		op := app.Status.OperationState
		tried := op != nil && argo.Applied(op) == broken
		if !tried || !(op.RetryCount > 0 || op.Phase.Failed() || op.Phase == "Error") || app.Status.Sync.Revision != broken ||
			strings.HasPrefix(op.Message, "Retrying operation") { // says nothing of why, while an attempt is under way
			return check.NotYet("", w.Say(argo.Describe(app)), ""), nil
		}
		seen.SyncStatus, seen.Message = string(app.Status.Sync.Status), op.Message
		return check.Pass(""), nil
	})
	if err != nil {
		return err
	}
	replicas, err := w.Kubectl(ctx, "", "-n", ground.Production, "get", "deploy", ground.Web, "-o", "jsonpath={.spec.replicas}")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(replicas, &seen.LiveReplicas); err != nil {
		return fmt.Errorf("read the live replicas %q: %w", replicas, err)
	}
	return w.SaveJSON(w.Broken(), seen)
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
	if _, err := w.Git(ctx, "revert", "--no-edit", broken); err != nil {
		// Something else has changed the line since; say what is wanted instead.
		_, _ = w.Git(ctx, "revert", "--abort")
		data, err := w.file("web.yaml")
		if err != nil {
			return err
		}
		return w.commit(ctx, string(data), "web: back to a number", true)
	}
	_, err = w.Git(ctx, "push", "--quiet", "origin", "main")
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
		_, err := w.Run(ctx, []string{"KUBECONFIG=" + w.AdminCopy()}, "", "argocd", "app", "terminate-op", ground.App, "--core")
		if _, exited := run.ExitCode(err); exited {
			// It may have ended by itself a moment ago; the next look tells.
			w.Log("… " + err.Error())

			return nil
		}
		return err
	}
}

// Blocked solves step 6.
func (s *Solution) Blocked(ctx context.Context, log func(string)) error {
	w := s.start(log)
	if err := w.ToRemoteMain(ctx); err != nil {
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
	out, err := w.Run(ctx, nil, "", "sh", "-c", `git -C "$0" push origin main 2>&1`, w.Clone())
	if err == nil {
		if _, err := w.Git(ctx, "revert", "--no-edit", "HEAD"); err == nil {
			_, _ = w.Git(ctx, "push", "--quiet", "origin", "main")
		}
		return errors.New("the push of a misspelt key was taken; is step 5's hook in place?")
	}
	if _, exited := run.ExitCode(err); !exited {
		return err
	}
	if err := w.Save(w.Blocked(), []byte(out+"\n")); err != nil {
		return err
	}
	_, err = w.Git(ctx, "reset", "--quiet", "--hard", "origin/main")
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
		_, err := w.Run(ctx, nil, "", w.Bump(), tag)
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
	return w.follow(ctx, nil)
}
