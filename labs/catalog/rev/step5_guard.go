package rev

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/judge"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Step 5: the tag goes back, and a hook keeps it there. The hook gets real pushes, into a copy of the bare repository at its real path.
func (l *lab) guard() []check.Check {
	return []check.Check{
		l.Check("tag-restored", l.tagRestored),
		l.inStepCheck("restored-synced", ground.TagApp),
		l.Check("hook-file", l.HookCheck),
		l.Check("hook-accepts", l.pushCheck("main", "branch", "tag", "note", "together")),
		l.Check("hook-keeps-tags", l.pushCheck("move", "move-other", "move-note")),
		l.Check("hook-deletes", l.pushCheck("delete", "delete-other")),
		l.Check("hook-several", l.pushCheck("several")),
		l.Check("guard-file", l.guardFile),
	}
}

func (l *lab) tagRestored(ctx context.Context) (check.Outcome, error) {
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	at, ok, err := l.TagCommit(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if ok && at == first {
		return l.Pass(text.Say("it is at %s", at[:7])).With("tag", at), nil
	}
	wanted, got := text.Say("the tag %s back at %s", ground.TagName, first[:7]), text.Say("it is at %s", text.Commit(at))
	hook, err := l.HookCheck(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	if hook.State == check.Passed {
		return l.Fail(wanted, text.Say("%s, and there is a hook", got), "restored-hook").With("tag", at), nil
	}
	local, ok, err := l.CloneRepo().Resolve(ctx, ground.Tag)
	if err != nil {
		return check.Outcome{}, err
	}
	if ok && local == first {
		return l.Fail(wanted, text.Say("%s, and the clone's tag at %s", got, local[:7]), "not-pushed").With("tag", at), nil
	}
	return l.Fail(wanted, got, "restored-not").With("tag", at), nil
}

// push is one push that the hook is tried with: its refs as DEST, followed by the object that each is to come to. The objects are
// first, the commit of v1.sha, next on top of main, last on top of next, and note, an annotated tag of next.
type push struct {
	name    string
	refs    [][2]string
	refused bool
	hint    string
}

// The refs that the hook is tried with, besides main and v1.
const (
	tryBranch = "refs/heads/labctl-verify"
	newBranch = "refs/heads/zzz-labctl-verify"
	tryTag    = "refs/tags/labctl-verify"
	noteTag   = "refs/tags/labctl-verify-note"
	newTag    = "refs/tags/zzz-labctl-verify"
)

// pushes are tried in this order: the later ones change the tags that the first ones make.
var pushes = []push{
	{name: "main", refs: [][2]string{{ground.Main, "next"}}, hint: "hook-refuses-branches"},
	{name: "branch", refs: [][2]string{{tryBranch, "next"}}, hint: "hook-refuses-branches"},
	{name: "tag", refs: [][2]string{{tryTag, "next"}}, hint: "hook-refuses-new"},
	{name: "note", refs: [][2]string{{noteTag, "note"}}, hint: "hook-refuses-new"},
	{name: "together", refs: [][2]string{{ground.Main, "last"}, {tryBranch, "last"}, {newTag, "last"}}, hint: "hook-refuses-new"},
	{name: "move", refs: [][2]string{{ground.Tag, "last"}}, refused: true, hint: "hook-moves"},
	{name: "move-other", refs: [][2]string{{tryTag, "first"}}, refused: true, hint: "hook-one-tag"},
	{name: "move-note", refs: [][2]string{{noteTag, "last"}}, refused: true, hint: "hook-one-tag"},
	{name: "delete", refs: [][2]string{{ground.Tag, ""}}, refused: true, hint: "hook-lets-delete"},
	{name: "delete-other", refs: [][2]string{{tryTag, ""}}, refused: true, hint: "hook-lets-delete"},
	// git sends refs that are there first, in order, and then new ones: the tag is in the middle.
	{name: "several", refs: [][2]string{{tryBranch, "next"}, {ground.Tag, "last"}, {newBranch, "last"}}, refused: true, hint: "hook-first-line"},
}

// String is the push as git takes it at the prompt, without the objects.
func (p push) String() string {
	words := make([]string, len(p.refs))
	for i, ref := range p.refs {
		words[i] = ref[0]
		if ref[1] == "" {
			words[i] = ":" + ref[0]
		}
	}
	return strings.Join(words, " ")
}

// pushed is what became of a push.
type pushed struct {
	push
	right bool
	got   text.Phrase
}

// pushAll tries all pushes, each on what is right after those before.
func (l *lab) pushAll(ctx context.Context) (map[string]pushed, error) {
	return shared.Once(l.Ground.Ground, "pushes", func() (map[string]pushed, error) {
		stage, err := l.NewStage()
		if err != nil {
			return nil, err
		}
		defer func() { _ = stage.Close() }()
		work, objects, err := l.pushRepo(ctx, stage)
		if err != nil {
			return nil, err
		}
		bare := git.Repo{Dir: l.Bare(), Runner: stage}
		before, err := bare.Refs(ctx)
		if err != nil {
			return nil, err
		}
		results := map[string]pushed{}
		for _, p := range pushes {
			want := maps.Clone(before)
			argv := []string{"git", "-C", work, "push", "--quiet", l.Bare()}
			for _, ref := range p.refs {
				argv = append(argv, "+"+objects[ref[1]]+":"+ref[0])
				if !p.refused {
					want[ref[0]] = objects[ref[1]]
				}
			}
			trial, err := l.Try(ctx, stage, run.Cmd{Argv: argv})
			if err != nil {
				return nil, fmt.Errorf("push %s: %w", p.name, err)
			}
			after, err := bare.Refs(ctx)
			if err != nil {
				return nil, err
			}
			r := pushed{push: p, right: maps.Equal(want, after), got: text.Say("it was taken")}
			if trial.Code != 0 {
				r.got = text.Say("it was refused: %s", text.Printed(trial.Output))
			}
			if trial.TimedOut {
				// The others would take as long, and there is a verdict.
				r.right, r.got = false, text.Say("it did not end in time: %s", text.Printed(trial.Output))
				for _, other := range pushes {
					if _, tried := results[other.name]; !tried {
						results[other.name] = r
					}
				}
				return results, nil
			}
			results[p.name] = r
			if !r.right {
				if err := putRefs(ctx, stage, l.Bare(), want, after); err != nil {
					return nil, err
				}
			}
			before = want
		}
		return results, nil
	})
}

// putRefs brings the refs of the stage's bare repository from what they are to what the next push starts from.
func putRefs(ctx context.Context, stage *shared.Stage, bare string, want, have map[string]string) error {
	var lines strings.Builder
	for _, ref := range slices.Sorted(maps.Keys(have)) {
		if want[ref] == "" {
			fmt.Fprintf(&lines, "delete %s\n", ref)
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(want)) {
		if want[ref] != have[ref] {
			fmt.Fprintf(&lines, "update %s %s\n", ref, want[ref])
		}
	}
	_, err := stage.Run(ctx, run.Cmd{Argv: []string{"git", "--git-dir", bare, "update-ref", "--stdin"}, Env: git.Env, Stdin: strings.NewReader(lines.String())})
	return err
}

// pushRepo makes a repository in the stage with the objects that are pushed, and gives them to the bare repository's copy without any ref,
// so that refs can be put where the next push wants them.
func (l *lab) pushRepo(ctx context.Context, stage *shared.Stage) (string, map[string]string, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return "", nil, err
	}
	first, err := l.First()
	if err != nil {
		return "", nil, err
	}
	const script = `set -eu
git init -q "$1"
cd "$1"
git fetch -q --no-tags "$2" refs/heads/main refs/tags/v1
git fast-import --quiet
git --git-dir "$2" fetch -q --no-tags "$1" refs/heads/last refs/tags/note
git rev-parse refs/heads/next refs/heads/last refs/tags/note
`
	var stream strings.Builder
	who := fmt.Sprintf("labctl verify <verify@labctl.invalid> %d +0000", time.Now().Unix())
	commit := func(name, from string) {
		content := manifest(name)
		fmt.Fprintf(&stream, "commit refs/heads/%s\ncommitter %s\ndata 6\nverify\nfrom %s\nM 100644 inline %s\ndata %d\n%s\n", name, who, from, ground.ReleasePath, len(content), content)
	}
	commit("next", main.Tip())
	commit("last", "refs/heads/next")
	fmt.Fprintf(&stream, "tag note\nfrom refs/heads/next\ntagger %s\ndata 6\nverify\n", who)
	res, err := stage.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", script, "sh", filepath.Join(stage.Tmp(), "push"), l.Bare()}, Stdin: strings.NewReader(stream.String())})
	if err != nil {
		return "", nil, fmt.Errorf("prepare pushes: %w", err)
	}
	shas := strings.Fields(string(res.Stdout))
	if len(shas) != 3 {
		return "", nil, fmt.Errorf("prepare pushes: cannot read git's answer %q", res.Stdout)
	}
	return filepath.Join(stage.Tmp(), "push"), map[string]string{"first": first, "next": shas[0], "last": shas[1], "note": shas[2]}, nil
}

func manifest(version string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  version: %s\n", ground.ConfigMap, version)
}

// pushCheck asks for the outcome of pushes; the first that is not as it should be decides.
func (l *lab) pushCheck(names ...string) func(context.Context) (check.Outcome, error) {
	return func(ctx context.Context) (check.Outcome, error) {
		results, err := l.pushAll(ctx)
		if err != nil {
			return check.Outcome{}, err
		}
		for _, name := range names {
			r := results[name]
			wanted := text.Say("taken: a push of %s", r.String())
			if r.refused {
				wanted = text.Say("refused: a push of %s", r.String())
			}
			if !r.right {
				return l.Fail(wanted, r.got, r.hint), nil
			}
		}
		return l.Pass(text.Say("%d pushes went as they should", len(names))), nil
	}
}

func (l *lab) guardFile(context.Context) (check.Outcome, error) {
	wanted := text.Say("the refusal of a push that moves the tag %s", ground.TagName)
	output, digest, out, err := l.ReadOutput(l.Guard(), wanted, "guard-missing")
	if output == "" {
		return out, err
	}
	if !judge.Declined(output, ground.Tag) {
		hint := "guard-not-refusal"
		if strings.Contains(output, "already exists") {
			hint = "guard-own-refusal"
		}
		return l.Fail(wanted, text.Say("no line says that the remote's pre-receive hook declined %s", ground.TagName), hint).With("sha256", digest), nil
	}
	return l.Pass(text.Say("it holds the refusal")).With("sha256", digest), nil
}
