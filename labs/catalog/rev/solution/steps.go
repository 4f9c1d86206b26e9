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

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/prompt"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Release solves step 1.
func (s *Solution) Release(ctx context.Context, log func(string)) error {
	w := s.start(log)
	if err := w.Repositories(ctx); err != nil {
		return err
	}
	first, err := w.firstCommit(ctx)
	if err != nil {
		return err
	}
	return prompt.All(
		func() error { return w.tagged(ctx, first) },
		func() error { return w.Write(w.SHAFile(), []byte(first+"\n"), 0o644) },
	)
}

// firstCommit is the commit that the tag belongs on: one that is there, or a new one.
func (w work) firstCommit(ctx context.Context) (string, error) {
	main, err := w.ReadMain(ctx)
	if err != nil {
		return "", err
	}
	if found := main.With(ground.First); len(found) > 0 {
		// The commit that the tag or the file is at already, unless it is one that came back to the first version.
		tagged, _, err := w.TagCommit(ctx)
		if err != nil {
			return "", err
		}
		pinned, _, err := w.Pinned()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		for _, sha := range []string{tagged, pinned} {
			if main.Release[sha].Version == ground.First && !cameBack(main, sha) {
				return sha, nil
			}
		}
		return found[len(found)-1], nil
	}
	if err := w.makeFirst(ctx, len(main.Commits) > 0); err != nil {
		return "", err
	}
	main, err = w.ReadMain(ctx)
	return main.Tip(), err
}

// makeFirst brings the first version to main.
func (w work) makeFirst(ctx context.Context, there bool) error {
	_, born, err := w.CloneRepo().Resolve(ctx, "HEAD")
	switch {
	case err != nil:
		return err
	case there:
		err = w.ToRemoteMain(ctx)
	case born && w.clean(ctx) && w.text().Version == ground.First:
		// A learner has committed just this, and not pushed it.
		_, err := w.Git(ctx, "push", "--quiet", "origin", "HEAD:"+ground.Main)
		return err
	default:
		_, err = w.Git(ctx, "symbolic-ref", "HEAD", ground.Main)
	}
	if err != nil {
		return err
	}
	content, err := w.file("release.yaml")
	if err != nil {
		return err
	}
	return w.commit(ctx, string(content), "release: version "+ground.First)
}

// cameBack reports whether the second version is in the history of a commit.
func cameBack(main ground.MainHistory, sha string) bool {
	for _, second := range main.With(ground.Second) {
		if main.IsAncestor(second, sha) {
			return true
		}
	}
	return false
}

func (w work) clean(ctx context.Context) bool {
	changed, err := w.CloneRepo().Changed(ctx)
	return err == nil && len(changed) == 0
}

// text is app/release.yaml in the clone's work tree.
func (w work) text() ground.Release {
	data, err := os.ReadFile(filepath.Join(w.Clone(), ground.ReleasePath))
	if err != nil {
		return ground.Release{}
	}
	return ground.ParseRelease(data)
}

// commit writes app/release.yaml, commits it and pushes that to main.
func (w work) commit(ctx context.Context, content, message string) error {
	return w.Commit(ctx, ground.ReleasePath, content, message, true)
}

// tagged puts the tag where it is to be, unless it has been moved on as step 4 asks.
func (w work) tagged(ctx context.Context, first string) error {
	refs, err := w.BareRepo().Refs(ctx)
	if err != nil {
		return err
	}
	if _, there := refs["refs/heads/"+ground.TagName]; there {
		return &prompt.InTheWayError{Path: "the branch " + ground.TagName + " of " + w.Bare(), Want: "a tag"}
	}
	at, ok, err := w.TagCommit(ctx)
	if err != nil || ok && at == first {
		return err
	}
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	if main.Release[at].Version == ground.Second && main.IsAncestor(first, at) {
		return nil
	}
	return w.moveTag(ctx, first)
}

// Apps solves step 2.
func (s *Solution) Apps(ctx context.Context, log func(string)) error {
	w := s.start(log)
	first, err := w.First()
	if err != nil {
		return err
	}
	if !w.appsWritten(first) {
		data, err := w.file("apps.yaml")
		if err != nil {
			return err
		}
		if err := w.Write(w.AppsFile(), []byte(strings.ReplaceAll(string(data), "@SHA@", first)), 0o644); err != nil {
			return err
		}
	}
	return prompt.All(
		func() error { _, err := w.Kubectl(ctx, "", "apply", "-f", w.AppsFile()); return err },
		func() error { return w.enable(ctx, first) },
		func() error { return w.follow(ctx, ground.Apps()...) },
	)
}

