// Package labctl is the program labctl: its command tree over parts that the caller chooses.
package labctl

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cgoa-labs/labctl/cmd/internal/calm"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/about"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/author"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/bundle"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/doctor"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/guide"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/lab"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/session"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/up"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
)

// Run runs labctl on args and returns its exit code.
func Run(ctx context.Context, s cli.Streams, args []string, parts factory.Parts) int {
	calm.Restore()
	f := factory.New(s, parts)
	defer func() { _ = f.Close() }()
	return cli.Run(ctx, s, New(f), args, cli.Options{Classify: factory.Classify, Log: f.Log})
}

// New is the command tree.
func New(f *factory.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:   "labctl",
		Short: "GitOps labs, each learner in a VM of their own",
		Long: `labctl gives each learner a VM with k3s and Argo CD, puts labs into it, and judges the work step by step inside the guest.

  labctl up                     make an instance called learner, with the labs in it
  labctl ssh                    log in and work
  labctl verify --lab ci        check the work`,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if isAboutCommands(cmd) {
				return nil // help must work whatever the settings are
			}
			if err := nothingEmpty(cmd, args); err != nil {
				return err
			}
			if err := f.Load(cmd); err != nil {
				return err
			}
			if err := supported(runtime.GOOS, runtime.GOARCH); err != nil && cmd.Name() != "version" {
				return err
			}
			if !slices.Contains([]string{"version", "config", "show"}, cmd.Name()) {
				if err := f.CheckState(); err != nil {
					return err
				}
			}
			log, _ := f.Log()
			log.Debug("begin", "command", cmd.CommandPath(), "args", args)
			return nil
		},
	}
	f.RootFlags(root)
	const instances, labs, images, other = "instances", "labs", "images", "other"
	root.AddGroup(
		&cobra.Group{ID: instances, Title: "Instances:"}, &cobra.Group{ID: labs, Title: "Labs:"},
		&cobra.Group{ID: images, Title: "Images:"}, &cobra.Group{ID: other, Title: "Other:"},
	)
	add := func(id string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = id
			root.AddCommand(cmd)
		}
	}
	add(instances, up.New(f, nil), session.NewStatus(f), session.NewSSH(f), session.NewStop(f), session.NewStart(f), session.NewDown(f), session.NewGC(f), up.NewPool(f), up.NewCards(f))
	add(labs, lab.New(f, author.NewNew(f), author.NewTest(f)), guide.New(f), guide.NewHint(f), lab.NewVerify(f), lab.NewSolve(f), lab.NewReset(f, anew(f)), lab.NewReport(f))
	add(images, image.New(f), bundle.New(f))
	add(other, doctor.New(f), about.NewConfig(f), about.NewVersion(f))
	root.AddCommand(about.NewExitCodes())
	root.SetHelpCommandGroupID(other)
	root.SetCompletionCommandGroupID(other)
	return root
}

func anew(f *factory.Factory) lab.Anew {
	return func(ctx context.Context, instance string, keep, yes bool, format ui.Format) error {
		return up.Anew(ctx, f, up.AnewOptions{Instance: instance, Keep: keep, Yes: yes, Format: format})
	}
}

// nothingEmpty refuses what a script passes on from a variable that is not set: an empty name must not mean "the only one".
func nothingEmpty(cmd *cobra.Command, args []string) error {
	const fix = "is a variable that you use there not set?"
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash] // what follows is another program's
	}
	if slices.Contains(args, "") {
		return &cli.UsageError{Msg: fmt.Sprintf("`%s` was given an empty argument", cmd.CommandPath()), Fix: fix}
	}
	var err error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Value.String() == "" {
			err = &cli.UsageError{Msg: "--" + flag.Name + " was given an empty value", Fix: fix}
		}
	})
	return err
}

// PlatformError says that labctl cannot work here at all.
type PlatformError struct{ Platform string }

func (e *PlatformError) Error() string { return "labctl does not run on " + e.Platform }

// Hint is the next action.
func (e *PlatformError) Hint() string { return "use a Linux machine with an x86-64 processor" }

func supported(system, processor string) error {
	if system == "linux" && processor == "amd64" {
		return nil
	}
	return &PlatformError{Platform: system + "/" + processor}
}

// isAboutCommands reports whether cmd only tells of the command tree itself.
func isAboutCommands(cmd *cobra.Command) bool {
	for ; cmd != nil; cmd = cmd.Parent() {
		switch cmd.Name() {
		case "help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return true
		}
	}
	return false
}
