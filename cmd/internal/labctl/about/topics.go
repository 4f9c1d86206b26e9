package about

import "github.com/spf13/cobra"

// NewExitCodes is the help topic exit-codes.
func NewExitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What labctl's exit codes mean",
		Long: `Every command of labctl, and every lab program, ends with one of these codes:

  0    all went well; with verify, solve, reset and doctor: all passed
  1    a check failed, is pending or was skipped: the question was asked and the answer is no
  2    the command line or a setting is wrong, or you did not say yes; nothing was done
  3    it could not be done or not be checked: no QEMU, too little memory, a guest that does not answer;
       this says nothing about the work in the guest
  130  Ctrl-C or a signal stopped it; the same command again goes on

` + "`labctl ssh`" + ` with a command ends with that command's code instead.
Results are on standard output, everything else is on standard error.`,
	}
}
