package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// prepare makes a command tree report what is wrong with a command line as *UsageError, in one voice.
func prepare(root *cobra.Command) {
	root.InitDefaultCompletionCmd() // else cobra adds it later, with its own manners
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	help := helpCommand(root)
	if groups := root.Groups(); len(groups) > 0 {
		help.GroupID = groups[len(groups)-1].ID
	}
	root.SetHelpCommand(help)
	walk(root, func(cmd *cobra.Command) {
		cmd.SuggestionsMinimumDistance = 2
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if err := check(cmd, args); err != nil {
					return asUsage(cmd, err)
				}
				return nil
			}
		}
		if cmd.HasAvailableSubCommands() && !cmd.Runnable() {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				return unknown(cmd, args[0])
			}
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			cmd.DisableFlagsInUseLine = true
		}
	})
}

// flagError says what is wrong with a flag in this program's own words where pflag's are a parser's.
func flagError(cmd *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return Misused(cmd, err.Error())
	}
	want := map[string]string{
		"int":      "a whole number",
		"duration": "a time such as 90s or 10m",
		"bool":     "true or false",
	}[bad.GetFlag().Value.Type()]
	if want == "" {
		// The flag's own type says what it wants.
		return Misused(cmd, fmt.Sprintf("--%s: %v", bad.GetFlag().Name, bad.Unwrap()))
	}
	return Misused(cmd, fmt.Sprintf("--%s: %q is not %s", bad.GetFlag().Name, bad.GetValue(), want))
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

// Misused is a *UsageError that points to the command's help.
func Misused(cmd *cobra.Command, msg string) error {
	return &UsageError{Msg: msg, Fix: fmt.Sprintf("`%s --help` shows how it is used", cmd.CommandPath())}
}

func asUsage(cmd *cobra.Command, err error) error {
	if Hint(err) != "" {
		return err
	}
	return Misused(cmd, err.Error())
}

func unknown(cmd *cobra.Command, word string) error {
	fix := fmt.Sprintf("`%s --help` lists the commands", cmd.CommandPath())
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		fix = "did you mean `" + cmd.CommandPath() + " " + strings.Join(near, "` or `"+cmd.CommandPath()+" ") + "`?"
	}
	return &UsageError{Msg: fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+word), Fix: fix}
}

// NoArgs refuses arguments, saying which.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Misused(cmd, fmt.Sprintf("`%s` takes no arguments, but got %q", cmd.CommandPath(), args[0]))
	}
	return nil
}

// OneArg wants exactly one argument; what names it.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return Misused(cmd, fmt.Sprintf("`%s` needs %s", cmd.CommandPath(), what))
		case 1:
			return nil
		}
		return Misused(cmd, fmt.Sprintf("`%s` takes only %s, but got also %q", cmd.CommandPath(), what, args[1]))
	}
}

// OptionalArg wants one argument at most; what names it.
func OptionalArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return OneArg(what)(cmd, args)
	}
}

// helpCommand is cobra's, except that an unknown topic is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command or topic",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			cmd, _, err := root.Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []cobra.Completion
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				word := strings.Join(args, " ")
				return &UsageError{Msg: fmt.Sprintf("there is no help on %q", word), Fix: fmt.Sprintf("`%s help` lists commands and topics", root.Name())}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
