package git_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
)

func sh(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func repo(dir string) git.Repo { return git.Repo{Dir: dir, Runner: run.Local{}} }

func TestState(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	sh(t, dir, `git init -q --bare bare.git; git init -q work; mkdir work/sub plain; touch file; ln -s bare.git link.git; mkdir bare.git/inner
		git init -q --bare dotless.git; git -C dotless.git config core.bare false`)
	state := func(name string) git.State {
		s, err := repo(filepath.Join(dir, name)).State(ctx)
		require.NoError(t, err)
		return s
	}
	require.Equal(t, git.State{}, state("none"))
	require.Equal(t, git.State{Exists: true}, state("file"))
	require.False(t, state("plain").Repo)
	require.Equal(t, git.State{Exists: true, Repo: true, Bare: true, GitDir: filepath.Join(dir, "bare.git")}, state("bare.git"))
	require.Equal(t, git.State{Exists: true, Repo: true, Bare: true, GitDir: filepath.Join(dir, "bare.git")}, state("link.git"))
	require.Equal(t, git.State{Exists: true, Repo: true, GitDir: filepath.Join(dir, "work/.git")}, state("work"))
	require.False(t, state("work/sub").Repo, "a folder of a work tree is not a clone of its own")
	require.False(t, state("bare.git/inner").Repo)
	require.False(t, state("dotless.git").Bare)
}

func TestHistory(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	sh(t, dir, `git init -q -b main .; mkdir deploy
		echo 1 > deploy/web.yaml; git add .; git commit -qm "one

a body"
		git checkout -qb side; echo 2 > deploy/web.yaml; git commit -qam two
		git checkout -q main; echo x > other; git add .; git commit -qm "three é"; git merge -q --no-edit side
		git rm -q deploy/web.yaml; git commit -qm four`)
	r := repo(dir)
	h, err := r.History(ctx, "refs/heads/main")
	require.NoError(t, err)
	require.Len(t, h.Commits, 5)
	subjects := map[string]git.Commit{}
	for _, c := range h.Commits {
		subjects[c.Subject] = c
	}
	one, two, three, four := subjects["one"], subjects["two"], subjects["three é"], subjects["four"]
	require.Equal(t, four.SHA, h.Tip())
	require.Equal(t, sh(t, dir, "git rev-parse HEAD"), h.Tip())
	require.Len(t, h.Commits[1].Parents, 2)
	require.False(t, one.Time.IsZero())
	require.True(t, h.IsAncestor(one.SHA, four.SHA))
	require.True(t, h.IsAncestor(two.SHA, four.SHA))
	require.True(t, h.IsAncestor(two.SHA, two.SHA))
	require.False(t, h.IsAncestor(two.SHA, three.SHA))
	require.False(t, h.IsAncestor(four.SHA, one.SHA))
	require.False(t, h.IsAncestor("unknown", "unknown"))

	c, ok := h.Find(two.SHA[:7])
	require.True(t, ok)
	require.Equal(t, two, c)
	_, ok = h.Find(strings.ToUpper(two.SHA))
	require.True(t, ok)
	for _, no := range []string{"", two.SHA[:6], "HEAD", "main", two.SHA + "0"} {
		_, ok = h.Find(no)
		require.False(t, ok, no)
	}

	blobs, err := r.Files(ctx, []string{one.SHA, two.SHA, four.SHA, "0000000000000000000000000000000000000000"}, "deploy/web.yaml")
	require.NoError(t, err)
	require.Equal(t, []git.Blob{{Exists: true, Data: []byte("1\n")}, {Exists: true, Data: []byte("2\n")}, {}, {}}, blobs)
	blobs, err = r.Files(ctx, []string{one.SHA, one.SHA}, "deploy")
	require.NoError(t, err)
	require.Equal(t, []git.Blob{{}, {}}, blobs, "a folder is no file")

	none, err := r.History(ctx, "refs/heads/none")
	require.NoError(t, err)
	require.Empty(t, none.Commits)
	require.Empty(t, none.Tip())
}

func TestReflogKnowsWhatWasReset(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	sh(t, dir, "git init -q -b main .")
	r := repo(dir)
	h, err := r.Reflog(ctx)
	require.NoError(t, err)
	require.Empty(t, h.Commits)
	lost := sh(t, dir, "echo 1 > f; git add f; git commit -qm one; echo 2 > f; git commit -qam two; git rev-parse HEAD; git reset -q --hard HEAD~1")
	h, err = r.Reflog(ctx)
	require.NoError(t, err)
	require.True(t, h.Has(lost))
	h, err = r.History(ctx, "main")
	require.NoError(t, err)
	require.False(t, h.Has(lost))
}

func TestRemotesAndBranches(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	sh(t, dir, "git init -q -b main .; git remote add origin git://host/ci.git; git remote set-url --push origin /srv/bare/ci.git; git commit -q --allow-empty -m one")
	r := repo(dir)
	url, ok, err := r.RemoteURL(ctx, "origin")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "/srv/bare/ci.git", url, "pushes count")
	_, ok, err = r.RemoteURL(ctx, "upstream")
	require.NoError(t, err)
	require.False(t, ok)

	name, err := r.Current(ctx)
	require.NoError(t, err)
	require.Equal(t, "main", name)
	sh(t, dir, "git checkout -q --detach")
	name, err = r.Current(ctx)
	require.NoError(t, err)
	require.Empty(t, name)

	changed, err := r.Changed(ctx)
	require.NoError(t, err)
	require.Empty(t, changed)
	sh(t, dir, "echo 1 > 'a b'; echo 1 > c; git add .; git commit -qm x; echo 2 > 'a b'; git rm -q c; echo 3 > untracked")
	changed, err = r.Changed(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a b", "c"}, changed)
}

func TestLocalPath(t *testing.T) {
	for url, want := range map[string]string{
		"/srv/bare/ci.git": "/srv/bare/ci.git", "/srv/bare/ci.git/": "/srv/bare/ci.git", "file:///srv/bare/ci.git": "/srv/bare/ci.git",
		"file://localhost/srv/bare/ci.git": "/srv/bare/ci.git", "../bare/ci.git": "/root/bare/ci.git", "./a:b": "/root/w/a:b",
		"git://h/ci.git": "", "ssh://root@h/x": "", "root@h:/x": "", "https://h/x": "", "": "", "file://other/x": "",
	} {
		got, ok := git.LocalPath(url, "/root/w")
		require.Equal(t, want != "", ok, url)
		if ok {
			require.Equal(t, want, got)
		}
	}
}

func TestHookPath(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	sh(t, dir, "git init -q --bare .")
	path, err := repo(dir).HookPath(ctx, "pre-receive")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "hooks/pre-receive"), path)
	sh(t, dir, "git config core.hooksPath /elsewhere")
	path, err = repo(dir).HookPath(ctx, "pre-receive")
	require.NoError(t, err)
	require.Equal(t, "/elsewhere/pre-receive", path)
}

