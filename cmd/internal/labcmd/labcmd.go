// Package labcmd is the command tree that all lab programs share. They run inside the guest.
package labcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/engine"
	"github.com/cgoa-labs/labctl/labs/proof"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Program is one lab as a program.
type Program struct {
	// Make makes the lab, with its words in a language; it is called by the commands that need it.
	Make func(language string) (labs.Lab, error)
	// ID is the lab's name and LockFile what keeps its runs apart.
	ID, LockFile string
	// Proof is the author's proof.
	Proof func() proof.Catalogue
}

// language is what labctl asked for, or else what the guest's user has, where labs are written in it.
func language(env func(string) string) string {
	for _, name := range []string{"LABCTL_LANGUAGE", "LC_ALL", "LANG"} {
		if code, _, _ := strings.Cut(strings.ToLower(env(name)), "_"); slices.Contains(text.Languages, code) {
			return code
		}
	}
	return "en"
}

// Main runs the program and returns its exit code.
func Main(ctx context.Context, s cli.Streams, args []string, p Program) int {
	return cli.Run(ctx, s, p.root(ui.New(s, "auto")), args, cli.Options{Classify: classify})
}

// classify knows the engine's errors that are the caller's doing.
func classify(err error) (int, bool) {
	if errors.As(err, new(*engine.NoStepError)) {
		return cli.BadUsage, true
	}
	return 0, false
}

func (p Program) root(u *ui.UI) *cobra.Command {
	root := &cobra.Command{
		Use:   "lab-" + p.ID,
		Short: "Lab " + p.ID + ": its steps, their verification, the reference solution and the reset",
	}
	root.AddCommand(p.list(u), p.show(u), p.verify(u), p.solve(u), p.reset(u), p.proof(u), p.version(u))
	root.CompletionOptions.HiddenDefaultCmd = true
	return root
}

// lab makes the lab and refuses a step that it does not have; 0 is no step.
func (p Program) lab(steps ...int) (labs.Lab, error) {
	lab, err := p.Make(language(os.Getenv))
	if err != nil {
		return lab, err
	}
	e := &engine.Engine{Lab: lab}
	for _, step := range steps {
		if step == 0 {
			continue
		}
		if err := e.CheckStep(step); err != nil {
			return lab, err
		}
	}
	return lab, nil
}

func (p Program) engine(u *ui.UI, steps ...int) (*engine.Engine, error) {
	lab, err := p.lab(steps...)
	if err != nil {
		return nil, err
	}
	digest, err := p.digest()
	if err != nil {
		return nil, err
	}
	return &engine.Engine{Lab: lab, LockFile: p.LockFile, Version: cli.Version, Binary: digest, Log: func(line string) { u.Note("%s", line) }}, nil
}

// digest is the sha256 of this program's file: a report says which program judged. Where labctl has put the file, its name says it,
// checked when it was put there; reading it again at each call would take an emulated guest two seconds.
func (p Program) digest() (string, error) {
	if path, err := os.Executable(); err == nil {
		name, ok := strings.CutPrefix(filepath.Base(path), "lab-"+p.ID+"-")
		if sum, err := hex.DecodeString(name); ok && err == nil && len(sum) == sha256.Size {
			return name, nil
		}
	}
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// finish prints a report and turns its state into the exit code. A report is printed even where err says why it is not whole.
func finish(u *ui.UI, format ui.Format, report labs.Report, err error) error {
	if err != nil && report.State == "" {
		return err
	}
	if format == ui.JSON {
		if err := u.JSON(report); err != nil {
			return err
		}
	} else {
		verdict.Report(u.Out, u.Result, verdict.In(language(os.Getenv)), report)
	}
	return cli.Exit(verdict.Code(report.State))
}

func (p Program) list(u *ui.UI) *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the steps", Args: cli.NoArgs, RunE: func(*cobra.Command, []string) error {
		lab, err := p.lab()
		if err != nil {
			return err
		}
		u.Print("%s", u.Result.Bold(lab.Title))
		for i, step := range lab.Steps {
			u.Print("  %d  %s", i+1, step.Title)
		}
		return nil
	}}
}

