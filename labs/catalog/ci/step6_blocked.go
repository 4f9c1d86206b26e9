package ci

import (
	"context"
	"regexp"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/judge"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Step 6: a push that the hook refuses, and nothing of it in the remote repository.
func (l *lab) blocked() []check.Check {
	return []check.Check{
		l.Check("blocked-file", l.blockedFile),
		l.Check("blocked-commit", l.blockedCommit),
		l.Check("main-untouched", l.mainUntouched),
		l.Check("local-main", l.localMain),
		l.Check("blocked-synced", l.inStep),
	}
}

func (l *lab) readBlocked() (output, digest string, out check.Outcome, err error) {
	return l.ReadOutput(l.Blocked(), refusedPush, "blocked-missing")
}

var refusedPush = text.Say("the refusal of a push to main")

func (l *lab) blockedFile(context.Context) (check.Outcome, error) {
	output, digest, out, err := l.readBlocked()
	if output == "" {
		return out, err
	}
	if !judge.Declined(output, ground.Main) {
		return l.Fail(refusedPush, text.Say("no line says that the remote's pre-receive hook declined main"), "blocked-not-refusal").With("sha256", digest), nil
	}
	return l.Pass(text.Say("it holds the refusal")).With("sha256", digest), nil
}

// saysReplica finds the misspelt key in what the server said, not in replicas.
var saysReplica = regexp.MustCompile(`\breplica\b`)

// blockedCommit wants a sign that the refused commit was the one with the misspelt key: in what the hook said, or in what the
// clone's reflog remembers.
func (l *lab) blockedCommit(ctx context.Context) (check.Outcome, error) {
	output, digest, out, err := l.readBlocked()
	if output == "" {
		return out, err
	}
	if saysReplica.MatchString(output) {
		return l.Pass(text.Say("the output speaks of replica")).With("sha256", digest), nil
	}
	past, err := l.CloneRepo().Reflog(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	blobs, err := l.CloneRepo().Files(ctx, past.SHAs(), ground.WebPath)
	if err != nil {
		return check.Outcome{}, err
	}
	for i, sha := range past.SHAs() {
		if blobs[i].Exists && ground.ParseWeb(blobs[i].Data).Typo {
			return l.Pass(text.Say("the clone remembers commit %s", sha[:7])).With("commit", sha), nil
		}
	}
	return l.Fail(text.Say("the refusal of a commit that says replica instead of replicas"), text.Say("neither the output nor the clone knows of one"), "blocked-which").With("sha256", digest), nil
}

func (l *lab) mainUntouched(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	// What was there before there was a hook is for the steps before; the broken commit of step 2 marks that time.
	mark := ""
	if f, _, err := l.readBroken(); err != nil {
		return check.Outcome{}, err
	} else if f != nil {
		name, _ := f.Text("commit")
		if c, ok := main.Find(strings.TrimSpace(name)); ok {
			mark = c.SHA
		}
	}
	for _, c := range main.Commits {
		if c.SHA == mark {
			break
		}
		if main.Web[c.SHA].Typo {
			return l.Fail(text.Say("no commit with the misspelt key in the remote main"), text.Say("commit %s (%s)", c.SHA[:7], c.Subject), "typo-in-main").With("main", main.Tip()), nil
		}
	}
	if ok, problem := main.TipWeb().Valid(); !ok {
		return l.Fail(text.Say("a valid Deployment in the remote main"), problem, "main-invalid").With("main", main.Tip()), nil
	}
	return l.Pass(text.Say("main is %s", main.Tip()[:7])).With("main", main.Tip()), nil
}

func (l *lab) localMain(ctx context.Context) (check.Outcome, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	repo := l.CloneRepo()
	local, ok, err := repo.Resolve(ctx, ground.Main)
	if err != nil {
		return check.Outcome{}, err
	}
	// One that is behind holds nothing that the remote main does not have: a script may have pushed from elsewhere.
	if _, known := main.Find(local); !ok || !known {
		got := text.Say("there is none")
		if ok {
			got = text.Commit(local)
		}
		return l.Fail(text.Say("the clone's main at %s, or behind it", main.Tip()[:7]), got, "local-differs").With("main", main.Tip()).With("local", local), nil
	}
	if branch, err := repo.Current(ctx); err != nil {
		return check.Outcome{}, err
	} else if branch != "main" {
		head, _, err := repo.Resolve(ctx, "HEAD")
		if err != nil {
			return check.Outcome{}, err
		}
		on := text.Say("on branch %s", branch)
		if branch == "" {
			on = text.Say("on no branch")
		}
		if _, known := main.Find(head); branch != "" || !known {
			return l.Fail(text.Say("the clone on its branch main"), on, "local-differs"), nil
		}
	}
	changed, err := repo.Changed(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(changed) > 0 {
		return l.Fail(text.Say("a clone without changes"), text.Say("changed: %s", strings.Join(changed, ", ")), "local-dirty"), nil
	}
	return l.Pass(text.Say("the clone's main is %s", local[:7])).With("local", local), nil
}
