package cmd_test

import (
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
)

// What a flag takes is one word in capitals, or the words that it may be: a quoted command in its text would be shown as that.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	word := regexp.MustCompile(`^([A-Z]+|[a-z|]+)?$`)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			takes, _ := pflag.UnquoteUsage(flag)
			require.Regexp(t, word, takes, "%s --%s", cmd.CommandPath(), flag.Name)
		})
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(labctl.New(factory.New(cli.OS(), fakeParts())))
}