func (p Program) show(u *ui.UI) *cobra.Command {
	return &cobra.Command{Use: "show STEP", Short: "Show a step's task", Args: cli.OneArg("the number of a step"), RunE: func(cmd *cobra.Command, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil || n == 0 {
			return cli.Misused(cmd, fmt.Sprintf("%q is not the number of a step", args[0]))
		}
		lab, err := p.lab(n)
		if err != nil {
			return err
		}
		step := lab.Steps[n-1]
		u.Print("%s\n\n%s", u.Result.Bold(fmt.Sprintf("Step %d: %s", n, step.Title)), strings.TrimSpace(step.Goal))
		if step.Note != "" {
			u.Print("\n%s", u.Result.Dim(strings.TrimSpace(step.Note)))
		}
		return nil
	}}
}

func (p Program) verify(u *ui.UI) *cobra.Command {
	var step int
	var wait bool
	var timeout time.Duration
	var format ui.Format
	cmd := &cobra.Command{Use: "verify", Short: "Check the work on the steps", Args: cli.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("step") && step < 1 {
			return cli.Misused(cmd, fmt.Sprintf("--step: %d is not the number of a step", step))
		}
		e, err := p.engine(u, step)
		if err != nil {
			return err
		}
		limit := time.Duration(0)
		if wait {
			limit = timeout
		}
		report, err := e.Verify(cmd.Context(), step, limit)
		return finish(u, format, report, err)
	}}
	cmd.Flags().IntVar(&step, "step", 0, "check only step `N`, and what it needs")
	cmd.Flags().BoolVar(&wait, "wait", false, "check again while something is still moving")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "longest wait, a `TIME`")
	ui.AddFormat(cmd, &format)
	return cmd
}

func (p Program) solve(u *ui.UI) *cobra.Command {
	var step, to int
	var format ui.Format
	cmd := &cobra.Command{Use: "solve", Short: "Apply the reference solution", Args: cli.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		for name, n := range map[string]int{"step": step, "to": to} {
			if cmd.Flags().Changed(name) && n < 1 {
				return cli.Misused(cmd, fmt.Sprintf("--%s: %d is not the number of a step", name, n))
			}
		}
		e, err := p.engine(u, step, to)
		if err != nil {
			return err
		}
		first, last := 1, len(e.Lab.Steps)
		if to > 0 {
			last = to
		}
		if step > 0 {
			first, last = step, step
		}
		report, err := e.Solve(cmd.Context(), first, last)
		return finish(u, format, report, err)
	}}
	cmd.Flags().IntVar(&step, "step", 0, "solve only step `N`")
	cmd.Flags().IntVar(&to, "to", 0, "solve steps 1 to `N`")
	cmd.MarkFlagsMutuallyExclusive("step", "to")
	ui.AddFormat(cmd, &format)
	return cmd
}

func (p Program) reset(u *ui.UI) *cobra.Command {
	var format ui.Format
	cmd := &cobra.Command{Use: "reset", Short: "Put the lab back to its start, and prove it", Args: cli.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		e, err := p.engine(u)
		if err != nil {
			return err
		}
		report, err := e.Reset(cmd.Context())
		return finish(u, format, report, err)
	}}
	ui.AddFormat(cmd, &format)
	return cmd
}

// proof tells the author's proof, for `labctl lab test`. It holds the answers, and asks the guest nothing.
func (p Program) proof(u *ui.UI) *cobra.Command {
	return &cobra.Command{Use: "proof", Short: "Print the author's proof as JSON", Hidden: true, Args: cli.NoArgs, RunE: func(*cobra.Command, []string) error {
		lab, err := p.lab()
		if err != nil {
			return err
		}
		return u.JSON(p.Proof().Document(p.ID, len(lab.Steps)))
	}}
}

func (p Program) version(u *ui.UI) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Show the program's version and digest", Args: cli.NoArgs, RunE: func(*cobra.Command, []string) error {
		digest, err := p.digest()
		if err != nil {
			return err
		}
		u.Print("lab-%s %s\nsha256 %s", p.ID, cli.Version, digest)
		return nil
	}}
}
