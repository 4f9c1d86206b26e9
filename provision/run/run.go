// Package run is the one way to run a command: on this machine, in a guest over SSH, or inside the guest itself.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Cmd is one command. The zero value of every field but Argv is usable.
type Cmd struct {
	// Argv is the program and its arguments, never a shell line.
	Argv []string
	// Env is added to the runner's own environment, as KEY=VALUE.
	Env []string
	// Dir is the working folder; empty means the runner's default.
	Dir string
	// Stdin is read to its end; nil means an empty input.
	Stdin io.Reader
	// Stdout and Stderr receive the output as it comes, beside the copy kept in Result.
	Stdout, Stderr io.Writer
}

// Result is what a finished command left. Output is kept in full up to MaxOutput bytes a stream, the newest bytes winning.
type Result struct {
	Stdout, Stderr []byte
	// ExitCode is SignalBase plus the signal's number where a signal ended the command.
	ExitCode int
	Took     time.Duration
}

// SignalBase is what shells add to a signal's number to make an exit code.
const SignalBase = 128

// MaxOutput is how many bytes of each stream a Result keeps.
const MaxOutput = 8 << 20

// Runner runs a command and waits for it. It returns *ExitError when the command ran and ended with a code other than 0,
// another error when it could not be run or its outcome is unknown, and ctx's error (wrapped) when ctx ended first; the
// command is then ended too. Implementations are safe for concurrent use.
type Runner interface {
	Run(ctx context.Context, cmd Cmd) (Result, error)
}

// ExitError says that a command ran and failed.
type ExitError struct {
	Argv     []string
	ExitCode int
	// Tail is the end of what it printed, standard error first choice.
	Tail string
	// Cause is set where the code alone does not tell, such as a signal.
	Cause error
}

func (e *ExitError) Error() string {
	s := fmt.Sprintf("%s: exit code %d", Quote(e.Argv), e.ExitCode)
	if e.Cause != nil {
		s += " (" + e.Cause.Error() + ")"
	}
	if e.Tail != "" {
		s += ": " + e.Tail
	}
	return s
}

func (e *ExitError) Unwrap() error { return e.Cause }

// ExitCode is the exit code in err's chain, and whether there is one.
func ExitCode(err error) (int, bool) {
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode, true
	}
	return 0, false
}

// Quote renders argv as one POSIX shell line that a shell splits back into the same words.
func Quote(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = quoteWord(word)
	}
	return strings.Join(words, " ")
}

func quoteWord(word string) string {
	if word == "" {
		return "''"
	}
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if strings.IndexFunc(word, func(r rune) bool { return !safe(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Tail is the last lines of output, at most max bytes, on one line for use in an error.
func Tail(output []byte, max int) string {
	text := strings.TrimSpace(string(output))
	if len(text) > max {
		text = "…" + strings.ToValidUTF8(text[len(text)-max:], "")
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " | ")
}
