package ci

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/text"

	shared "github.com/cgoa-labs/labctl/labs/ground"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Step 5: the hook gets real pushes, into a copy of the bare repository at its real path.
func (l *lab) hook() []check.Check {
	return []check.Check{
		l.Check("hook-file", l.HookCheck),
		l.Check("hook-accepts", l.pushCheck("good", "hook-refuses-good")),
		l.Check("hook-rejects", l.hookRejects),
		l.Check("hook-others", l.hookOthers),
		l.Check("hook-delete", l.pushCheck("delete", "hook-deletes")),
	}
}

// push is one push that the hook is tried with. refs are what main and the other refs should come to.
type push struct {
	name   string
	refs   []string // SOURCE:DEST, with commits good1, bad, good2, next
	main   string   // the commit that main is to be at afterwards, "" for as before
	others string   // what is to be there besides, a ref and its commit
	gone   string   // a ref that is not to be there
	judged bool     // validate.sh has a say
}

var pushes = []push{
	{name: "good", refs: []string{"good1:refs/heads/main"}, main: "good1", judged: true},
	{name: "bad", refs: []string{"bad:refs/heads/main"}, judged: true},
	{name: "branch", refs: []string{"bad:refs/heads/labctl-verify"}, others: "refs/heads/labctl-verify"},
	{name: "tag", refs: []string{"bad:refs/tags/labctl-verify"}, others: "refs/tags/labctl-verify"},
	// git sends refs that are there first, in order, and then new ones: main is in the middle.
	{name: "several", refs: []string{"next:refs/heads/labctl-verify", "bad:refs/heads/main", "good2:refs/heads/zzz-labctl"}, judged: true},
	{name: "delete-branch", refs: []string{":refs/heads/labctl-verify"}, gone: "refs/heads/labctl-verify"},
	{name: "delete", refs: []string{":refs/heads/main"}},
}

// pushed is what became of a push.
type pushed struct {
	push
	right  bool
	late   bool // it did not end in time
	main   string
	output text.Phrase
}

// pushAll tries the pushes, first with a stand-in for validate.sh, which costs no call of the API server. A hook that is not right with the
// stand-in, which may need the real one's language, is tried again with the real one.
func (l *lab) pushAll(ctx context.Context) (map[string]pushed, error) {
	return shared.Once(l.Ground.Ground, "hook", func() (map[string]pushed, error) {
		results, err := l.pushWith(ctx, true)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if !r.right && !r.late {
				return l.pushWith(ctx, false)
			}
		}
		return results, nil
	})
}

func (l *lab) pushWith(ctx context.Context, stub bool) (map[string]pushed, error) {
	stage, err := l.NewStage(stub)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stage.Close() }()
	work, commits, err := l.pushRepo(ctx, stage)
	if err != nil {
		return nil, err
	}
	results := map[string]pushed{}
	before, err := l.refs(ctx, stage)
	if err != nil {
		return nil, err
	}
	for _, p := range pushes {
		argv := []string{"git", "-C", work, "push", "--quiet", l.Bare()}
		for _, ref := range p.refs {
			source, dest, _ := strings.Cut(ref, ":")
			argv = append(argv, "+"+commits[source]+":"+dest)
		}
		trial, err := l.Try(ctx, stage, run.Cmd{Argv: argv})
		if err != nil {
			return nil, fmt.Errorf("push %s: %w", p.name, err)
		}
		after, err := l.refs(ctx, stage)
		if err != nil {
			return nil, err
		}
		want := before[ground.Main]
		if p.main != "" {
			want = commits[p.main]
		}
		r := pushed{push: p, main: after[ground.Main], output: text.Printed(trial.Output)}
		r.right = r.main == want && (p.others == "" || after[p.others] != "") && (p.gone == "" || after[p.gone] == "")
		if trial.TimedOut {
			r.right, r.late, r.output = false, true, text.Say("the push did not end in time: %s", text.Printed(trial.Output))
			// The others would take as long, and there is a verdict.
			for _, other := range pushes {
				if _, tried := results[other.name]; !tried {
					results[other.name] = r
				}
			}
			return results, nil
		}
		results[p.name] = r
		if !r.right && r.main != want {
			// The pushes after this one would start from another main than they are made for.
			if err := l.restore(ctx, stage, work, want); err != nil {
				return nil, err
			}
			after[ground.Main] = want
		}
		before = after
	}
	return results, nil
}

// inBare runs git in the stage's copy of the bare repository.
func (l *lab) inBare(ctx context.Context, stage *ground.Stage, stdin string, args ...string) (string, error) {
	res, err := stage.Run(ctx, run.Cmd{Argv: append([]string{"git", "--git-dir", l.Bare(), "-c", "safe.directory=*"}, args...), Stdin: strings.NewReader(stdin)})
	return strings.TrimSpace(string(res.Stdout)), err
}

