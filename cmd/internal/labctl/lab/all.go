package lab

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// answer is what one instance of several said.
type answer struct {
	Instance string       `json:"instance"`
	Report   *labs.Report `json:"report,omitempty"`
	// Error is set where there is no report: it says nothing about the work.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`

	status provision.Status
}

// state is the report's, or error where there is none.
func (a answer) state() check.State {
	if a.Report == nil {
		return check.Error
	}
	return a.Report.State
}

// allAnswers is the result of verify and reset with --all as JSON.
type allAnswers struct {
	Schema    string      `json:"schema"`
	Lab       string      `json:"lab"`
	Instances []answer    `json:"instances"`
	Timings   []ui.Timing `json:"timings"`
}

// askAll calls the lab in every instance, some at once, or in only one. One that does not answer stops no other.
func askAll(ctx context.Context, f *factory.Factory, known labrun.Known, call labrun.Call, only string, ask func(count int) error) (allAnswers, error) {
	doc := allAnswers{Schema: ui.Schema(call.Action + "-all"), Lab: known.ID, Instances: []answer{}}
	program, err := labrun.Locate(f.Settings().GuestDir, known)
	if err != nil {
		return doc, err
	}
	driver, err := f.Driver()
	if err != nil {
		return doc, err
	}
	all, err := driver.List(ctx)
	if err != nil {
		return doc, fmt.Errorf("list the instances: %w", err)
	}
	all = slices.DeleteFunc(all, func(st provision.Status) bool { return only != "" && st.Name != only })
	if len(all) == 0 {
		return doc, &cli.UsageError{Msg: "there is no instance yet", Fix: "run `labctl up` to make one"}
	}
	if ask != nil {
		if err := ask(len(all)); err != nil {
			return doc, err
		}
	}
	byName := map[string]provision.Status{}
	var names []string
	for _, st := range all {
		byName[st.Name] = st
		names = append(names, st.Name)
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	var mu sync.Mutex
	reports := map[string]*labs.Report{}
	failed := f.Each(ctx, names, func(ctx context.Context, name string) error {
		// What is off is no failed work of labctl's.
		if _, err := f.Endpoint(ctx, byName[name]); err != nil {
			return err
		}
		s := &session{f: f, program: program, status: byName[name]}
		defer s.close()
		return stage.Run(ctx, s, progress.Sink(""), stage.Stage[session]{
			Name: call.Action + " lab " + known.ID + " in " + name,
			Run: func(ctx context.Context, s *session, detail func(string)) error {
				report, err := s.run(ctx, call, detail)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					reports[name] = &report
				}
				return err
			},
		})
	})
	progress.Close()
	doc.Timings = progress.Timings()
	for _, name := range names {
		a := answer{Instance: name, Report: reports[name], status: byName[name]}
		a.Error, a.Hint = factory.Told(stage.Bare(failed[name]))
		doc.Instances = append(doc.Instances, a)
	}
	return doc, nil
}

// showAll writes what all said and returns the exit code as an error: the worst of theirs.
func showAll(ctx context.Context, f *factory.Factory, known labrun.Known, doc allAnswers, format ui.Format) error {
	code := cli.OK
	for _, a := range doc.Instances {
		code = max(code, verdict.Code(a.state()))
	}
	var err error
	switch format {
	case ui.JSON:
		err = f.UI().JSON(doc)
	case ui.CSV:
		err = writeCSV(f, known, doc)
	default:
		printAnswers(f.UI(), verdict.In(f.Language()), doc)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // after what is known
	}
	return cli.Exit(code)
}

// writeCSV writes a line an instance: for a spreadsheet. A step's cell is its state.
func writeCSV(f *factory.Factory, known labrun.Known, doc allAnswers) error {
	w := csv.NewWriter(f.Out)
	header := []string{"instance", "lab", "state", "passed", "steps", "score"}
	rows := [][]string{append(append(header, stepNames(known)...), "error")}
	for _, a := range doc.Instances {
		row := []string{a.Instance, doc.Lab, string(a.state()), "", "", ""}
		if a.Report != nil {
			row[3], row[4] = strconv.Itoa(a.Report.Passed()), strconv.Itoa(len(a.Report.Steps))
			if n := len(a.Report.Steps); n > 0 {
				row[5] = strconv.FormatFloat(float64(a.Report.Passed())/float64(n), 'f', 3, 64)
			}
		}
		rows = append(rows, append(append(row, stepStates(known, a.Report)...), plain(a.Error)))
	}
	return w.WriteAll(rows)
}

// stepNames head the columns of steps in a spreadsheet.
func stepNames(known labrun.Known) (names []string) {
	for n := range known.Steps {
		names = append(names, fmt.Sprintf("step%d", n+1))
	}
	return names
}

// stepStates are what goes below them; nothing where there is no report.
func stepStates(known labrun.Known, report *labs.Report) []string {
	states := make([]string, known.Steps)
	if report == nil {
		return states
	}
	for _, s := range report.Steps {
		if s.Step >= 1 && s.Step <= known.Steps {
			states[s.Step-1] = string(s.State)
		}
	}
	return states
}

// plain keeps a spreadsheet from reading text as a formula.
func plain(text string) string {
	if strings.ContainsAny(text[:min(1, len(text))], "=+-@\t") {
		return "'" + text
	}
	return text
}

// printable is text without what would move a terminal's cursor: the guest is the learner's.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

func printAnswers(u *ui.UI, words verdict.Words, doc allAnswers) {
	var table ui.Table
	table.Row(words.Columns.Name, words.Columns.State, words.Columns.Passed, words.Columns.Next, words.Columns.Note)
	for _, a := range doc.Instances {
		passed, next, note := "-", "", a.Error
		if a.Report != nil {
			note = a.Report.Error
			if len(a.Report.Steps) > 0 {
				passed = fmt.Sprintf("%d/%d", a.Report.Passed(), len(a.Report.Steps))
			}
			for _, s := range a.Report.Steps {
				if s.State != check.Passed {
					next = fmt.Sprintf(words.Step, s.Step)
					break
				}
			}
			for _, left := range a.Report.Left {
				note = "still there: " + left.Title
			}
		}
		table.Cells(ui.Cell{Text: a.Instance}, ui.Cell{Text: words.State(a.state()), Paint: verdict.Paint(u.Result, a.state())},
			ui.Cell{Text: passed}, ui.Cell{Text: next}, ui.Cell{Text: printable(note), Paint: u.Result.Dim})
	}
	table.Write(u.Out)
}
