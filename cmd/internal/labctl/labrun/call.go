package labrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Guest is what a call needs of a connection.
type Guest interface {
	run.Runner
	Upload(ctx context.Context, local, remote string, mode fs.FileMode) error
}

// Call is one thing to ask of a lab's program.
type Call struct {
	Action string // verify, solve, reset
	// Step and To choose steps; 0 means all.
	Step, To int
	// Wait lets the program ask again, for that long, while something in the guest is still moving.
	Wait time.Duration
	// Language of texts; empty leaves it to the guest.
	Language string
	// Log receives what the program says while it works.
	Log io.Writer
	// Timeout bounds the call, without pushing the program and without Wait.
	Timeout time.Duration
}

func (c Call) argv() []string {
	argv := []string{c.Action, "-o", "json"}
	if c.Step > 0 {
		argv = append(argv, "--step", strconv.Itoa(c.Step))
	}
	if c.To > 0 {
		argv = append(argv, "--to", strconv.Itoa(c.To))
	}
	if c.Wait > 0 {
		argv = append(argv, "--wait", "--timeout", c.Wait.String())
	}
	return argv
}

// notThere is script's exit code when the program has to be pushed first. No lab program uses it.
const notThere = 90

// script runs the program if the guest has it, in the same session that finds out. The link for people and the removal of
// older programs are made only when they are due and are no reason to fail.
const script = `bin=$1 link=$2 old=$3
shift 3
[ -x "$bin" ] || exit 90
if [ "$(readlink "$link")" != "$bin" ]; then
  ln -sfn "$bin" "$link" || :
  for f in "$old"*; do [ "$f" = "$bin" ] || rm -f "$f" || :; done
fi 2>/dev/null
exec "$bin" "$@"
`

// Error says that a lab's program could not be run or gave no verdict; it says nothing about the learner's work.
type Error struct {
	Lab, Action string
	Err         error
}

func (e *Error) Error() string { return fmt.Sprintf("%s lab %s: %v", e.Action, e.Lab, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// TimeoutError says that a lab's program took longer than it may.
type TimeoutError struct {
	Action string
	After  time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("no answer within %s", e.After)
}

// Hint is the next action.
func (e *TimeoutError) Hint() string {
	setting := "timeouts.solve" // reset's as well
	if e.Action == "verify" {
		setting = "timeouts.verify"
	}
	return "the guest may be busy: try again, or allow more with the setting " + setting
}

// Run asks the lab's program and returns its report. The program is pushed first where the guest does not have this very
// one; else it is one round trip. progress says what is going on and may be nil.
func (p Program) Run(ctx context.Context, guest Guest, c Call, progress func(string)) (labs.Report, error) {
	if progress == nil {
		progress = func(string) {}
	}
	res, err := p.call(ctx, guest, c)
	if code, _ := run.ExitCode(err); code == notThere {
		progress("push lab-" + p.Lab)
		if err := p.push(ctx, guest); err != nil {
			return labs.Report{}, p.failed(ctx, c, err)
		}
		progress("")
		res, err = p.call(ctx, guest, c)
	}
	var exit *run.ExitError
	var timeout *TimeoutError
	exited := errors.As(err, &exit)
	switch {
	case err == nil, exited:
	case errors.As(err, &timeout):
		return labs.Report{}, p.failed(ctx, c, timeout) // without the command, which says nothing to people
	default:
		return labs.Report{}, p.failed(ctx, c, err)
	}
	report, err := parse(res.Stdout, p, c)
	switch {
	case err != nil && exited && exit.ExitCode != 1:
		return report, p.failed(ctx, c, silence(p, exit))
	case err != nil:
		return report, p.failed(ctx, c, err)
	}
	return report, nil
}

// silence says that the program ended without a verdict, and with what words.
func silence(p Program, exit *run.ExitError) error {
	s := fmt.Sprintf("lab-%s ended with exit code %d and no verdict", p.Lab, exit.ExitCode)
	if exit.Tail != "" {
		s += ": " + exit.Tail
	}
	return errors.New(s)
}

// pushTime bounds a push; an emulated guest takes a few megabytes a second.
const pushTime = 10 * time.Minute

func (p Program) push(ctx context.Context, guest Guest) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pushTime, fmt.Errorf("the program did not reach the guest within %s", pushTime))
	defer cancel()
	return guest.Upload(ctx, p.Path, p.remote(), 0o755)
}

func (p Program) failed(ctx context.Context, c Call, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &Error{Lab: p.Lab, Action: c.Action, Err: err}
}

func (p Program) call(ctx context.Context, guest Guest, c Call) (run.Result, error) {
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		limit := c.Timeout + c.Wait
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &TimeoutError{Action: c.Action, After: limit})
		defer cancel()
	}
	cmd := run.Cmd{
		Argv:   append([]string{"sh", "-s", "--", p.remote(), p.link(), p.family()}, c.argv()...),
		Stdin:  strings.NewReader(script),
		Stderr: c.Log,
	}
	if c.Language != "" {
		cmd.Env = append(cmd.Env, "LABCTL_LANGUAGE="+c.Language)
	}
	return guest.Run(ctx, cmd)
}

// parse reads the report and insists that it is this program's answer to this call.
func parse(text []byte, p Program, c Call) (labs.Report, error) {
	var report labs.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return labs.Report{}, fmt.Errorf("its answer cannot be read (%w): %s", err, run.Tail(text, 200))
	}
	for _, field := range []struct{ name, got, want string }{
		{"schema", report.Schema, labs.Schema},
		{"lab", report.Lab, p.Lab},
		{"action", report.Action, c.Action},
	} {
		if field.got != field.want {
			return labs.Report{}, fmt.Errorf("its answer is of another %s: %q instead of %q", field.name, field.got, field.want)
		}
	}
	if report.Binary != "" && !strings.EqualFold(report.Binary, p.SHA256) {
		return labs.Report{}, fmt.Errorf("the answer came from another program: sha256 %s instead of %s", report.Binary, p.SHA256)
	}
	// The guest is the learner's, who may put another program there: what goes into lists must at least be of the right kind.
	switch {
	case report.State == "":
		return labs.Report{}, fmt.Errorf("its answer has no state")
	case !report.State.Known():
		return labs.Report{}, fmt.Errorf("its answer has a state that is none: %q", report.State)
	}
	seen := map[int]bool{}
	for _, s := range report.Steps {
		if !s.State.Known() || s.Step < 1 || seen[s.Step] {
			return labs.Report{}, fmt.Errorf("its answer on step %d cannot be: %q", s.Step, s.State)
		}
		seen[s.Step] = true
	}
	return report, nil
}
