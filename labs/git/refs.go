package git

import (
	"context"
	"strings"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Refs are the repository's refs and the objects that they name: for an annotated tag that is the tag object, not its commit.
func (r Repo) Refs(ctx context.Context) (map[string]string, error) {
	res, err := r.run(ctx, "", "for-each-ref", "--format=%(refname) %(objectname)")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(res.Stdout)) {
		name, sha, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[name] = sha
	}
	return refs, nil
}

// Kind is what sort of object a full SHA names, such as "commit" or "tag", empty where the repository does not have it.
func (r Repo) Kind(ctx context.Context, sha string) (string, error) {
	res, err := r.run(ctx, "", "cat-file", "-t", sha)
	if _, exited := run.ExitCode(err); exited {
		return "", nil
	}
	return strings.TrimSpace(string(res.Stdout)), err
}

// Leads reports whether the commit a is b or leads to b, wherever branches are. The repository must have both.
func (r Repo) Leads(ctx context.Context, a, b string) (bool, error) {
	_, yes, err := r.ask(ctx, "merge-base", "--is-ancestor", a, b)
	return yes, err
}
