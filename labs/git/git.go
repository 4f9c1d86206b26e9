// Package git reads repositories with the guest's own git. It never writes into one, runs none of their hooks and asks nobody
// for a password.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Repo is a repository, bare or not, by its folder. The zero value of Runner is not usable.
type Repo struct {
	Dir    string
	Runner run.Runner
}

// Env is what git is run with: whatever the repository's owner is, no prompts, no locks that a learner's own git could meet, and
// messages in English.
var Env = []string{
	"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_EDITOR=false", "GIT_NO_REPLACE_OBJECTS=1",
	"GIT_CONFIG_COUNT=3",
	"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	"GIT_CONFIG_KEY_1=core.hooksPath", "GIT_CONFIG_VALUE_1=/dev/null",
	"GIT_CONFIG_KEY_2=core.fsmonitor", "GIT_CONFIG_VALUE_2=false",
}

func (r Repo) run(ctx context.Context, stdin string, args ...string) (run.Result, error) {
	return r.Runner.Run(ctx, run.Cmd{Argv: append([]string{"git", "-C", r.Dir}, args...), Env: Env, Stdin: strings.NewReader(stdin)})
}

// ask runs git where code 1 means no.
func (r Repo) ask(ctx context.Context, args ...string) (out string, yes bool, err error) {
	res, err := r.run(ctx, "", args...)
	if code, exited := run.ExitCode(err); exited && code == 1 {
		return "", false, nil
	}
	return strings.TrimRight(string(res.Stdout), "\n"), err == nil, err
}

// State is what stands at a repository's place.
type State struct {
	// Exists says that there is something; Repo that git takes that very folder for a repository; Bare that it has no work tree.
	Exists, Repo, Bare bool
	// GitDir is the folder with the repository's data, with symbolic links resolved.
	GitDir string
}

// State looks at what stands at Dir. A folder inside another repository's work tree is no repository of its own.
func (r Repo) State(ctx context.Context) (State, error) {
	info, err := os.Stat(r.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("look at the repository: %w", err)
	}
	s := State{Exists: true}
	if !info.IsDir() {
		return s, nil
	}
	res, err := r.run(ctx, "", "rev-parse", "--is-bare-repository", "--absolute-git-dir", "--show-cdup")
	if _, exited := run.ExitCode(err); exited {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	lines := strings.SplitN(string(res.Stdout), "\n", 3)
	if len(lines) < 3 {
		return s, fmt.Errorf("look at the repository %s: cannot read git's answer %q", r.Dir, res.Stdout)
	}
	s.Bare = lines[0] == "true"
	// In a work tree's root the way up is empty; a bare repository has no way up and must be where it says it is.
	s.Repo = strings.TrimSpace(lines[2]) == ""
	if s.GitDir, err = filepath.EvalSymlinks(lines[1]); err != nil {
		return s, fmt.Errorf("look at the repository: %w", err)
	}
	if s.Bare {
		own, err := filepath.EvalSymlinks(r.Dir)
		if err != nil {
			return s, fmt.Errorf("look at the repository: %w", err)
		}
		s.Repo = own == s.GitDir
	}
	return s, nil
}

// Resolve is the full SHA of the commit that rev names, and whether there is one.
func (r Repo) Resolve(ctx context.Context, rev string) (sha string, ok bool, err error) {
	return r.ask(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
}

// Blob is one file of one commit.
type Blob struct {
	Exists bool
	Data   []byte
}

// Files reads the file path of each commit. A commit or file that does not exist gives a Blob that says so.
func (r Repo) Files(ctx context.Context, commits []string, path string) ([]Blob, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	var ask strings.Builder
	for _, c := range commits {
		ask.WriteString(c + ":" + path + "\n")
	}
	res, err := r.run(ctx, ask.String(), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	blobs := make([]Blob, len(commits))
	rest := res.Stdout
	for i := range commits {
		head, after, found := bytes.Cut(rest, []byte("\n"))
		if !found {
			return nil, fmt.Errorf("git cat-file in %s: the answer ends early", r.Dir)
		}
		rest = after
		words := strings.Fields(string(head))
		if len(words) == 0 || words[len(words)-1] == "missing" || words[len(words)-1] == "ambiguous" {
			continue
		}
		size, err := strconv.Atoi(words[len(words)-1])
		if err != nil || len(words) != 3 || size+1 > len(rest) {
			return nil, fmt.Errorf("git cat-file in %s: cannot read its answer %q", r.Dir, head)
		}
		if words[1] == "blob" {
			blobs[i] = Blob{Exists: true, Data: rest[:size]}
		}
		rest = rest[size+1:]
	}
	return blobs, nil
}

// RemoteURL is the URL that pushes to the remote go to, and whether there is such a remote.
func (r Repo) RemoteURL(ctx context.Context, remote string) (url string, ok bool, err error) {
	res, err := r.run(ctx, "", "remote", "get-url", "--push", remote)
	// git says 2 for "no such remote", older versions 128.
	if _, exited := run.ExitCode(err); exited {
		return "", false, nil
	}
	return strings.TrimSpace(string(res.Stdout)), err == nil, err
}

// LocalPath is the folder that url leads to, where it is on this machine; relative ones start at dir.
func LocalPath(url, dir string) (string, bool) {
	if rest, ok := strings.CutPrefix(url, "file://"); ok {
		return filepath.Clean(strings.TrimPrefix(rest, "localhost")), strings.HasPrefix(strings.TrimPrefix(rest, "localhost"), "/")
	}
	if filepath.IsAbs(url) {
		return filepath.Clean(url), true
	}
	if before, _, colon := strings.Cut(url, ":"); url == "" || colon && !strings.Contains(before, "/") {
		return "", false
	}
	return filepath.Join(dir, url), true
}

// Current is the name of the branch that is checked out, such as "main", empty where HEAD is on none.
func (r Repo) Current(ctx context.Context) (string, error) {
	name, _, err := r.ask(ctx, "symbolic-ref", "--quiet", "--short", "HEAD")
	return name, err
}

// Changed lists the tracked files that differ from HEAD.
func (r Repo) Changed(ctx context.Context) ([]string, error) {
	res, err := r.run(ctx, "", "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range strings.SplitSeq(string(res.Stdout), "\x00") {
		if len(line) > 3 {
			files = append(files, line[3:])
		}
	}
	return files, nil
}

// HookPath is where git looks for the hook name.
func (r Repo) HookPath(ctx context.Context, name string) (string, error) {
	// The repository's own setting counts here, which Env takes away from every other call.
	env := append([]string{}, Env...)
	for i, e := range env {
		if e == "GIT_CONFIG_KEY_1=core.hooksPath" {
			env[i], env[i+1] = "GIT_CONFIG_KEY_1=labctl.unused", "GIT_CONFIG_VALUE_1=1"
		}
	}
	res, err := r.Runner.Run(ctx, run.Cmd{Argv: []string{"git", "-C", r.Dir, "rev-parse", "--git-path", "hooks/" + name}, Env: env})
	if err != nil {
		return "", err
	}
	path := strings.TrimRight(string(res.Stdout), "\n")
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Dir, path)
	}
	return path, nil
}
