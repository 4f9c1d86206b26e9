package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes of every program here.
const (
	OK = 0
	// CheckFailed means that the question was asked and the answer is no.
	CheckFailed = 1
	// BadUsage means that the command line or a setting is wrong; nothing was done.
	BadUsage = 2
	// Trouble means that the question could not be asked or the work not be done.
	Trouble = 3
	// Interrupted means that Ctrl-C or a signal ended it.
	Interrupted = 130
)

// UsageError says that a command cannot be run as it was given. Nothing was done.
type UsageError struct {
	Msg string
	// Fix is the next action.
	Fix string
}

func (e *UsageError) Error() string { return e.Msg }

// Hint is the next action.
func (e *UsageError) Hint() string { return e.Fix }

// ExitError ends the program with Code and prints nothing: the result has been printed already.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Exit is an ExitError, or nil for code 0.
func Exit(code int) error {
	if code == OK {
		return nil
	}
	return &ExitError{Code: code}
}

// PanicError says that the program itself broke.
type PanicError struct {
	Value any
	// Log is the file that has the details, empty where there is none.
	Log string
}

func (e *PanicError) Error() string { return fmt.Sprintf("a fault in the program: %v", e.Value) }

// Hint says where the details are.
func (e *PanicError) Hint() string {
	if e.Log == "" {
		return "please report it, with the command that you ran"
	}
	return "please report it, with the end of " + e.Log
}

// InterruptError says that a signal asked the program to stop. It is the cause of the program's ctx.
type InterruptError struct{ Signal string }

func (e *InterruptError) Error() string { return "stopped by " + e.Signal }

// Hint is the next action.
func (e *InterruptError) Hint() string { return "the same command again goes on" }

// code maps an error to an exit code. classify knows the types of the program's own layers.
func code(err error, classify func(error) (int, bool)) int {
	var exit *ExitError
	var usage *UsageError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &usage):
		return BadUsage
	}
	if classify != nil {
		if n, ok := classify(err); ok {
			return n
		}
	}
	return Trouble
}

// PrintError writes err as one sentence, with its hint below.
func PrintError(w io.Writer, program string, err error) {
	_, _ = fmt.Fprintf(w, "%s: %s\n", program, strings.TrimRight(err.Error(), "\n"))
	if hint := Hint(err); hint != "" {
		_, _ = fmt.Fprintf(w, "  hint: %s\n", hint)
	}
}

// Hint is the first hint in err's chain, or "".
func Hint(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}
