// Package verdict writes check results and lab reports for people.
package verdict

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Code is the exit code of a state: only passed is 0; error means that the question could not be asked.
func Code(state check.State) int {
	switch state {
	case check.Passed:
		return cli.OK
	case check.Error:
		return cli.Trouble
	}
	return cli.CheckFailed
}

// Paint colours a state's word.
func Paint(style ui.Style, state check.State) func(string) string {
	switch state {
	case check.Passed:
		return style.Good
	case check.Failed, check.Error:
		return style.Bad
	case check.Pending:
		return style.Warn
	}
	return style.Dim
}

// Checks writes one line for each result, and what was wanted, found and is to be done below those that did not pass.
func Checks(w io.Writer, style ui.Style, results []check.Result) {
	table := &ui.Table{Indent: "  "}
	flush := func() {
		table.Write(w)
		table = &ui.Table{Indent: "  "}
	}
	for _, r := range results {
		cells := []ui.Cell{{Text: fmt.Sprintf("%-7s", r.State), Paint: Paint(style, r.State)}, {Text: title(r)}}
		if r.State == check.Passed && r.Got != "" {
			cells[1].Text += ": " + oneLine(r.Got)
		}
		table.Cells(cells...)
		if r.State != check.Passed {
			flush()
			Why(w, style, "           ", r)
		}
	}
	flush()
}

func title(r check.Result) string {
	if r.Title != "" {
		return r.Title
	}
	return r.ID
}

// Why writes what a check wanted and got, and its hint, each line behind indent.
func Why(w io.Writer, style ui.Style, indent string, r check.Result) {
	write := func(label, text string, paint func(string) string) {
		if text == "" {
			return
		}
		for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
			if i > 0 {
				label = ""
			}
			_, _ = fmt.Fprintf(w, "%s%s %s\n", indent, style.Dim(fmt.Sprintf("%-6s", label)), paint(line))
		}
	}
	plain := func(s string) string { return s }
	got := "got"
	switch r.State {
	case check.Error:
		got = "error"
	case check.Skipped:
		got = "why"
	}
	write("wanted", r.Wanted, plain)
	write(got, r.Got, plain)
	write("hint", r.Hint, style.Bold)
}

// Report writes a lab report: every step with its state, and why for those that are the next to look at.
func Report(w io.Writer, style ui.Style, r labs.Report) {
	table := &ui.Table{Indent: "  "}
	flush := func() {
		table.Write(w)
		table = &ui.Table{Indent: "  "}
	}
	passed := 0
	for _, s := range r.Steps {
		took := ""
		if s.State != check.Skipped {
			took = ui.Took(time.Duration(s.Millis) * time.Millisecond)
		}
		table.Cells(ui.Cell{Text: fmt.Sprintf("%2d", s.Step)}, ui.Cell{Text: fmt.Sprintf("%-7s", s.State), Paint: Paint(style, s.State)},
			ui.Cell{Text: fmt.Sprintf("%6s", took), Paint: style.Dim}, ui.Cell{Text: s.Title})
		switch s.State {
		case check.Passed:
			passed++
		case check.Skipped:
		default:
			flush()
			for _, c := range s.Checks {
				if c.State == check.Passed {
					continue
				}
				_, _ = fmt.Fprintf(w, "        %s %s\n", Paint(style, c.State)("·"), title(c))
				Why(w, style, "          ", c)
			}
		}
	}
	flush()
	if len(r.Left) > 0 {
		_, _ = fmt.Fprintln(w, "still there after the reset:")
		Checks(w, style, r.Left)
	}
	if r.Error != "" {
		_, _ = fmt.Fprintf(w, "%s %s\n", style.Bad("error:"), r.Error)
	}
	_, _ = fmt.Fprintln(w, summary(r, passed))
}

func summary(r labs.Report, passed int) string {
	took := ui.Took(time.Duration(r.Millis) * time.Millisecond)
	switch {
	case r.Action == "reset" && r.State == check.Passed:
		return fmt.Sprintf("lab %s is back at its start (%s)", r.Lab, took)
	case r.Action == "reset":
		return fmt.Sprintf("lab %s is not back at its start: %s (%s)", r.Lab, r.State, took)
	case len(r.Steps) == 0:
		return fmt.Sprintf("lab %s: %s (%s)", r.Lab, r.State, took)
	case len(r.Steps) == 1:
		return fmt.Sprintf("lab %s, step %d: %s (%s)", r.Lab, r.Steps[0].Step, r.State, took)
	}
	s := fmt.Sprintf("lab %s: %d of %d steps passed (%s)", r.Lab, passed, len(r.Steps), took)
	for _, step := range r.Steps {
		if step.State == check.Error {
			return s + fmt.Sprintf("; step %d could not be checked, which says nothing about the work", step.Step)
		}
	}
	for _, step := range r.Steps {
		if step.State != check.Passed {
			return s + fmt.Sprintf("; next: step %d", step.Step)
		}
	}
	return s
}

// oneLine keeps a result on its row.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
