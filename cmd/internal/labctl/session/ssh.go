package session

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// NewSSH is the command ssh.
func NewSSH(f *factory.Factory) *cobra.Command {
	return &cobra.Command{
		Use: "ssh [NAME] [-- COMMAND...]",

		DisableFlagsInUseLine: true,

		Short: "Log in to an instance, or run a command in it",
		Long: `Log in to an instance as root, or run a command in it. The guest's host key is pinned; your own SSH settings and
known_hosts are neither read nor written.

The words of COMMAND arrive as they are; a single word is read by the guest's shell, so that pipes work. The exit code is the
command's. On a terminal the command gets one too.`,
		Example: `  labctl ssh
  labctl ssh alice -- kubectl get applications -A
  labctl ssh alice -- 'kubectl get pods -A | grep -v Running'
  labctl ssh alice -- tee /root/notes.txt < notes.txt`,
		ValidArgsFunction: f.CompleteOneInstance,
		Args: func(cmd *cobra.Command, args []string) error {
			names, _ := split(cmd, args)
			if len(names) > 1 {
				return &cli.UsageError{Msg: fmt.Sprintf("`%s` takes one instance, but got also %q", cmd.CommandPath(), names[1]),
					Fix: "put -- before the command: `labctl ssh " + names[0] + " -- " + run.Quote(names[1:]) + "`"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			names, command := split(cmd, args)
			name := ""
			if len(names) == 1 {
				name = names[0]
			}
			st, err := f.Pick(cmd.Context(), name)
			if err != nil {
				return err
			}
			return login(cmd.Context(), f, st, command)
		},
	}
}

// split parts what is before -- from what is behind it.
func split(cmd *cobra.Command, args []string) (names, command []string) {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

func login(ctx context.Context, f *factory.Factory, st provision.Status, command []string) error {
	if len(command) == 1 {
		command = []string{"sh", "-c", command[0]}
	}
	tty := f.InTTY && f.OutTTY
	if tty {
		// The system's own client knows every terminal; ours is for where there is none.
		if path, err := exec.LookPath("ssh"); err == nil {
			return system(ctx, f, st, path, command)
		}
	}
	guest, err := f.Connect(ctx, st)
	if err != nil {
		return err
	}
	defer func() { _ = guest.Close() }()
	if len(command) == 0 {
		return pass(ctx, guest.Shell(ctx, f.In, f.Out, f.Err, tty))
	}
	cmd := run.Cmd{Argv: command, Stdout: f.Out, Stderr: f.Err}
	if !f.InTTY {
		cmd.Stdin = f.In
	}
	_, err = guest.Run(ctx, cmd)
	return pass(ctx, err)
}

// pass hands on the exit code of what ran in the guest; any other error is labctl's own.
func pass(ctx context.Context, err error) error {
	if code, ok := run.ExitCode(err); ok && ctx.Err() == nil {
		return cli.Exit(code)
	}
	return err
}

// system runs the system's ssh client on this terminal.
func system(ctx context.Context, f *factory.Factory, st provision.Status, path string, command []string) error {
	ep, err := f.Endpoint(ctx, st)
	if err != nil {
		return err
	}
	argv, err := f.Parts.OpenSSH(ep, f.Home().Instance(st.Name).KnownHosts(), true, command)
	if err != nil {
		return err
	}
	// Not ended with ctx: the keys that stop a command belong to the guest while somebody is logged in.
	c := exec.Command(path, argv[1:]...)
	c.Stdin, c.Stdout, c.Stderr = f.In, f.Out, f.Err
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		// 255 is the client's own; a shell that somebody was in may have ended with it as well.
		if code := exit.ExitCode(); code == 255 && len(command) == 0 {
			return &factory.UnreachableError{Name: st.Name, Err: err}
		} else if code >= 0 {
			return cli.Exit(code)
		}
		return fmt.Errorf("ssh ended: %w", err)
	}
	if err != nil {
		return fmt.Errorf("run ssh: %w", err)
	}
	return nil
}
