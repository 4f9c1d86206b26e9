package factory

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/config/strict"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Pick finds the instance of this name. Without a name it is the only instance there is; none or several are a *cli.UsageError.
func (f *Factory) Pick(ctx context.Context, name string) (provision.Status, error) {
	driver, err := f.Driver()
	if err != nil {
		return provision.Status{}, err
	}
	if name != "" {
		if err := layout.CheckName("instance", name); err != nil {
			return provision.Status{}, err
		}
	}
	all, err := driver.List(ctx)
	if err != nil {
		return provision.Status{}, fmt.Errorf("list the instances: %w", err)
	}
	var names []string
	for _, st := range all {
		if st.Name == name {
			return st, nil
		}
		names = append(names, st.Name)
	}
	switch {
	case name != "" && strict.Nearest(name, names) != "":
		return provision.Status{}, &cli.UsageError{Msg: (&provision.NotFoundError{Name: name}).Error(), Fix: "did you mean " + strict.Nearest(name, names) + "?"}
	case name != "":
		return provision.Status{}, &provision.NotFoundError{Name: name}
	case len(all) == 0:
		return provision.Status{}, &cli.UsageError{Msg: "there is no instance yet", Fix: "run `labctl up` to make one"}
	case len(all) > 1:
		return provision.Status{}, &cli.UsageError{
			Msg: fmt.Sprintf("there are %d instances: %s", len(all), strings.Join(names, ", ")),
			Fix: "say which one, such as `-i " + names[0] + "`"}
	}
	return all[0], nil
}

// UnreachableError says that a running instance does not answer by SSH.
type UnreachableError struct {
	Name string
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("instance %q runs but cannot be reached: %v", e.Name, e.Err)
}
func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *UnreachableError) Hint() string {
	if hint := cli.Hint(e.Err); hint != "" {
		return hint
	}
	return fmt.Sprintf("`labctl doctor --guest %s` looks closer; `labctl stop %s` and `labctl start %s` boot it again", e.Name, e.Name, e.Name)
}

// Connect opens a connection to a running instance.
func (f *Factory) Connect(ctx context.Context, st provision.Status) (Guest, error) {
	ep, err := f.Endpoint(ctx, st)
	if err != nil {
		return nil, err
	}
	guest, err := f.Parts.Dial(ctx, ep)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &UnreachableError{Name: st.Name, Err: err}
	}
	return &logged{Guest: guest, f: f, name: st.Name}, nil
}

// Endpoint is how to reach an instance, which must be running.
func (f *Factory) Endpoint(ctx context.Context, st provision.Status) (provision.Endpoint, error) {
	switch st.Power {
	case provision.Broken:
		return provision.Endpoint{}, &provision.BrokenError{Name: st.Name, Reason: st.Reason}
	case provision.Absent:
		return provision.Endpoint{}, &provision.NotFoundError{Name: st.Name}
	case provision.Stopped:
		return provision.Endpoint{}, &provision.NotRunningError{Name: st.Name}
	}
	driver, err := f.Driver()
	if err != nil {
		return provision.Endpoint{}, err
	}
	return driver.Endpoint(ctx, st.Name)
}

// logged writes every guest command to the debug log.
type logged struct {
	Guest
	f    *Factory
	name string
}

func (g *logged) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	start := time.Now()
	res, err := g.Guest.Run(ctx, cmd)
	log, _ := g.f.Log()
	log.Debug("guest", "instance", g.name, "argv", cmd.Argv, "code", res.ExitCode, "took", time.Since(start).Round(time.Millisecond), "error", err)
	return res, err
}

// InstanceFlag adds -i to a command that needs an instance.
func (f *Factory) InstanceFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVarP(name, "instance", "i", "", "instance `NAME`; implied where there is only one")
	_ = cmd.RegisterFlagCompletionFunc("instance", f.CompleteInstances)
}

// CompleteInstances lists instances for the shell.
func (f *Factory) CompleteInstances(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if err := f.Load(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	driver, err := f.Driver()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := driver.List(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, st := range all {
		names = append(names, cobra.CompletionWithDesc(st.Name, string(st.Power)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteOneInstance is CompleteInstances for the first argument only.
func (f *Factory) CompleteOneInstance(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.CompleteInstances(cmd, args, word)
}

// CompleteOneImage lists golden images for the first argument.
func (f *Factory) CompleteOneImage(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || f.Load(cmd) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := f.Images().List(cmd.Context())
	var names []cobra.Completion
	for _, img := range all {
		names = append(names, cobra.CompletionWithDesc(img.Metadata.Name, string(img.Metadata.Source)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Confirm asks before something is lost. Without a terminal and without --yes it refuses.
func (f *Factory) Confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	if !f.CanAsk() {
		return &cli.UsageError{Msg: "this needs a yes, and there is no terminal to ask on", Fix: "add --yes if you are sure"}
	}
	ok, err := f.UI().Confirm(ctx, question)
	if err != nil {
		return err
	}
	if !ok {
		f.UI().Note("nothing was changed")
		return cli.Exit(cli.BadUsage)
	}
	return nil
}

// Shape says in a few words what a running instance is.
func Shape(st provision.Status) string {
	s := fmt.Sprintf("%d CPUs, %s memory, SSH on 127.0.0.1:%d", st.Spec.CPUs, ui.Bytes(int64(st.Spec.MemoryMiB)<<20), st.Spec.SSHPort)
	switch st.Accelerator {
	case "tcg":
		s += ", emulated, which is slower than KVM"
	case "":
	default:
		s += ", " + st.Accelerator
	}
	return s
}

// Memory is an instance's memory in a few words, with what it takes of the host where that is known.
func Memory(spec provision.Spec, usedMiB int) string {
	all := ui.Bytes(int64(spec.MemoryMiB) << 20)
	if usedMiB == 0 {
		return all
	}
	return ui.Bytes(int64(usedMiB)<<20) + " of " + all
}
