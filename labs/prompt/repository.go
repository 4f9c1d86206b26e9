package prompt

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Repositories makes the lab's bare repository and its clone, where they are not there.
func (p *Prompt) Repositories(ctx context.Context) error {
	at := p.g.At
	for _, dir := range []string{at.Work, at.GitRoot} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	bare, err := p.g.BareRepo().State(ctx)
	if err != nil {
		return err
	}
	if !bare.Exists {
		if _, err := p.Run(ctx, nil, "", "git", "init", "--quiet", "--bare", "--initial-branch=main", at.Bare()); err != nil {
			return err
		}
	} else if !bare.Repo || !bare.Bare {
		return &InTheWayError{at.Bare(), "a bare repository"}
	}
	clone, err := p.g.CloneRepo().State(ctx)
	if err != nil {
		return err
	}
	if !clone.Exists {
		_, err := p.Run(ctx, nil, "", "git", "clone", "--quiet", at.Bare(), at.Clone())
		return err
	}
	if !clone.Repo || clone.Bare {
		return &InTheWayError{at.Clone(), "a clone"}
	}
	return p.origin(ctx, bare)
}

// origin makes the clone's origin lead to the bare repository.
func (p *Prompt) origin(ctx context.Context, bare git.State) error {
	at := p.g.At
	url, ok, err := p.g.CloneRepo().RemoteURL(ctx, "origin")
	if err != nil {
		return err
	}
	if !ok {
		_, err = p.Git(ctx, "remote", "add", "origin", at.Bare())
		return err
	}
	if path, local := git.LocalPath(url, at.Clone()); local {
		if real, err := filepath.EvalSymlinks(path); err == nil && real == bare.GitDir {
			return nil
		}
	}
	_, err = p.Git(ctx, "remote", "set-url", "origin", at.Bare())
	return err
}

// ToRemoteMain brings the clone to the remote main, whatever it holds.
func (p *Prompt) ToRemoteMain(ctx context.Context) error {
	changed, err := p.g.CloneRepo().Changed(ctx)
	if err != nil {
		return err
	}
	if _, ok, err := p.g.CloneRepo().Resolve(ctx, "HEAD"); err != nil {
		return err
	} else if ok && len(changed) > 0 {
		// A learner's work is put away, not thrown away; the reflog keeps commits.
		if _, err := p.Git(ctx, "stash", "push", "--quiet", "--include-untracked", "--message", "before labctl solve"); err != nil {
			return err
		}
	}
	return All(
		func() error { _, err := p.Git(ctx, "fetch", "--quiet", "origin", "main"); return err },
		func() error {
			_, err := p.Git(ctx, "checkout", "--quiet", "--force", "-B", "main", "FETCH_HEAD")
			return err
		},
		func() error { _, err := p.Git(ctx, "update-ref", "refs/remotes/origin/main", "FETCH_HEAD"); return err },
	)
}

// Commit writes a file of the clone, commits it and, with push, pushes main.
func (p *Prompt) Commit(ctx context.Context, file, content, message string, push bool) error {
	path := filepath.Join(p.g.At.Clone(), file)
	p.Tell(text.Say("write %s", path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := renameio.WriteFile(path, []byte(content), 0o644); err != nil {
		return err
	}
	return All(
		func() error { _, err := p.Git(ctx, "add", file); return err },
		func() error { _, err := p.Git(ctx, "commit", "--quiet", "--message", message); return err },
		func() error {
			if !push {
				return nil
			}
			_, err := p.Git(ctx, "push", "--quiet", "origin", "main")
			return err
		},
	)
}

// OpenDoor takes the pre-receive hook out of the way where it is there already, since it would refuse a push that an earlier step
// needs, and returns what puts it back. A solve that was killed in between is made good for by the next one.
func (p *Prompt) OpenDoor(ctx context.Context) (restore func() error, err error) {
	hook, err := p.g.BareRepo().HookPath(ctx, "pre-receive")
	if err != nil {
		return nil, err
	}
	if err := CloseDoor(hook); err != nil {
		return nil, err
	}
	if err := os.Rename(hook, hook+aside); err == nil {
		p.Tell(text.Say("move %s aside meanwhile", hook))
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return func() error { return CloseDoor(hook) }, nil
}

const aside = ".aside"

// CloseDoor puts back a hook that was moved aside, and never over another.
func CloseDoor(hook string) error {
	if there, err := ground.Exists(hook + aside); err != nil || !there {
		return err
	}
	if there, err := ground.Exists(hook); err != nil {
		return err
	} else if there {
		return &InTheWayError{hook + aside, "needed, since " + hook + " is there too"}
	}
	return os.Rename(hook+aside, hook)
}

// WriteHook puts the hook in its place, and has git look for it there. A solve of an earlier step that was killed may have left the
// learner's own aside; it is put back first, to be kept.
func (p *Prompt) WriteHook(ctx context.Context, content []byte) error {
	hook := p.g.At.Hook()
	path, err := p.g.BareRepo().HookPath(ctx, "pre-receive")
	if err != nil {
		return err
	}
	if path != hook {
		if _, err := p.Run(ctx, nil, "", "git", "--git-dir", p.g.At.Bare(), "config", "--unset-all", "core.hooksPath"); err != nil {
			return err
		}
	}
	if there, err := ground.Exists(hook); err != nil {
		return err
	} else if !there {
		if err := CloseDoor(hook); err != nil {
			return err
		}
	}
	return p.Write(hook, content, 0o755)
}