// appsWritten reports whether apps.yaml is a good one.
func (w work) appsWritten(first string) bool {
	data, err := os.ReadFile(w.AppsFile())
	if err != nil {
		return false
	}
	documents, err := shared.Documents(data)
	if err != nil {
		return false
	}
	for _, name := range ground.Apps() {
		app, err := argo.Parse(documents, name)
		if err != nil || app == nil || app.Namespace != "argocd" || argo.Differs(app, w.Wanted(name, first)) != nil {
			return false
		}
	}
	return true
}

// enable takes away the switch by which automated sync was turned off, which applying a file that does not have it leaves.
func (w work) enable(ctx context.Context, first string) error {
	client, err := w.Argo()
	if err != nil {
		return err
	}
	for _, name := range ground.Apps() {
		app, err := client.Application(ctx, name)
		if err != nil {
			return err
		}
		if app == nil {
			continue
		}
		if wrong := argo.Differs(app, w.Wanted(name, first)); wrong != nil && wrong.Field == "syncPolicy.automated" {
			if _, err := w.Kubectl(ctx, "", "-n", "argocd", "patch", "app", name, "--type", "merge", "-p", `{"spec":{"syncPolicy":{"automated":{"enabled":null}}}}`); err != nil {
				return err
			}
		}
	}
	return nil
}

// versionLine is the line that step 3 changes.
var versionLine = regexp.MustCompile(`(?m)^([ \t]*version:[ \t]*)\S.*$`)

// Commit solves step 3.
func (s *Solution) Commit(ctx context.Context, log func(string)) error {
	w := s.start(log)
	first, err := w.First()
	if err != nil {
		return err
	}
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	h, err := w.history(ctx, ground.BranchApp)
	if err != nil {
		return err
	}
	// Where main has gone on since, Argo CD's history still tells what the Application was at.
	passed := h.Find(0, ground.Saying(ground.Second)) >= 0 || h.Forgot() && len(main.With(ground.Second)) > 0
	if main.TipRelease().Version != ground.Second && !passed {
		if err := w.change(ctx, ground.Second); err != nil {
			return err
		}
	}
	if err := w.follow(ctx, ground.Apps()...); err != nil {
		return err
	}
	return w.observe(ctx, first)
}

// change commits the other version to main.
func (w work) change(ctx context.Context, version string) error {
	if err := w.ToRemoteMain(ctx); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(w.Clone(), ground.ReleasePath))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	content := versionLine.ReplaceAll(data, []byte("${1}"+version))
	if ground.ParseRelease(content).Version != version {
		// It is written in another way.
		if content, err = w.file("release.yaml"); err != nil {
			return err
		}
		content = versionLine.ReplaceAll(content, []byte("${1}"+version))
	}
	return w.commit(ctx, string(content), "release: version "+version)
}

// observe writes down what the Applications are at, or were at when main had just got the second version.
func (w work) observe(ctx context.Context, first string) error {
	var seen struct {
		Branch string `json:"branch"`
		Tag    string `json:"tag"`
		SHA    string `json:"sha"`
	}
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	for _, read := range []struct {
		app string
		to  *string
	}{{ground.BranchApp, &seen.Branch}, {ground.TagApp, &seen.Tag}, {ground.SHAApp, &seen.SHA}} {
		if *read.to, err = w.status(ctx, read.app, ".status.sync.revision"); err != nil {
			return err
		}
	}
	if main.TipRelease().Version != ground.Second {
		if seen.Branch, err = newest(main, ground.Second); err != nil {
			return err
		}
		h, err := w.history(ctx, ground.BranchApp)
		if err != nil {
			return err
		}
		if i := h.Find(0, ground.Saying(ground.Second)); i >= 0 {
			seen.Branch = h[i].Revision
		}
	}
	if tag, err := main.Peel(ctx, seen.Tag); err != nil {
		return err
	} else if tag != first {
		seen.Tag = first
	}
	return w.SaveJSON(w.AfterCommit(), seen)
}

