package git

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Commit is one commit.
type Commit struct {
	SHA     string
	Parents []string
	// Subject is the first line of the message.
	Subject string
	Time    time.Time
}

// History is what can be reached from one commit, newest first.
type History struct {
	Commits []Commit
	index   map[string]int
}

// ErrTooLong means that a history has more commits than are worth reading.
var ErrTooLong = errors.New("the history is too long to be read")

const mostCommits = 5000

// History reads what can be reached from rev, children before parents. A rev that does not exist gives an empty history.
func (r Repo) History(ctx context.Context, rev string) (History, error) {
	sha, ok, err := r.Resolve(ctx, rev)
	if err != nil || !ok {
		return History{}, err
	}
	return r.log(ctx, "log", "--topo-order", sha)
}

// Reflog is what the reflogs of the repository's branches and HEAD still know, also where no branch leads there any more.
func (r Repo) Reflog(ctx context.Context) (History, error) {
	h, err := r.log(ctx, "log", "--reflog", "--all")
	if _, exited := run.ExitCode(err); exited {
		return History{}, nil
	}
	return h, err
}

func (r Repo) log(ctx context.Context, args ...string) (History, error) {
	// -z ends each record; the fields hold no NUL, so four fields make a commit.
	args = slices.Insert(args, 1, "-z", "--no-show-signature", "--no-color", "--format=%H%x00%P%x00%ct%x00%s", "--max-count="+strconv.Itoa(mostCommits))
	res, err := r.run(ctx, "", args...)
	if err != nil {
		return History{}, err
	}
	h := History{index: map[string]int{}}
	fields := strings.Split(strings.TrimSuffix(string(res.Stdout), "\x00"), "\x00")
	if len(fields) == 1 && fields[0] == "" {
		return h, nil
	}
	if len(fields)%4 != 0 {
		return History{}, fmt.Errorf("git log in %s: cannot read its answer", r.Dir)
	}
	if len(fields)/4 >= mostCommits {
		return History{}, fmt.Errorf("%s: %w", r.Dir, ErrTooLong)
	}
	for f := range slices.Chunk(fields, 4) {
		seconds, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return History{}, fmt.Errorf("git log in %s: cannot read the time %q", r.Dir, f[2])
		}
		h.index[f[0]] = len(h.Commits)
		h.Commits = append(h.Commits, Commit{SHA: f[0], Parents: strings.Fields(f[1]), Subject: f[3], Time: time.Unix(seconds, 0)})
	}
	return h, nil
}

// Tip is the newest commit's SHA, empty for an empty history.
func (h History) Tip() string {
	if len(h.Commits) == 0 {
		return ""
	}
	return h.Commits[0].SHA
}

// Has reports whether the history holds the commit.
func (h History) Has(sha string) bool {
	_, ok := h.index[sha]
	return ok
}

// Find returns the commit that a full or short SHA names, and whether exactly one does.
func (h History) Find(sha string) (Commit, bool) {
	if i, ok := h.index[sha]; ok {
		return h.Commits[i], true
	}
	const shortest = 7
	if len(sha) < shortest {
		return Commit{}, false
	}
	var found []Commit
	for _, c := range h.Commits {
		if strings.HasPrefix(c.SHA, strings.ToLower(sha)) {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		return Commit{}, false
	}
	return found[0], true
}

// IsAncestor reports whether a is b or leads to b within the history.
func (h History) IsAncestor(a, b string) bool {
	seen := map[string]bool{}
	next := []string{b}
	for len(next) > 0 {
		sha := next[len(next)-1]
		next = next[:len(next)-1]
		if sha == a {
			return h.Has(a)
		}
		if seen[sha] {
			continue
		}
		seen[sha] = true
		if i, ok := h.index[sha]; ok {
			next = append(next, h.Commits[i].Parents...)
		}
	}
	return false
}

// SHAs are the history's commits, newest first.
func (h History) SHAs() []string {
	shas := make([]string, len(h.Commits))
	for i, c := range h.Commits {
		shas[i] = c.SHA
	}
	return shas
}
