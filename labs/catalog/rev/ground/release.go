package ground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/ground"
)

// Release is app/release.yaml in one commit.
type Release struct {
	Exists bool
	// Version is what the ConfigMap release says, empty where the file has no such ConfigMap as the lab wants; Problem then says why.
	Version string
	Problem text.Phrase
}

// ParseRelease reads app/release.yaml.
func ParseRelease(data []byte) Release {
	r := Release{Exists: true, Problem: text.Say("it has no ConfigMap release")}
	documents, err := ground.Documents(data)
	if err != nil {
		r.Problem = text.Verbatim(err.Error())
		return r
	}
	for _, document := range documents {
		var loose struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal(document, &loose); err != nil {
			r.Problem = text.Say("it cannot be read as YAML: %s", err.Error())
			return r
		}
		if loose.Kind != "ConfigMap" || loose.Metadata.Name != ConfigMap {
			continue
		}
		var c corev1.ConfigMap
		err := yaml.UnmarshalStrict(document, &c)
		switch {
		case err != nil:
			r.Problem = text.Verbatim(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "), "\n", " "))
		case c.APIVersion != "v1":
			r.Problem = text.Say("apiVersion is %q", c.APIVersion)
		case c.Namespace != "":
			r.Problem = text.Say("metadata.namespace is %q", c.Namespace)
		case c.Data["version"] == "":
			r.Problem = text.Say("data.version is not set")
		default:
			r.Version, r.Problem = c.Data["version"], text.Phrase{}
		}
		return r
	}
	return r
}

// Says tells in words what the file says.
func (r Release) Says() text.Phrase {
	switch {
	case !r.Exists:
		return text.Say("there is no %s", ReleasePath)
	case r.Version == "":
		return text.Say("%s: %s", ReleasePath, r.Problem)
	}
	return text.Say("version %s", r.Version)
}

// MainHistory is the bare repository's main, with app/release.yaml in each of its commits, and what can be found out beyond it.
type MainHistory struct {
	git.History
	Release map[string]Release
	repo    git.Repo
}

// Main reads the bare repository's main. It is empty where there is no repository or no such branch.
func (g *Ground) Main(ctx context.Context) (MainHistory, error) {
	return ground.Once(g.Ground, "main", func() (MainHistory, error) { return g.ReadMain(ctx) })
}

// ReadMain reads the bare repository's main anew.
func (g *Ground) ReadMain(ctx context.Context) (MainHistory, error) {
	m := MainHistory{repo: g.BareRepo()}
	state, err := m.repo.State(ctx)
	if err != nil || !state.Repo {
		return m, err
	}
	if m.History, err = m.repo.History(ctx, Main); err != nil {
		return m, err
	}
	m.Release, err = m.releases(ctx, m.SHAs()...)
	return m, err
}

func (m MainHistory) releases(ctx context.Context, commits ...string) (map[string]Release, error) {
	blobs, err := m.repo.Files(ctx, commits, ReleasePath)
	if err != nil {
		return nil, err
	}
	releases := map[string]Release{}
	for i, sha := range commits {
		if blobs[i].Exists {
			releases[sha] = ParseRelease(blobs[i].Data)
		}
	}
	return releases, nil
}

// TipRelease is app/release.yaml in the newest commit.
func (m MainHistory) TipRelease() Release { return m.Release[m.Tip()] }

// With are the commits whose ConfigMap says version, newest first.
func (m MainHistory) With(version string) []string {
	return slices.DeleteFunc(m.SHAs(), func(sha string) bool { return m.Release[sha].Version != version })
}

// Undoes reports whether a commit says the first version again, on top of the commit second.
func (m MainHistory) Undoes(second, sha string) bool {
	return sha != second && m.Release[sha].Version == First && m.IsAncestor(second, sha)
}

// Version is what the ConfigMap says in a commit of the repository, also one that is not on main; empty where there is no such ConfigMap.
func (m MainHistory) Version(ctx context.Context, commit string) (string, error) {
	if m.Has(commit) || !FullSHA(commit) {
		return m.Release[commit].Version, nil
	}
	releases, err := m.releases(ctx, commit)
	return releases[commit].Version, err
}

// Leads reports whether one commit of the repository is another or leads to it. One that is not there leads nowhere.
func (m MainHistory) Leads(ctx context.Context, from, to string) (bool, error) {
	if m.Has(to) {
		return m.IsAncestor(from, to), nil
	}
	for _, sha := range []string{from, to} {
		if _, ok, err := m.repo.Resolve(ctx, sha); err != nil || !ok {
			return false, err
		}
	}
	return m.repo.Leads(ctx, from, to)
}

// Peel is the commit behind a full SHA, which may be that of an annotated tag; s itself where the repository knows no such commit.
func (m MainHistory) Peel(ctx context.Context, s string) (string, error) {
	if m.Has(s) || !FullSHA(s) {
		return s, nil
	}
	sha, ok, err := m.repo.Resolve(ctx, s)
	if err != nil || !ok {
		return s, err
	}
	return sha, nil
}

// TagCommit is the commit that the bare repository's tag v1 names, whether the tag is annotated or not.
func (g *Ground) TagCommit(ctx context.Context) (sha string, ok bool, err error) {
	state, err := g.BareRepo().State(ctx)
	if err != nil || !state.Repo {
		return "", false, err
	}
	return g.BareRepo().Resolve(ctx, Tag)
}

// FullSHA reports whether s is a SHA as git writes it out.
func FullSHA(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}

// Pinned reads v1.sha. Where it is there and not one line with a SHA, problem says so.
func (p Paths) Pinned() (sha string, problem text.Phrase, err error) {
	data, err := os.ReadFile(p.SHAFile())
	if err != nil {
		return "", text.Phrase{}, err
	}
	content := strings.TrimSpace(strings.TrimPrefix(string(data), "\xef\xbb\xbf"))
	switch {
	case content == "":
		return "", text.Say("it is empty"), nil
	case strings.ContainsAny(content, "\r\n"):
		return "", text.Say("it has more than one line"), nil
	case !FullSHA(content):
		return "", text.Say("it says %q", shorten(content)), nil
	}
	return content, text.Phrase{}, nil
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

// ErrNoSHA says that v1.sha does not hold what the steps after the first build on.
var ErrNoSHA = errors.New("v1.sha does not hold a SHA")

// First is the commit of v1.sha.
func (p Paths) First() (string, error) {
	sha, problem, err := p.Pinned()
	if err == nil && !problem.Empty() {
		err = fmt.Errorf("%w: %s", ErrNoSHA, problem)
	}
	return sha, err
}
