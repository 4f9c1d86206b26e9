// Package labs is the contract of a lab: its steps, what each must leave behind, how it is solved and how it is put
// back to its start. Everything here runs inside the guest.
package labs

import (
	"context"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Lab is one goal for a learner, in steps.
type Lab struct {
	// ID names the lab on the command line, such as "ci".
	ID string
	// Title is one line; Goal and Why are a paragraph each.
	Title, Goal, Why string
	// References are tips and further reading, one each.
	References []string
	// Language is what the lab speaks, such as "ja"; empty for English.
	Language string
	// Say puts into the lab's language what is said around its checks; nil for English.
	Say func(text.Phrase) string
	// Steps are in order; their numbers are 1, 2, 3 …
	Steps []Step
	// Begin prepares one pass over the steps: it takes away what a pass that was killed left, makes room for scratch work
	// and asks whether the platform answers. Its error means that no question can be asked now. end takes the scratch
	// work away again. Begin may be nil.
	Begin func(ctx context.Context) (end func(), err error)
	// Fresh checks that nothing of the lab is in the guest.
	Fresh []check.Check
	// Reset puts the lab back to its start. It is idempotent, may be killed at any point and touches nothing of another lab.
	Reset func(ctx context.Context, log func(string)) error
}

// Step is one learner-facing unit.
type Step struct {
	// Title is one line; Goal is what has to be true, as the learner is told; Note is what helps to get there.
	Title, Goal, Note string
	// Needs are the numbers of the steps that must be in place for this one to make sense. While one of them has not
	// passed, this step is skipped, not failed.
	Needs []int
	// Checks are asked in order, and the first that does not pass ends the step: later ones may build on it.
	Checks []check.Check
	// Solve applies the reference solution, the way the text teaches it. It is idempotent.
	Solve func(ctx context.Context, log func(string)) error
}

// Schema is the version of the JSON documents that a lab binary prints.
const Schema = "labctl.dev/lab/v1"

// StepReport is the verdict on one step.
type StepReport struct {
	Step   int            `json:"step"`
	Title  string         `json:"title"`
	State  check.State    `json:"state"`
	Checks []check.Result `json:"checks,omitempty"`
	Millis int64          `json:"millis"`
}

// Report is what `verify`, `solve` and `reset` print with -o json.
type Report struct {
	Schema  string `json:"schema"`
	Lab     string `json:"lab"`
	Action  string `json:"action"` // verify, solve, reset
	Version string `json:"version"`
	// Binary is the sha256 of the lab binary that judged, Language what titles, findings and hints are in.
	Binary   string       `json:"binary"`
	Language string       `json:"language,omitempty"`
	State    check.State  `json:"state"`
	Steps    []StepReport `json:"steps,omitempty"`
	// Left names what a reset found still there.
	Left   []check.Result `json:"left,omitempty"`
	Error  string         `json:"error,omitempty"`
	Millis int64          `json:"millis"`
}

// Passed counts the steps that are passed.
func (r Report) Passed() (n int) {
	for _, s := range r.Steps {
		if s.State == check.Passed {
			n++
		}
	}
	return n
}
