package factory

import (
	"fmt"
	"strings"

	"github.com/cgoa-labs/labctl/labs/check"
)

// PreflightError says what stands in the way, before any work was done.
type PreflightError struct {
	// Doing is the work that was not begun.
	Doing  string
	Failed []check.Result
}

func (e *PreflightError) Error() string {
	if len(e.Failed) == 1 {
		return "cannot " + e.Doing + ": " + reason(e.Failed[0])
	}
	lines := []string{"cannot " + e.Doing + ":"}
	for _, r := range e.Failed {
		line := "  " + reason(r)
		if r.Hint != "" {
			line += " (" + r.Hint + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Hint is the next action where there is one obstacle.
func (e *PreflightError) Hint() string {
	if len(e.Failed) == 1 {
		return e.Failed[0].Hint
	}
	return ""
}

func reason(r check.Result) string {
	s := r.Title
	if s == "" {
		s = r.ID
	}
	switch {
	case r.Wanted != "" && r.Got != "":
		return fmt.Sprintf("%s: %s needed, but %s", s, r.Wanted, r.Got)
	case r.Got != "":
		return r.Got // a whole sentence, where nothing was wanted beside it
	}
	return fmt.Sprintf("%s: %s", s, r.State)
}

// Preflight is nil, or a *PreflightError with the results that stand in the way. A question that could not be asked does
// not: the work will tell.
func Preflight(doing string, results []check.Result) error {
	var failed []check.Result
	for _, r := range results {
		if r.State == check.Failed {
			failed = append(failed, r)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &PreflightError{Doing: doing, Failed: failed}
}