// Move solves step 4.
func (s *Solution) Move(ctx context.Context, log func(string)) error {
	w := s.start(log)
	first, err := w.First()
	if err != nil {
		return err
	}
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	second, err := newest(main, ground.Second)
	if err != nil {
		return err
	}
	h, err := w.history(ctx, ground.TagApp)
	if err != nil {
		return err
	}
	if !h.Moves(first) && !h.Forgot() {
		steps := []string{second}
		if h.Find(0, ground.Of(first)) < 0 {
			steps = []string{first, second}
		}
		for _, commit := range steps {
			if err := prompt.All(
				func() error { return w.moveTag(ctx, commit) },
				func() error { return w.follow(ctx, ground.TagApp) },
			); err != nil {
				return err
			}
		}
	}
	out, err := w.status(ctx, ground.TagApp, ".status.history[*].revision")
	if err != nil {
		return err
	}
	if h, err = w.history(ctx, ground.TagApp); err != nil {
		return err
	}
	revisions := strings.Fields(out)
	if !h.Moves(first) {
		// Argo CD has forgotten it.
		revisions = []string{first, second}
	}
	return w.SaveJSON(w.TagHistory(), struct {
		Target    string   `json:"target"`
		Revisions []string `json:"revisions"`
	}{ground.TagName, revisions})
}

// Guard solves step 5.
func (s *Solution) Guard(ctx context.Context, log func(string)) error {
	w := s.start(log)
	first, err := w.First()
	if err != nil {
		return err
	}
	at, _, err := w.TagCommit(ctx)
	if err != nil {
		return err
	}
	if at != first {
		if err := w.moveTag(ctx, first); err != nil {
			return err
		}
	}
	if err := w.follow(ctx, ground.TagApp); err != nil {
		return err
	}
	hook, err := w.file("pre-receive")
	if err != nil {
		return err
	}
	if err := w.WriteHook(ctx, hook); err != nil {
		return err
	}
	return w.tryToMove(ctx, first)
}

// tryToMove saves what a push says that the hook refuses.
func (w work) tryToMove(ctx context.Context, first string) error {
	main, err := w.ReadMain(ctx)
	if err != nil {
		return err
	}
	second, err := newest(main, ground.Second)
	if err != nil {
		return err
	}
	if err := prompt.All(
		func() error { _, err := w.Git(ctx, "fetch", "--quiet", "--no-tags", "origin", "main"); return err },
		func() error { _, err := w.Git(ctx, "tag", "--force", ground.TagName, second); return err },
	); err != nil {
		return err
	}
	// A shell joins the two outputs in the order in which they come.
	out, err := w.Run(ctx, nil, "", "sh", "-c", `git -C "$0" push --force origin refs/tags/v1 2>&1`, w.Clone())
	if err == nil {
		return errors.Join(errors.New("the push that moves the tag was taken, although the hook is in place"), w.moveTag(ctx, first))
	}
	if _, exited := run.ExitCode(err); !exited {
		return err
	}
	return prompt.All(
		func() error { return w.Save(w.Guard(), []byte(out+"\n")) },
		func() error { _, err := w.Git(ctx, "tag", "--force", ground.TagName, first); return err },
	)
}

// Rollback solves step 6.
func (s *Solution) Rollback(ctx context.Context, log func(string)) error {
	w := s.start(log)
	first, err := w.First()
	if err != nil {
		return err
	}
	second, err := w.recorded()
	if err != nil {
		return err
	}
	return prompt.All(
		func() error { return w.backOn(ctx, second) },
		func() error { return w.revert(ctx, second) },
		func() error { return w.follow(ctx, ground.BranchApp) },
		func() error { return w.tell(ctx, first) },
	)
}

// recorded is the commit that after-commit.json has for the branch.
func (w work) recorded() (string, error) {
	data, err := os.ReadFile(w.AfterCommit())
	if err != nil {
		return "", err
	}
	var file struct{ Branch string }
	if err := json.Unmarshal(data, &file); err != nil {
		return "", fmt.Errorf("read %s: %w", w.AfterCommit(), err)
	}
	return strings.TrimSpace(file.Branch), nil
}

// RewrittenError says that main does not lead to the commit that is to be undone.
type RewrittenError struct{ Main, Second string }

