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
func Checks(w io.Writer, style ui.Style, words Words, results []check.Result) {
	table := &ui.Table{Indent: "  "}
	flush := func() {
		table.Write(w)
		table = &ui.Table{Indent: "  "}
	}
	for _, r := range results {
		cells := []ui.Cell{{Text: pad(words.State(r.State), 7), Paint: Paint(style, r.State)}, {Text: title(r)}}
		if r.State == check.Passed && r.Got != "" {
			cells[1].Text += ": " + oneLine(r.Got)
		}
		table.Cells(cells...)
		if r.State != check.Passed {
			flush()
			Why(w, style, words, "           ", r)
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
func Why(w io.Writer, style ui.Style, words Words, indent string, r check.Result) {
	write := func(label, text string, paint func(string) string) {
		if text == "" {
			return
		}
		for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
			if i > 0 {
				label = ""
			}
			_, _ = fmt.Fprintf(w, "%s%s %s\n", indent, style.Dim(pad(label, 6)), paint(line))
		}
	}
	plain := func(s string) string { return s }
	got := words.Got
	switch r.State {
	case check.Error:
		got = words.Trouble
	case check.Skipped:
		got = words.Why
	}
	write(words.Wanted, r.Wanted, plain)
	write(got, r.Got, plain)
	write(words.Hint, r.Hint, style.Bold)
}

// Report writes a lab report: every step with its state, and why for those that are the next to look at.
func Report(w io.Writer, style ui.Style, words Words, r labs.Report) {
	table := &ui.Table{Indent: "  "}
	flush := func() {
		table.Write(w)
		table = &ui.Table{Indent: "  "}
	}
	for _, s := range r.Steps {
		took := ""
		if s.State != check.Skipped {
			took = ui.Took(time.Duration(s.Millis) * time.Millisecond)
		}
		table.Cells(ui.Cell{Text: fmt.Sprintf("%2d", s.Step)}, ui.Cell{Text: pad(words.State(s.State), 7), Paint: Paint(style, s.State)},
			ui.Cell{Text: fmt.Sprintf("%6s", took), Paint: style.Dim}, ui.Cell{Text: s.Title})
		switch {
		case s.State == check.Passed, s.State == check.Skipped && len(r.Steps) > 1:
			// Which step comes first is seen above.
		default:
			flush()
			for _, c := range s.Checks {
				if c.State == check.Passed {
					continue
				}
				_, _ = fmt.Fprintf(w, "        %s %s\n", Paint(style, c.State)("·"), title(c))
				Why(w, style, words, "          ", c)
			}
		}
	}
	flush()
	if len(r.Left) > 0 {
		_, _ = fmt.Fprintln(w, words.left)
		Checks(w, style, words, r.Left)
	}
	if r.Error != "" {
		_, _ = fmt.Fprintf(w, "%s %s\n", style.Bad(words.problem), r.Error)
	}
	_, _ = fmt.Fprintln(w, words.summary(r, ui.Took(time.Duration(r.Millis)*time.Millisecond)))
}

// pad makes a word as wide as columns, where it is not.
func pad(word string, columns int) string {
	return word + strings.Repeat(" ", max(0, columns-ui.Width(word)))
}

// oneLine keeps a result on its row.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
