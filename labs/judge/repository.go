package judge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/git"
)

// BareCheck asks for the lab's bare repository.
func (j *Judge) BareCheck(ctx context.Context) (check.Outcome, error) {
	wanted := text.Say("a bare repository %s", j.g.At.Bare())
	state, err := j.g.BareRepo().State(ctx)
	switch {
	case err != nil:
		return check.Outcome{}, err
	case !state.Exists:
		return j.Fail(wanted, text.Say("there is nothing"), "bare-missing"), nil
	case !state.Repo:
		return j.Fail(wanted, text.Say("it is no repository"), "bare-missing"), nil
	case !state.Bare:
		return j.Fail(wanted, text.Say("it has a work tree"), "bare-not-bare"), nil
	}
	return j.Pass(text.Verbatim(j.g.At.Bare())), nil
}

// CloneCheck asks for the lab's clone, which pushes to the bare repository.
func (j *Judge) CloneCheck(ctx context.Context) (check.Outcome, error) {
	bare, clone := j.g.At.Bare(), j.g.At.Clone()
	wanted := text.Say("a clone %s whose origin is %s", clone, bare)
	state, err := j.g.CloneRepo().State(ctx)
	switch {
	case err != nil:
		return check.Outcome{}, err
	case !state.Exists:
		return j.Fail(wanted, text.Say("there is nothing"), "clone-missing"), nil
	case !state.Repo || state.Bare:
		return j.Fail(wanted, text.Say("it is no repository with a work tree"), "clone-missing"), nil
	}
	url, ok, err := j.g.CloneRepo().RemoteURL(ctx, "origin")
	if err != nil {
		return check.Outcome{}, err
	}
	if !ok {
		return j.Fail(wanted, text.Say("it has no remote origin"), "clone-origin"), nil
	}
	if path, local := git.LocalPath(url, clone); !local || !SameFolder(path, bare) {
		return j.Fail(wanted, text.Say("origin is %s", url), "clone-origin"), nil
	}
	return j.Pass(text.Say("origin is %s", url)), nil
}

// SameFolder reports whether two paths lead to the same folder.
func SameFolder(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// HookCheck asks for the bare repository's pre-receive hook, where git looks for it.
func (j *Judge) HookCheck(ctx context.Context) (check.Outcome, error) {
	hook := j.g.At.Hook()
	path, err := j.g.BareRepo().HookPath(ctx, "pre-receive")
	if err != nil {
		return check.Outcome{}, err
	}
	if _, err := os.Stat(hook); err != nil && path != hook {
		// core.hooksPath is another way to have the hook run.
		return j.Executable(path, "hook-missing", "hook-not-executable")
	}
	out, err := j.Executable(hook, "hook-missing", "hook-not-executable")
	if err == nil && out.State == check.Passed && path != hook {
		return j.Fail(text.Say("a hook that git runs"), text.Say("core.hooksPath leads git to %s", path), "hook-missing"), nil
	}
	return out, err
}

// colours are what terminals are told between the letters.
var colours = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// ReadOutput reads a file in which a learner saved what a command printed, without colours and carriage returns. Where there is none or it
// is empty, the outcome says so with the hint missing.
func (j *Judge) ReadOutput(path string, wanted text.Phrase, missing string) (output, digest string, out check.Outcome, err error) {
	data, err := os.ReadFile(path)
	wanted = text.Say("%s in %s", wanted, path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", "", j.Fail(wanted, text.Say("there is no such file"), missing), nil
	case err != nil:
		return "", "", check.Outcome{}, err
	}
	output, digest = strings.ReplaceAll(colours.ReplaceAllString(string(data), ""), "\r", "\n"), Digest(data)
	if strings.TrimSpace(output) == "" {
		return "", digest, j.Fail(wanted, text.Say("the file is empty"), missing).With("sha256", digest), nil
	}
	return output, digest, check.Outcome{}, nil
}

// Declined reports whether output has the line by which git says, in its usual form or in --porcelain's, that the remote side's hook
// did not take a ref, such as refs/heads/main.
func Declined(output, ref string) bool {
	short := ref[strings.LastIndexByte(ref, '/')+1:]
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^\s*!\s+(\[remote rejected\]\s+\S+\s+->\s+(%[1]s|%[2]s)\s|\S*:%[1]s\s+\[remote rejected\]).*pre-receive hook declined`,
		regexp.QuoteMeta(ref), regexp.QuoteMeta(short)))
	return line.MatchString(output)
}
