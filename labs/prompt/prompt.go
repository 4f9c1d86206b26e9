// Package prompt does what a learner does at the prompt: commands, which are shown as they run, files, and waits for Argo CD. Labs'
// reference solutions and resets are made of it.
package prompt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/text"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Prompt is one piece of work at the prompt.
type Prompt struct {
	g *ground.Ground
	// Log receives one line at a time on what is done.
	Log func(string)
}

// New is a prompt on the ground.
func New(g *ground.Ground, log func(string)) *Prompt { return &Prompt{g: g, Log: log} }

// Tell says what is done, in the lab's language.
func (p *Prompt) Tell(said text.Phrase) { p.Log(p.Say(said)) }

// Say puts a phrase into the lab's language.
func (p *Prompt) Say(said text.Phrase) string {
	if p.g.Say == nil {
		return said.String()
	}
	return p.g.Say(said)
}

// InTheWayError says that something that is not the lab's stands where the lab's should be.
type InTheWayError struct{ Path, Want string }

func (e *InTheWayError) Error() string {
	return fmt.Sprintf("%s is there, but is not %s", e.Path, e.Want)
}

// Hint is the next action.
func (e *InTheWayError) Hint() string {
	return "move it away, or reset the lab; solving does not throw work away"
}

// Run runs a command and says so.
func (p *Prompt) Run(ctx context.Context, env []string, stdin string, argv ...string) (string, error) {
	p.Log(Shown(env, argv))
	env = append([]string{"KUBECONFIG=" + p.g.At.Kubeconfig, "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true"}, env...)
	res, err := p.g.Runner.Run(ctx, run.Cmd{Argv: argv, Env: env, Stdin: strings.NewReader(stdin), Dir: "/"})
	return strings.TrimSpace(string(res.Stdout)), err
}

// Shown is a command as a learner types it, with what has to be set for it: it would do something else without.
func Shown(env, argv []string) string {
	return "$ " + strings.Join(append(slices.Clone(env), run.Quote(argv)), " ")
}

// Git runs git in the lab's clone.
func (p *Prompt) Git(ctx context.Context, args ...string) (string, error) {
	return p.Run(ctx, nil, "", append([]string{"git", "-C", p.g.At.Clone()}, args...)...)
}

// Kubectl runs kubectl as the administrator.
func (p *Prompt) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return p.Run(ctx, nil, stdin, append([]string{"kubectl"}, args...)...)
}

// All runs steps one after the other until one fails.
func All(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Fill puts the lab's places into a file of a solution.
func Fill(data []byte, p ground.Places) []byte {
	return []byte(strings.NewReplacer("@WORK@", p.Work, "@GITURL@", p.GitURL).Replace(string(data)))
}

// Write puts a file in its place; a learner's own is kept beside it.
func (p *Prompt) Write(path string, data []byte, mode os.FileMode) error {
	p.Tell(text.Say("write %s", path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := p.keepMine(path, data); err != nil {
		return err
	}
	return renameio.WriteFile(path, data, mode)
}

// keepMine puts a learner's own file aside, once, before another is written in its place.
func (p *Prompt) keepMine(path string, next []byte) error {
	have, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && bytes.Equal(have, next) {
		return nil
	}
	if err != nil {
		return err
	}
	mine := path + ".mine"
	if there, err := ground.Exists(mine); err != nil || there {
		return err
	}
	p.Tell(text.Say("keep your %s as %s", path, mine))
	return renameio.WriteFile(mine, have, 0o644)
}

// Save puts down what was observed.
func (p *Prompt) Save(path string, data []byte) error {
	p.Tell(text.Say("write %s", path))
	return renameio.WriteFile(path, data, 0o644)
}

// SaveJSON puts down what was observed as JSON.
func (p *Prompt) SaveJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return p.Save(path, append(data, '\n'))
}

// CopyKubeconfig makes the kubeconfig for the argocd command's core mode, which looks for Argo CD's settings in the current namespace.
func (p *Prompt) CopyKubeconfig(ctx context.Context) error {
	data, err := os.ReadFile(p.g.At.Kubeconfig)
	if err != nil {
		return err
	}
	path := p.g.At.AdminCopy()
	p.Tell(text.Say("write %s", path))
	if err := renameio.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	_, err = p.Kubectl(ctx, "", "config", "--kubeconfig", path, "set-context", "--current", "--namespace=argocd")
	return err
}
