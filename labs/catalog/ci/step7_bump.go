package ci

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/judge"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Step 7: bump.sh is run on copies of both repositories, and what it did with 1.28-alpine is looked for in main and in the cluster.
func (l *lab) bump() []check.Check {
	return []check.Check{
		l.Check("bump-file", func(context.Context) (check.Outcome, error) {
			return l.Executable(l.Bump(), "script-missing", "not-executable")
		}),
		l.Check("bump-works", l.bumpWorks),
		l.Check("bump-commit", l.bumpCommit),
		l.Check("bump-synced", l.bumpSynced),
	}
}

// probeTag is a tag that no lab uses.
const probeTag = "0.0.0-labctl"

func subject(tag string) string { return "ci: web nginx:" + tag }

func (l *lab) bumpWorks(ctx context.Context) (check.Outcome, error) {
	out, final, err := l.bumpWith(ctx, true)
	if err != nil || final {
		return out, err
	}
	// The stand-in for validate.sh may be in the hook's way; the real one decides.
	out, _, err = l.bumpWith(ctx, false)
	return out, err
}

// bumpWith tries bump.sh. final says that nothing else would come of another try.
func (l *lab) bumpWith(ctx context.Context, stub bool) (out check.Outcome, final bool, err error) {
	stage, err := l.NewStage(stub)
	if err != nil {
		return check.Outcome{}, true, err
	}
	defer func() { _ = stage.Close() }()
	before, err := l.ahead(ctx, stage)
	if err != nil {
		return check.Outcome{}, true, err
	}
	trial, err := l.Try(ctx, stage, run.Cmd{Argv: shared.Script(l.Bump(), probeTag), Dir: "/", Env: []string{"KUBECONFIG=" + l.Kubeconfig}})
	if err != nil {
		return check.Outcome{}, true, err
	}
	ran := text.Say("exit code %d: %s", trial.Code, text.Printed(trial.Output))
	switch {
	case len(trial.Admin) > 0:
		return l.Fail(text.Say("a script that leaves the cluster alone"), text.Verbatim(trial.Admin[0].String()), "bump-cluster"), true, nil
	case trial.TimedOut:
		return l.Fail(text.Say("an end"), text.Say("none within the time: %s", text.Printed(trial.Output)), "script-slow"), true, nil
	case trial.Code != 0:
		return l.Fail(text.Say("exit code 0"), ran, "bump-fails"), false, nil
	}
	there := git.Repo{Dir: l.Bare(), Runner: stage}
	main, err := there.History(ctx, ground.Main)
	if err != nil {
		return check.Outcome{}, true, err
	}
	if main.Tip() == before {
		return l.Fail(text.Say("a new commit on the remote main"), text.Say("main is where it was; %s", ran), "bump-not-pushed"), false, nil
	}
	tip := main.Commits[0]
	if !slices.Equal(tip.Parents, []string{before}) {
		return l.Fail(text.Say("one new commit on top of the remote main"), text.Say("a commit on top of: %s", text.Names(tip.Parents)), "bump-parent"), false, nil
	}
	if tip.Subject != subject(probeTag) {
		return l.Fail(text.Say("the message %s", subject(probeTag)), text.Verbatim(tip.Subject), "bump-message"), false, nil
	}
	out, err = l.bumpContent(ctx, stage, there, before, tip.SHA)
	return out, out.State == check.Passed, err
}

// bumpContent compares what is in the new commit with what was in the one before.
func (l *lab) bumpContent(ctx context.Context, stage *ground.Stage, there git.Repo, before, after string) (check.Outcome, error) {
	names, err := l.inBare(ctx, stage, "", "diff-tree", "-r", "--name-only", "--no-renames", before, after)
	if err != nil {
		return check.Outcome{}, err
	}
	if changed := strings.Fields(names); !slices.Equal(changed, []string{ground.WebPath}) {
		return l.Fail(text.Say("a commit that changes %s only", ground.WebPath), text.Say("changed: %s", text.Names(changed)), "bump-content"), nil
	}
	blobs, err := there.Files(ctx, []string{before, after}, ground.WebPath)
	if err != nil {
		return check.Outcome{}, err
	}
	old, now := ground.ParseWeb(blobs[0].Data), ground.ParseWeb(blobs[1].Data)
	wanted := text.Say("image nginx:%s and all else as it was", probeTag)
	if now.Deployment == nil {
		return l.Fail(wanted, now.Problem, "bump-content"), nil
	}
	if now.Image() != "nginx:"+probeTag {
		return l.Fail(wanted, text.Say("image %s", now.Image()), "bump-content"), nil
	}
	if old.Deployment != nil {
		for i, c := range now.Deployment.Spec.Template.Spec.Containers {
			if c.Name == ground.Web && i < len(old.Deployment.Spec.Template.Spec.Containers) {
				now.Deployment.Spec.Template.Spec.Containers[i].Image = old.Deployment.Spec.Template.Spec.Containers[i].Image
			}
		}
		if !equality.Semantic.DeepEqual(old.Deployment, now.Deployment) {
			return l.Fail(wanted, text.Say("something else changed in %s", ground.WebPath), "bump-content"), nil
		}
	}
	return l.Pass(text.Say("it pushed one commit with the new image")), nil
}

