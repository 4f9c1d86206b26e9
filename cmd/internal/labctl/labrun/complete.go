package labrun

import (
	"fmt"

	"github.com/spf13/cobra"
)

// CompleteLabs lists labs for the shell.
func CompleteLabs(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []cobra.Completion
	for _, lab := range All() {
		all = append(all, cobra.CompletionWithDesc(lab.ID, lab.Title))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// CompleteSteps lists the steps of the lab that the flag lab names.
func CompleteSteps(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	id, err := cmd.Flags().GetString("lab")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	lab, err := Find(id)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var numbers []cobra.Completion
	for n := range lab.Steps {
		numbers = append(numbers, fmt.Sprint(n+1))
	}
	return numbers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
