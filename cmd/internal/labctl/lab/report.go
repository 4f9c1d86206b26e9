package lab

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/page"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

//go:embed report.html
var reportBody string

//go:embed class.html
var classBody string

var (
	reportPage = page.Parse("report", reportBody)
	classPage  = page.Parse("class", classBody)
)

// record is one learner's work on a lab at one time, kept so that it can be judged again.
type record struct {
	Schema   string      `json:"schema"`
	Lab      string      `json:"lab"`
	Title    string      `json:"title"`
	Instance string      `json:"instance"`
	Language string      `json:"language"`
	Time     time.Time   `json:"time"`
	State    check.State `json:"state"`
	Grade    grade       `json:"grade"`
	// Error is set where the work could not be checked, and then there is no Report.
	Error  string       `json:"error,omitempty"`
	Hint   string       `json:"hint,omitempty"`
	Report *labs.Report `json:"report,omitempty"`
	// Differences are what judging again found to be kept otherwise than its checks say.
	Differences []string `json:"differences,omitempty"`
	// HintsTaken counts the hints that were shown, by step.
	HintsTaken map[int]int `json:"hintsTaken,omitempty"`
	Labctl     string      `json:"labctl"`
	// Program is the lab's program that judged, and Image what the guest was made of.
	Program     *programOf `json:"program,omitempty"`
	Image       *imageOf   `json:"image,omitempty"`
	Accelerator string     `json:"accelerator,omitempty"`
}

const recordSchema = "labctl.dev/learner-report/v1"

type grade struct {
	Passed int `json:"passed"`
	Steps  int `json:"steps"`
	// Score is Passed as a part of Steps, with three decimals. It is empty where a step could not be checked: that costs nobody a point.
	Score string `json:"score,omitempty"`
}

// Fraction is such as 6/8.
func (g grade) Fraction() string { return fmt.Sprintf("%d/%d", g.Passed, g.Steps) }