// TestReadingLeavesNoTrace: not a byte of the learner's repository changes, and nothing in it is run.
func TestReadingLeavesNoTrace(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	sh(t, dir, `git init -q -b main .; echo 1 > f; git add f; git commit -qm one; touch -d '2 hours ago' f
		printf '#!/bin/sh\ntouch %s/ran\n' "$PWD" > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change
		git config core.fsmonitor .git/hooks/post-index-change`)
	before := sh(t, dir, "find . -type f -exec sha256sum {} + | sort; find . -printf '%p %T@\n' | sort")
	r := repo(dir)
	_, err := r.State(ctx)
	require.NoError(t, err)
	_, err = r.Changed(ctx)
	require.NoError(t, err)
	_, err = r.History(ctx, "main")
	require.NoError(t, err)
	_, err = r.Reflog(ctx)
	require.NoError(t, err)
	require.Equal(t, before, sh(t, dir, "find . -type f -exec sha256sum {} + | sort; find . -printf '%p %T@\n' | sort"))
}

// TestTroubleIsAnError: a git that cannot be run says nothing about the repository.
func TestTroubleIsAnError(t *testing.T) {
	dir := t.TempDir()
	away := runtest.New(t)
	away.OnMatch("anything", func(runtest.Seen) bool { return true }).Err(exec.ErrNotFound).Any()
	r := git.Repo{Dir: dir, Runner: away}
	ctx := context.Background()
	_, err := r.State(ctx)
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, _, err = r.Resolve(ctx, "main")
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = r.History(ctx, "main")
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = r.Reflog(ctx)
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = r.Files(ctx, []string{"a"}, "f")
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, _, err = r.RemoteURL(ctx, "origin")
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = r.Changed(ctx)
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = r.Current(ctx)
	require.ErrorIs(t, err, exec.ErrNotFound)
	_, err = r.HookPath(ctx, "x")
	require.ErrorIs(t, err, exec.ErrNotFound)
}