// ahead brings the stage's clone to the remote main and then puts a commit on the remote main that the clone does not have, as
// another person's push would. It returns the remote main's commit.
func (l *lab) ahead(ctx context.Context, stage *ground.Stage) (string, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return "", err
	}
	script := `set -eu
git -C "$1" fetch -q "$2" refs/heads/main
git -C "$1" checkout -q -f -B main FETCH_HEAD
git -C "$1" update-ref refs/remotes/origin/main FETCH_HEAD
export GIT_AUTHOR_NAME=verify GIT_AUTHOR_EMAIL=verify@labctl.invalid GIT_COMMITTER_NAME=verify GIT_COMMITTER_EMAIL=verify@labctl.invalid
new=$(git --git-dir "$2" commit-tree -p "$3" -m "labctl verify" "$3^{tree}")
git --git-dir "$2" update-ref refs/heads/main "$new"
echo "$new"
`
	if !l.readsBare(ctx) {
		// The clone reads by way of the cluster's git daemon, which has the real main only.
		script = strings.ReplaceAll(script, `new=$(git --git-dir "$2" commit-tree -p "$3" -m "labctl verify" "$3^{tree}")`, `new=$3`)
	}
	res, err := stage.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", script, "sh", l.Clone(), l.Bare(), main.Tip()}})
	if err != nil {
		return "", fmt.Errorf("prepare the repositories for bump.sh: %w", err)
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}

// readsBare reports whether the clone's fetches come from the bare repository itself.
func (l *lab) readsBare(ctx context.Context) bool {
	res, err := l.Runner.Run(ctx, run.Cmd{Argv: []string{"git", "-C", l.Clone(), "remote", "get-url", "origin"}, Env: git.Env})
	path, local := git.LocalPath(strings.TrimSpace(string(res.Stdout)), l.Clone())
	return err == nil && local && judge.SameFolder(path, l.Bare())
}

// bumped are the commits on main that brought in 1.28-alpine with the step's message, newest first.
func bumped(main ground.MainHistory) []git.Commit {
	image := "nginx:" + ground.NewTag
	return slices.DeleteFunc(slices.Clone(main.Commits), func(c git.Commit) bool {
		return c.Subject != subject(ground.NewTag) || !main.BroughtIn(c, func(w ground.WebFile) bool { return w.Image() == image })
	})
}

func (l *lab) bumpCommit(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if found := bumped(main); len(found) > 0 {
		return l.Pass(text.Say("commit %s", found[0].SHA[:7])).With("commit", found[0].SHA), nil
	}
	got, hint := text.Say("there is none"), "bump-missing"
	for _, c := range main.Commits {
		if main.BroughtIn(c, func(w ground.WebFile) bool { return w.Image() == "nginx:"+ground.NewTag }) {
			got, hint = text.Say("commit %s has the message %q", c.SHA[:7], c.Subject), "bump-message"
			break
		}
	}
	return l.Fail(text.Say("a commit %q on main that changes the image", subject(ground.NewTag)), got, hint).With("main", main.Tip()), nil
}

// bumpSynced wants the cluster to run what main says. Where the learner went on to another tag since, the new image must have been
// deployed before.
func (l *lab) bumpSynced(ctx context.Context) (check.Outcome, error) {
	out, err := l.inStep(ctx)
	if err != nil || out.State != check.Passed {
		return out, err
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	d, err := client.Deployment(ctx, ground.Production, ground.Web)
	if err != nil {
		return check.Outcome{}, err
	}
	want := main.TipWeb().Image()
	got := text.Say("there is no Deployment web")
	if d != nil {
		got = text.Say("image %s", ground.ImageOf(d))
	}
	if d == nil || ground.ImageOf(d) != want {
		return l.NotYet(text.Say("Deployment web with image %s", want), got, "bump-image"), nil
	}
	newImage := "nginx:" + ground.NewTag
	if want != newImage {
		deployed, err := l.wasDeployed(ctx, main, newImage)
		if err != nil {
			return check.Outcome{}, err
		}
		if !deployed {
			return l.Fail(text.Say("Deployment web with image %s", newImage), got, "bump-image"), nil
		}
	}
	evidence := out.Evidence
	out = l.Pass(got)
	out.Evidence = evidence
	return out.With("image", ground.ImageOf(d)), nil
}

// historyLimit is how many deployments Argo CD remembers.
const historyLimit = 10

func (l *lab) wasDeployed(ctx context.Context, main ground.MainHistory, image string) (bool, error) {
	client, err := l.Argo()
	if err != nil {
		return false, err
	}
	app, err := client.Application(ctx, ground.App)
	if err != nil || app == nil {
		return false, err
	}
	deployed := argo.Deployed(app)
	return len(deployed) >= historyLimit || slices.ContainsFunc(deployed, func(sha string) bool { return main.Web[sha].Image() == image }), nil
}
