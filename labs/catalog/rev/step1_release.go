package rev

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/judge"
)

// Step 1: a commit, a tag on it, and its SHA written down. Later steps move main on, and the tag away and back.
func (l *lab) release() []check.Check {
	return []check.Check{
		l.Check("bare-repo", l.BareCheck),
		l.Check("clone", l.CloneCheck),
		l.Check("first-commit", l.firstCommit),
		l.Check("sha-file", l.shaFile),
		l.Check("sha-commit", l.shaCommit),
		l.Check("tag", l.tag),
	}
}

func (l *lab) firstCommit(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("a commit on main whose %s is a ConfigMap %s with version %s", ground.ReleasePath, ground.ConfigMap, ground.First)
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(main.Commits) == 0 {
		return l.Fail(wanted, text.Say("the bare repository has no branch main"), "main-missing"), nil
	}
	if found := main.With(ground.First); len(found) > 0 {
		return l.Pass(text.Say("%d commits", len(found))).With("commits", found), nil
	}
	// The newest commit is where it is put right; where that has gone on to another version, the oldest is the one that was meant.
	if release := main.TipRelease(); release.Exists && release.Version == "" {
		return l.Fail(wanted, text.Say("commit %s: %s", main.Tip()[:7], release.Says()), "release-wrong").With("main", main.Tip()), nil
	}
	got, hint := text.Say("no commit has %s", ground.ReleasePath), "main-missing"
	for _, c := range slices.Backward(main.Commits) {
		if release := main.Release[c.SHA]; release.Exists {
			got, hint = text.Say("commit %s: %s", c.SHA[:7], release.Says()), "release-wrong"
			break
		}
	}
	return l.Fail(wanted, got, hint).With("main", main.Tip()), nil
}

func (l *lab) shaFile(context.Context) (check.Outcome, error) {
	wanted := text.Say("one line with the 40 digits of a SHA in %s", l.SHAFile())
	sha, problem, err := l.Pinned()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return l.Fail(wanted, text.Say("there is no such file"), "sha-missing"), nil
	case err != nil:
		return check.Outcome{}, err
	}
	digest, err := judge.FileDigest(l.SHAFile())
	if err != nil {
		return check.Outcome{}, err
	}
	if !problem.Empty() {
		return l.Fail(wanted, problem, "sha-form").With("sha256", digest), nil
	}
	return l.Pass(text.Verbatim(sha)).With("sha256", digest), nil
}

func (l *lab) shaCommit(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("the SHA of the commit with version %s on main", ground.First)
	sha, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if main.Has(sha) {
		if main.Release[sha].Version != ground.First {
			return l.Fail(wanted, text.Say("commit %s: %s", sha[:7], main.Release[sha].Says()), "sha-wrong-commit").With("commit", sha), nil
		}
		return l.Pass(text.Say("commit %s", sha[:7])).With("commit", sha), nil
	}
	for _, repo := range []git.Repo{l.BareRepo(), l.CloneRepo()} {
		kind, err := repo.Kind(ctx, sha)
		switch {
		case err != nil:
			return check.Outcome{}, err
		case kind == "tag":
			return l.Fail(wanted, text.Say("%s is a tag object", sha[:7]), "sha-tag-object"), nil
		case kind == "commit":
			return l.Fail(wanted, text.Say("commit %s is not in the history of the bare repository's main", sha[:7]), "sha-not-on-main").With("main", main.Tip()), nil
		}
	}
	return l.Fail(wanted, text.Say("%s, which no repository of the lab knows", sha[:7]), "sha-unknown").With("main", main.Tip()), nil
}

// tag wants the tag at the commit of v1.sha, or moved from there to the second version, which step 4 asks for.
func (l *lab) tag(ctx context.Context) (check.Outcome, error) {
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	wanted := text.Say("a tag %s in the bare repository at commit %s", ground.TagName, first[:7])
	refs, err := l.BareRepo().Refs(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	_, tag := refs[ground.Tag]
	_, branch := refs["refs/heads/"+ground.TagName]
	switch {
	case !tag && branch:
		return l.Fail(wanted, text.Say("there is a branch of that name, and no tag"), "tag-branch"), nil
	case !tag:
		_, local, err := l.CloneRepo().Resolve(ctx, ground.Tag)
		if err != nil {
			return check.Outcome{}, err
		}
		if local {
			return l.Fail(wanted, text.Say("only the clone has it"), "tag-not-pushed"), nil
		}
		return l.Fail(wanted, text.Say("there is none"), "tag-missing"), nil
	case branch:
		// Argo CD, which is only told the name, would take the branch.
		return l.Fail(wanted, text.Say("there is a branch of that name too"), "tag-branch"), nil
	}
	at, ok, err := l.TagCommit(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if ok && at == first {
		return l.Pass(text.Say("it is at %s", at[:7])).With("tag", refs[ground.Tag]), nil
	}
	if !ok {
		return l.Fail(wanted, text.Say("it is at no commit"), "tag-wrong").With("tag", refs[ground.Tag]), nil
	}
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	moved, err := l.movedOn(ctx, main, first, at)
	if err != nil {
		return check.Outcome{}, err
	}
	if moved {
		return l.Pass(text.Say("it has been moved on to %s", at[:7])).With("tag", refs[ground.Tag]).With("commit", at), nil
	}
	return l.Fail(wanted, text.Say("it is at %s", at[:7]), "tag-wrong").With("tag", refs[ground.Tag]).With("commit", at), nil
}

// movedOn reports whether the tag's commit is the second version's or came after it: where it may be then is for step 5 to judge.
func (l *lab) movedOn(ctx context.Context, main ground.MainHistory, first, at string) (bool, error) {
	version, err := main.Version(ctx, at)
	if err != nil {
		return false, err
	}
	seconds := main.With(ground.Second)
	if version == ground.Second {
		seconds = append(seconds, at)
	}
	for _, second := range seconds {
		for _, way := range [][2]string{{first, second}, {second, at}} {
			leads, err := main.Leads(ctx, way[0], way[1])
			if err != nil {
				return false, err
			}
			if !leads {
				second = ""
				break
			}
		}
		if second != "" {
			return true, nil
		}
	}
	return false, nil
}
