package ci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Step 6: a push that the hook refuses, and nothing of it in the remote repository.
func (l *lab) blocked() []check.Check {
	return []check.Check{
		l.check("blocked-file", l.blockedFile),
		l.check("blocked-commit", l.blockedCommit),
		l.check("main-untouched", l.mainUntouched),
		l.check("local-main", l.localMain),
		l.check("blocked-synced", l.inStep),
	}
}

var (
	colours = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	// refusal is how git says, in its usual form and in --porcelain's, that the remote side did not take main.
	refusal = regexp.MustCompile(`(?m)^\s*!\s+(\[remote rejected\]\s+\S+\s+->\s+(refs/heads/)?main\b|\S*:refs/heads/main\s+\[remote rejected\]).*pre-receive hook declined`)
)

func (l *lab) readBlocked() (text, sum string, err error) {
	data, err := os.ReadFile(l.Blocked())
	if err != nil {
		return "", "", err
	}
	text = colours.ReplaceAllString(string(data), "")
	return strings.ReplaceAll(text, "\r", "\n"), digest(data), nil
}

func (l *lab) blockedFile(context.Context) (check.Outcome, error) {
	wanted := "the refusal of a push to main in " + l.Blocked()
	text, sum, err := l.readBlocked()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return l.fail(wanted, "there is no such file", "blocked-missing"), nil
	case err != nil:
		return check.Outcome{}, err
	case strings.TrimSpace(text) == "":
		return l.fail(wanted, "the file is empty", "blocked-missing").With("sha256", sum), nil
	case !refusal.MatchString(text):
		return l.fail(wanted, "no line says that the remote's pre-receive hook declined main", "blocked-not-refusal").With("sha256", sum), nil
	}
	return check.Pass("it holds the refusal").With("sha256", sum), nil
}

// saysReplica finds the misspelt key in what the server said, not in replicas.
var saysReplica = regexp.MustCompile(`\breplica\b`)

// blockedCommit wants a sign that the refused commit was the one with the misspelt key: in what the hook said, or in what the
// clone's reflog remembers.
func (l *lab) blockedCommit(ctx context.Context) (check.Outcome, error) {
	text, sum, err := l.readBlocked()
	if err != nil {
		return check.Outcome{}, err
	}
	if saysReplica.MatchString(text) {
		return check.Pass("the output speaks of replica").With("sha256", sum), nil
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
			return check.Pass("the clone remembers commit "+sha[:7]).With("commit", sha), nil
		}
	}
	return l.fail("the refusal of a commit that says replica instead of replicas", "neither the output nor the clone knows of one", "blocked-which").With("sha256", sum), nil
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
		name, _ := f.text("commit")
		if c, ok := main.Find(strings.TrimSpace(name)); ok {
			mark = c.SHA
		}
	}
	for _, c := range main.Commits {
		if c.SHA == mark {
			break
		}
		if main.Web[c.SHA].Typo {
			return l.fail("no commit with the misspelt key in the remote main", fmt.Sprintf("commit %s (%s)", c.SHA[:7], c.Subject), "typo-in-main").With("main", main.Tip()), nil
		}
	}
	if ok, problem := main.TipWeb().Valid(); !ok {
		return l.fail("a valid Deployment in the remote main", problem, "main-invalid").With("main", main.Tip()), nil
	}
	return check.Pass("main is "+main.Tip()[:7]).With("main", main.Tip()), nil
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
		got := "there is none"
		if ok {
			got = local[:7]
		}
		return l.fail("the clone's main at "+main.Tip()[:7]+", or behind it", got, "local-differs").With("main", main.Tip()).With("local", local), nil
	}
	if branch, err := repo.Current(ctx); err != nil {
		return check.Outcome{}, err
	} else if branch != "main" {
		head, _, err := repo.Resolve(ctx, "HEAD")
		if err != nil {
			return check.Outcome{}, err
		}
		if _, known := main.Find(head); branch != "" || !known {
			return l.fail("the clone on its branch main", "on "+orElse(branch, "no branch"), "local-differs"), nil
		}
	}
	changed, err := repo.Changed(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if len(changed) > 0 {
		return l.fail("a clone without changes", "changed: "+strings.Join(changed, ", "), "local-dirty"), nil
	}
	return check.Pass("the clone's main is "+local[:7]).With("local", local), nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