func (e *RewrittenError) Error() string {
	return fmt.Sprintf("main is at %s, and commit %s is not in its history", e.Main, e.Second)
}

// Hint is the next action.
func (e *RewrittenError) Hint() string {
	return "merge that commit into main, or reset the lab; solving does not throw work away"
}

// backOn puts main back on the second version where it was taken off it, as a reset does. Nothing is lost: that commit is on top of main.
func (w work) backOn(ctx context.Context, second string) error {
	main, err := w.ReadMain(ctx)
	if err != nil || main.Has(second) {
		return err
	}
	if leads, err := main.Leads(ctx, main.Tip(), second); err != nil {
		return err
	} else if !leads {
		return &RewrittenError{main.Tip(), second}
	}
	_, err = w.Run(ctx, nil, "", "git", "--git-dir", w.Bare(), "update-ref", ground.Main, second, main.Tip())
	return err
}

// revert undoes the second version on main, where that has not been done.
func (w work) revert(ctx context.Context, second string) error {
	main, err := w.ReadMain(ctx)
	if err != nil || main.Undoes(second, main.Tip()) {
		return err
	}
	if err := w.ToRemoteMain(ctx); err != nil {
		return err
	}
	if _, err := w.Git(ctx, "revert", "--no-edit", second); err != nil {
		// Something else has changed the line since; say what is wanted instead.
		_, _ = w.Git(ctx, "revert", "--abort")
		return w.change(ctx, ground.First)
	}
	if w.text().Version != ground.First {
		// That commit was not the one that brought the version in.
		return w.change(ctx, ground.First)
	}
	_, err = w.Git(ctx, "push", "--quiet", "origin", "main")
	return err
}

// tell writes down what the rollback came to.
func (w work) tell(ctx context.Context, first string) error {
	sha, err := w.Git(ctx, "ls-remote", "origin", ground.Main)
	if err != nil {
		return err
	}
	sha, _, _ = strings.Cut(sha, "\t")
	version, err := w.Kubectl(ctx, "", "-n", ground.BranchApp, "get", "configmap", ground.ConfigMap, "-o", "jsonpath={.data.version}")
	if err != nil {
		return err
	}
	return w.SaveJSON(w.Rollback(), struct {
		SHA      string `json:"revert_sha"`
		Deployed string `json:"deployed"`
		Equals   bool   `json:"equals_v1_sha"`
	}{sha, version, sha == first})
}

// Refused solves step 7.
func (s *Solution) Refused(ctx context.Context, log func(string)) error {
	w := s.start(log)
	h, err := w.history(ctx, ground.BranchApp)
	if err != nil {
		return err
	}
	if len(h) == 0 {
		return errors.New(ground.BranchApp + " has not been deployed yet")
	}
	if err := w.CopyKubeconfig(ctx); err != nil {
		return err
	}
	// The first deployment, or the oldest that is remembered.
	out, err := w.Run(ctx, []string{"KUBECONFIG=" + w.AdminCopy()}, "", "sh", "-c", `argocd app rollback rev-branch "$0" --core 2>&1`, fmt.Sprint(h[0].ID))
	if err == nil {
		return errors.New("the rollback was not refused; is automated sync on?")
	}
	if _, exited := run.ExitCode(err); !exited {
		return err
	}
	if !strings.Contains(out, "auto-sync is enabled") {
		return fmt.Errorf("argocd gave up for another reason: %w", err)
	}
	return prompt.All(
		func() error { return w.Save(w.Refused(), []byte(out+"\n")) },
		func() error { return w.follow(ctx, ground.BranchApp) },
	)
}

// Report solves step 8.
func (s *Solution) Report(ctx context.Context, log func(string)) error {
	w := s.start(log)
	if err := w.follow(ctx, ground.Apps()...); err != nil {
		return err
	}
	pinned, err := w.status(ctx, ground.SHAApp, ".status.sync.revision")
	if err != nil {
		return err
	}
	return w.SaveJSON(w.Report(), struct {
		Mutable   []string `json:"mutable_refs"`
		Immutable string   `json:"immutable_ref"`
		Pinned    string   `json:"pinned_revision"`
		Guard     string   `json:"tag_guard"`
		Rollback  string   `json:"rollback"`
	}{[]string{"branch", "tag"}, "commit-sha", pinned, "pre-receive", "git-revert"})
}
