// Package calm keeps libraries from talking to the terminal before labctl does: one that comes with Pulumi asks it for its colours when the program is
// loaded, waits five seconds where no answer comes, and swallows what was typed meanwhile.
//
// A package is initialised before others that are ready at the same time and come later in the alphabet, so that this one, which needs only os, is
// before those libraries. They ask nothing of a terminal that is called dumb.
package calm

import "os"

const variable = "TERM"

var kept, had = os.LookupEnv(variable)

func init() { _ = os.Setenv(variable, "dumb") }

// Restore gives the terminal its name back. Whatever is asked of it then, labctl asks.
func Restore() {
	if had {
		_ = os.Setenv(variable, kept)
	} else {
		_ = os.Unsetenv(variable)
	}
}