func (l *lab) refs(ctx context.Context, stage *ground.Stage) (map[string]string, error) {
	out, err := l.inBare(ctx, stage, "", "for-each-ref", "--format=%(refname) %(objectname)")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		name, sha, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[name] = sha
	}
	return refs, nil
}

// restore puts main where it should be. What a hook refused is not in the repository; a fetch brings it in without asking the hook.
func (l *lab) restore(ctx context.Context, stage *ground.Stage, work, main string) error {
	if _, err := l.inBare(ctx, stage, "", "fetch", "--quiet", work, "good1", "bad", "good2", "next"); err != nil {
		return err
	}
	_, err := l.inBare(ctx, stage, "", "update-ref", ground.Main, main)
	return err
}

// pushRepo makes a repository in the stage with the commits that are pushed: good1 on top of main, bad and good2 on top of good1, and next
// on top of bad.
// The bare repository's copy must not keep main from being deleted by itself, because that is the hook's task.
func (l *lab) pushRepo(ctx context.Context, stage *ground.Stage) (string, map[string]string, error) {
	main, err := l.Main(ctx)
	if err != nil {
		return "", nil, err
	}
	work := filepath.Join(stage.Tmp(), "push")
	script := `set -eu
git init -q "$1"
cd "$1"
git fetch -q "$2" refs/heads/main
git fast-import --quiet
git --git-dir "$2" config receive.denyDeleteCurrent >/dev/null || git --git-dir "$2" config receive.denyDeleteCurrent ignore
git rev-parse good1 bad good2 next
`
	web := func(replicas, comment string) string { return manifest(ground.Web, replicas) + "# " + comment + "\n" }
	var stream strings.Builder
	commit := func(ref, from, content string) {
		fmt.Fprintf(&stream, "commit refs/heads/%s\ncommitter labctl verify <verify@labctl.invalid> %d +0000\ndata 6\nverify\nfrom %s\nM 100644 inline %s\ndata %d\n%s\n",
			ref, time.Now().Unix(), from, ground.WebPath, len(content), content)
	}
	commit("good1", main.Tip(), web(good, "labctl verify 1"))
	commit("bad", "refs/heads/good1", web(str, ground.Refuse))
	commit("good2", "refs/heads/good1", web(good, "labctl verify 2"))
	commit("next", "refs/heads/bad", web(good, "labctl verify 3"))
	res, err := stage.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", script, "sh", work, l.Bare()}, Stdin: strings.NewReader(stream.String())})
	if err != nil {
		return "", nil, fmt.Errorf("prepare pushes: %w", err)
	}
	shas := strings.Fields(string(res.Stdout))
	if len(shas) != 4 {
		return "", nil, fmt.Errorf("prepare pushes: cannot read git's answer %q", res.Stdout)
	}
	return work, map[string]string{"good1": shas[0], "bad": shas[1], "good2": shas[2], "next": shas[3]}, nil
}

// pushCheck asks for the outcome of one push.
func (l *lab) pushCheck(name, hint string) func(context.Context) (check.Outcome, error) {
	return func(ctx context.Context) (check.Outcome, error) {
		results, err := l.pushAll(ctx)
		if err != nil {
			return check.Outcome{}, err
		}
		r := results[name]
		if !r.right {
			return l.Fail(wantedOf[name], text.Say("main is at %s: %s", text.Commit(r.main), r.output), hint), nil
		}
		return l.Pass(wantedOf[name]), nil
	}
}

var wantedOf = map[string]text.Phrase{
	"good":    text.Say("a push of a good commit to main is taken"),
	"bad":     text.Say("a push of a bad commit to main is refused"),
	"several": text.Say("a push of a bad commit to main is refused, also between other refs"),
	"delete":  text.Say("the deletion of main is refused"),
}

func (l *lab) hookRejects(ctx context.Context) (check.Outcome, error) {
	out, err := l.pushCheck("bad", "hook-passes-bad")(ctx)
	if err != nil || out.State != check.Passed {
		return out, err
	}
	return l.pushCheck("several", "hook-first-line")(ctx)
}

func (l *lab) hookOthers(ctx context.Context) (check.Outcome, error) {
	results, err := l.pushAll(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	for _, name := range []string{"branch", "tag", "delete-branch"} {
		if r := results[name]; !r.right {
			return l.Fail(text.Say("refs other than main pass, whatever they hold"), text.Say("push %s: %s", strings.Join(r.refs, " "), r.output), "hook-other-refs"), nil
		}
	}
	return l.Pass(text.Say("they pass")), nil
}