type programOf struct {
	Lab     string `json:"lab"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

type imageOf struct {
	Name     string            `json:"name"`
	Digest   string            `json:"digest"`
	Source   images.SourceName `json:"source"`
	Versions map[string]string `json:"versions"`
	StandIns map[string]string `json:"standIns,omitempty"`
}

// filename is the record's, without what says its form.
func (r record) filename() string { return r.Lab + "-" + r.Instance }

// Page is the name of the learner's page.
func (r record) Page() string { return r.filename() + ".html" }

// count fills in what follows from the report: state and grade.
func (r *record) count(steps int) {
	r.State, r.Grade = check.Error, grade{Steps: steps}
	if r.Report != nil {
		r.State = r.Report.State
		r.Grade.Passed = r.Report.Passed()
	}
	if r.State != check.Error {
		r.Grade.Score = strconv.FormatFloat(float64(r.Grade.Passed)/float64(steps), 'f', 3, 64)
	}
}

// reports is the result of report as JSON.
type reports struct {
	Schema   string   `json:"schema"`
	Lab      string   `json:"lab"`
	Dir      string   `json:"dir"`
	Files    []string `json:"files"`
	Learners []record `json:"learners"`
}

// NewReport is the command report.
func NewReport(f *factory.Factory) *cobra.Command {
	var t target
	var all bool
	var dir string
	var again []string
	cmd := &cobra.Command{
		Use:   "report --lab LAB [--all] | --again FILE...",
		Short: "Check the work and write a page, a file and a grade for each learner",
		Long: `Check the work on a lab and write what was found into a folder: for each learner a page that stands alone (LAB-NAME.html) and the same as
JSON (LAB-NAME.json), with every step's verdict, what it rests on, times, versions and stand-ins; for all of them a table of grades
(LAB.csv) and a page (LAB.html). A score is the part of the lab's steps that are passed; where a step could not be checked there is none.

With --again nothing is asked of any guest: kept JSON files are judged once more from what their checks found, and where a file says
otherwise than its own checks, the report says so.`,
		Example: `  labctl report --lab ci
  labctl report --lab ci --all --dir grades
  labctl report --again grades/ci-alice.json --dir again`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(again) > 0 {
				again = append(again, args...) // the shell's pattern gives several words
				return nil
			}
			return cli.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if len(again) > 0 {
				if t.lab != "" || t.instance != "" || all {
					return &cli.UsageError{Msg: "--again judges what the files hold: neither --lab, -i nor --all goes with it", Fix: "leave those out: `labctl report --again " + again[0] + "`"}
				}
				records, err := readRecords(again)
				if err != nil {
					return err
				}
				return writeRecords(ctx, f, records, dir, t.format)
			}
			known, err := t.find(cmd, nil)
			if err != nil {
				return err
			}
			if all && t.instance != "" {
				return cli.Misused(cmd, "--all is for every instance, so that none can be named beside it")
			}
			only := ""
			if !all {
				st, err := f.Pick(ctx, t.instance)
				if err != nil {
					return err
				}
				only = st.Name
			}
			records, err := gather(ctx, f, known, only)
			if err != nil {
				return err
			}
			return writeRecords(ctx, f, records, dir, t.format)
		},
	}
	t.flags(f, cmd)
	cmd.Flags().BoolVar(&all, "all", false, "report on every instance")
	cmd.Flags().StringVar(&dir, "dir", "", "`FOLDER` to write into (default: reports/LAB-TIME)")
	_ = cmd.MarkFlagDirname("dir")
	cmd.Flags().StringSliceVar(&again, "again", nil, "judge kept `FILE`s once more")
	_ = cmd.MarkFlagFilename("again", "json")
	factory.Setting(cmd, "timeouts.verify", "timeout", "TIME", "longest time for a check")
	return cmd
}

// gather checks the work in all instances, or in only one.
func gather(ctx context.Context, f *factory.Factory, known labrun.Known, only string) ([]record, error) {
	said, err := known.Text(f.Language())
	if err != nil {
		return nil, err
	}
	doc, err := askAll(ctx, f, known, labrun.Call{Action: "verify", Timeout: f.Settings().Timeouts.Verify}, only, nil)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	var records []record
	for _, a := range doc.Instances {
		r := record{
			Schema: recordSchema, Lab: known.ID, Title: said.Title, Instance: a.Instance, Language: f.Language(), Time: time.Now().UTC().Truncate(time.Second),
			Error: a.Error, Hint: a.Hint, Report: a.Report, Labctl: cli.Version, Accelerator: a.status.Accelerator,
		}
		if standing, err := labrun.Recall(f.Home().Instance(a.Instance), known.ID); err == nil {
			r.HintsTaken = standing.Hints
		}
		if a.Report != nil {
			r.Program = &programOf{Lab: known.ID, Version: a.Report.Version, SHA256: a.Report.Binary}
		}
		r.Image = made(ctx, f, a.status.Spec)
		r.again(known)
		records = append(records, r)
	}
	return records, nil
}

// made is what an instance's image was made of; nil where the image is not there any more or another has its name.
func made(ctx context.Context, f *factory.Factory, spec provision.Spec) *imageOf {
	img, err := f.Images().Get(ctx, filepath.Base(string(spec.Image)))
	if err != nil || img.Metadata.Digest != spec.ImageDigest {
		return nil
	}
	m := img.Metadata
	return &imageOf{m.Name, m.Digest, m.Source, m.Versions, m.StandIns}
}

// again judges a record from what its checks found.
func (r *record) again(known labrun.Known) {
	if r.Report != nil {
		var report labs.Report
		report, r.Differences = r.Report.Recount(known.Steps)
		r.Report = &report
	}
	before := r.Grade
	r.count(known.Steps)
	if before.Steps != 0 && before != r.Grade {
		r.Differences = append(r.Differences, fmt.Sprintf("the grade is kept as %s, but it is %s", before.Fraction(), r.Grade.Fraction()))
	}
}

// recordLimit is far more than a report takes.
const recordLimit = 16 << 20

// readRecords reads kept reports of one lab, each learner's once, and judges them again.
func readRecords(paths []string) ([]record, error) {
	var records []record
	for _, path := range paths {
		wrong := func(format string, args ...any) ([]record, error) {
			return nil, &cli.UsageError{Msg: path + ": " + fmt.Sprintf(format, args...), Fix: "give the JSON files that `labctl report` wrote, of one lab and each learner's once"}
		}
		data, err := readAtMost(path, recordLimit)
		if err != nil {
			return wrong("%v", err)
		}
		var r record
		dec := json.NewDecoder(bytes.NewReader(data))
		if err := dec.Decode(&r); err != nil || r.Schema != recordSchema {
			return wrong("it is no report of a learner's work")
		}
		known, err := labrun.Find(r.Lab)
		if err != nil {
			return wrong("there is no lab %q", r.Lab)
		}
		if err := layout.CheckName("instance", r.Instance); err != nil {
			return wrong("%v", err)
		}
		if r.Report == nil && r.Error == "" {
			return wrong("it holds no verdict")
		}
		for _, other := range records {
			switch {
			case other.Lab != r.Lab:
				return wrong("it is about lab %s, the files before about lab %s", r.Lab, other.Lab)
			case other.Instance == r.Instance:
				return wrong("%s comes twice", r.Instance)
			}
		}
		r.again(known)
		records = append(records, r)
	}
	return records, nil
}

func readAtMost(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %s", ui.Bytes(limit))
	}
	return data, err
}

// writeRecords writes pages, files and grades, tells what was written, and returns the exit code as an error: 3 where a work could not be checked.
func writeRecords(ctx context.Context, f *factory.Factory, records []record, dir string, format ui.Format) error {
	lab := records[0].Lab
	known, err := labrun.Find(lab)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join("reports", lab+"-"+time.Now().Format("20060102-150405"))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &cli.UsageError{Msg: fmt.Sprintf("cannot make the folder %s: %v", dir, errors.Unwrap(err)), Fix: "choose another with --dir"}
	}
	doc := reports{Schema: ui.Schema("reports"), Lab: lab, Dir: dir, Learners: records}
	write := func(name string, do func(path string) error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		doc.Files = append(doc.Files, name)
		return do(filepath.Join(dir, name))
	}
	w := wordsIn(f.Language())
	for _, r := range records {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("write the report on %s: %w", r.Instance, err)
		}
		err = write(r.filename()+".json", func(path string) error { return page.File(path, append(data, '\n')) })
		if err == nil {
			err = write(r.Page(), func(path string) error {
				return page.Write(path, reportPage, page.Page{Language: w.language, Title: r.Title + " · " + r.Instance, Body: struct {
					record
					Words words
				}{r, w}})
			})
		}
		if err != nil {
			return err
		}
	}
	err = write(lab+".csv", func(path string) error {
		var b bytes.Buffer
		if err := csv.NewWriter(&b).WriteAll(grades(records, known)); err != nil {
			return err
		}
		return page.File(path, b.Bytes())
	})
	if err == nil {
		err = write(lab+".html", func(path string) error {
			return page.Write(path, classPage, page.Page{Language: w.language, Title: records[0].Title, Body: class(records, known, w)})
		})
	}
	if err != nil {
		return err
	}
	if format == ui.JSON {
		err = f.UI().JSON(doc)
	} else {
		printRecords(f.UI(), verdict.In(f.Language()), doc)
	}
	if err == nil && slices.ContainsFunc(records, func(r record) bool { return r.State == check.Error }) {
		err = cli.Exit(cli.Trouble)
	}
	return err
}

type classOf struct {
	Title, Lab string
	Time       time.Time
	Numbers    []int
	Learners   []record
	Words      words
}

func class(records []record, known labrun.Known, w words) classOf {
	c := classOf{Title: records[0].Title, Lab: known.ID, Time: records[0].Time, Learners: records, Words: w}
	for n := range known.Steps {
		c.Numbers = append(c.Numbers, n+1)
	}
	return c
}

// grades are a line a learner, for a spreadsheet.
func grades(records []record, known labrun.Known) [][]string {
	header := []string{"learner", "lab", "state", "passed", "steps", "fraction", "score"}
	rows := [][]string{append(append(header, stepNames(known)...), "checked", "program", "note")}
	for _, r := range records {
		row := []string{r.Instance, r.Lab, string(r.State), "", strconv.Itoa(r.Grade.Steps), "", r.Grade.Score}
		if r.Report != nil {
			// A plain 6/8 is a date to a spreadsheet.
			row[3], row[5] = strconv.Itoa(r.Grade.Passed), fmt.Sprintf("%d of %d", r.Grade.Passed, r.Grade.Steps)
		}
		program, note := "", r.Error
		if r.Program != nil {
			program = r.Program.SHA256
		}
		if len(r.Differences) > 0 {
			note = r.Differences[0]
		}
		rows = append(rows, append(append(row, stepStates(known, r.Report)...), r.Time.Format(time.RFC3339), plain(program), plain(note)))
	}
	return rows
}

func printRecords(u *ui.UI, words verdict.Words, doc reports) {
	var table ui.Table
	table.Row(words.Columns.Name, words.Columns.State, words.Columns.Passed, words.Columns.Score, words.Columns.Note)
	for _, r := range doc.Learners {
		passed, score, note := "-", "-", r.Error
		if r.Report != nil {
			passed = r.Grade.Fraction()
		}
		if r.Grade.Score != "" {
			score = r.Grade.Score
		}
		if len(r.Differences) > 0 {
			note = r.Differences[0]
		}
		table.Cells(ui.Cell{Text: r.Instance}, ui.Cell{Text: words.State(r.State), Paint: verdict.Paint(u.Result, r.State)}, ui.Cell{Text: passed}, ui.Cell{Text: score},
			ui.Cell{Text: printable(note), Paint: u.Result.Dim})
	}
	table.Write(u.Out)
	u.Print("%d files in %s: %s, %s, and a page and a JSON file for each learner", len(doc.Files), doc.Dir, doc.Lab+".csv", doc.Lab+".html")
}
