package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Guest is a guest in which a lab is proved.
type Guest interface {
	// Verify judges one step, or all with 0. Solve solves one step; Reset resets the lab.
	Verify(ctx context.Context, step int) (labs.Report, error)
	Solve(ctx context.Context, step int) (labs.Report, error)
	Reset(ctx context.Context) (labs.Report, error)
	// Shell runs a script as root.
	Shell(ctx context.Context, script string) error
}

// Row is what the proof found about one step.
type Row struct {
	Step  int    `json:"step"`
	Title string `json:"title"`
	// Fresh, Solved and Undone say whether the step was judged as it must be in a guest without the lab, after each solved step, and with its
	// work taken away.
	Fresh  bool `json:"fresh"`
	Solved bool `json:"solved"`
	Undone bool `json:"undone"`
	// Wrong and Right count the answers that were judged as they must be, of those that were tried.
	Wrong      int `json:"wrong"`
	WrongTried int `json:"wrongTried"`
	Right      int `json:"right"`
	RightTried int `json:"rightTried"`
	// Millis is how long the step's own checks took in the solved lab.
	Millis int64 `json:"millis"`
}

// Misjudgement is a verdict that is not what it must be.
type Misjudgement struct {
	Step int    `json:"step"`
	When string `json:"when"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

func (m Misjudgement) String() string {
	return fmt.Sprintf("step %d, %s: it must be %s, but is %s", m.Step, m.When, m.Want, m.Got)
}

// Table is what a proof found.
type Table struct {
	Lab       string         `json:"lab"`
	Rows      []Row          `json:"rows"`
	Misjudged []Misjudgement `json:"misjudged"`
	// Disturbed names the disturbances under which no step was misjudged, of DisturbedTried.
	Disturbed      []string `json:"disturbed"`
	DisturbedTried int      `json:"disturbedTried"`
	// Millis is how long a verify of all steps took in the solved lab.
	Millis int64 `json:"millis"`
}

// Good says whether nothing was misjudged.
func (t Table) Good() bool { return len(t.Misjudged) == 0 }

// NotFreshError says that the lab is not at its start in the guest, where a proof would destroy somebody's work.
type NotFreshError struct {
	Lab  string
	Step int
}

func (e *NotFreshError) Error() string {
	return fmt.Sprintf("lab %s is not at its start in this guest: step %d passes, be it for work that is there or without any", e.Lab, e.Step)
}

// Hint is the next action.
func (e *NotFreshError) Hint() string { return "reset the lab there, or take another instance" }

// run is one proof under way.
type run struct {
	Guest
	doc   Document
	table Table
	say   func(string)
}

// Run proves a lab in a guest where it is at its start, and leaves it at its start: fresh, solved step by step, solved again, all trials,
// disturbed, and reset. say receives one line at a time and may be nil. The error says that the guest could not be asked, or that the lab could not be solved;
// verdicts that are not what they must be are in the table.
func Run(ctx context.Context, g Guest, doc Document, say func(string)) (Table, error) {
	if say == nil {
		say = func(string) {}
	}
	r := &run{Guest: g, doc: doc, table: Table{Lab: doc.Lab, Misjudged: []Misjudgement{}}, say: say}
	for n := 1; n <= doc.Steps; n++ {
		r.table.Rows = append(r.table.Rows, Row{Step: n})
	}
	for _, part := range []func(context.Context) error{r.fresh, r.solve, r.again, r.trials, r.disturb, r.reset} {
		if err := part(ctx); err != nil {
			return r.table, err
		}
	}
	return r.table, nil
}

func (r *run) misjudged(step int, when, want string, s labs.StepReport) {
	got := string(s.State)
	if n := len(s.Checks); n > 0 && s.State != check.Passed {
		last := s.Checks[n-1]
		got += fmt.Sprintf(" by %s (%s)", last.ID, strings.Join(strings.Fields(last.Got), " "))
	}
	m := Misjudgement{Step: step, When: when, Want: want, Got: got}
	r.table.Misjudged = append(r.table.Misjudged, m)
	r.say("MISJUDGED " + m.String())
}

// judge asks for all steps. A lab with another number of them than its document says cannot be proved.
func (r *run) judge(ctx context.Context) (labs.Report, error) {
	report, err := r.Verify(ctx, 0)
	if err == nil && len(report.Steps) != r.doc.Steps {
		err = fmt.Errorf("verify of lab %s answers for %d steps instead of %d", r.doc.Lab, len(report.Steps), r.doc.Steps)
	}
	return report, err
}

// begun is what a step may be when it has not been done.
var begun = []check.State{check.Failed, check.Skipped}

func (r *run) fresh(ctx context.Context) error {
	r.say("a guest without the lab")
	report, err := r.judge(ctx)
	if err != nil {
		return err
	}
	for i, s := range report.Steps {
		row := &r.table.Rows[i]
		row.Title = s.Title
		if s.State == check.Passed {
			return &NotFreshError{Lab: r.doc.Lab, Step: s.Step}
		}
		if row.Fresh = slices.Contains(begun, s.State); !row.Fresh {
			r.misjudged(s.Step, "nothing is done", "failed or skipped", s)
		}
	}
	return nil
}

func (r *run) solve(ctx context.Context) error {
	for i := range r.table.Rows {
		r.table.Rows[i].Solved = true
	}
	for n := 1; n <= r.doc.Steps; n++ {
		r.say(fmt.Sprintf("solve step %d", n))
		if _, err := r.Solve(ctx, n); err != nil {
			return err
		}
		report, err := r.judge(ctx)
		if err != nil {
			return err
		}
		for i, s := range report.Steps {
			when := fmt.Sprintf("after solving %d", n)
			switch {
			case s.Step <= n && s.State != check.Passed:
				r.table.Rows[i].Solved = false
				r.misjudged(s.Step, when, "passed", s)
			case s.Step > n && !slices.Contains(begun, s.State):
				r.table.Rows[i].Solved = false
				r.misjudged(s.Step, when, "failed or skipped", s)
			}
		}
		if !r.table.Good() {
			return nil // what comes now stands on a lab that is solved
		}
		if n == r.doc.Steps {
			r.table.Millis = report.Millis
			for i, s := range report.Steps {
				r.table.Rows[i].Millis = s.Millis
			}
		}
	}
	return nil
}

// again solves what is solved: nothing may change.
func (r *run) again(ctx context.Context) error {
	if !r.table.Good() {
		return nil
	}
	r.say("solve again")
	for n := 1; n <= r.doc.Steps; n++ {
		if _, err := r.Solve(ctx, n); err != nil {
			return err
		}
	}
	return r.intact(ctx, "after solving again")
}

// intact wants all steps to pass.
func (r *run) intact(ctx context.Context, when string) error {
	report, err := r.judge(ctx)
	if err != nil {
		return err
	}
	for _, s := range report.Steps {
		if s.State != check.Passed {
			r.misjudged(s.Step, when, "passed", s)
		}
	}
	return nil
}

func (r *run) trials(ctx context.Context) error {
	if !r.table.Good() {
		return nil
	}
	for i, t := range r.doc.Trials {
		if t.Step < 1 || t.Step > r.doc.Steps {
			return fmt.Errorf("lab %s has no step %d, which its proof tries", r.doc.Lab, t.Step)
		}
		r.say(fmt.Sprintf("%d of %d: step %d, %s: %s", i+1, len(r.doc.Trials), t.Step, t.Kind, t.Name))
		if err := r.try(ctx, t); err != nil {
			return fmt.Errorf("step %d, %s answer %q: %w", t.Step, t.Kind, t.Name, err)
		}
	}
	return r.intact(ctx, "after all answers were taken back")
}

func (r *run) try(ctx context.Context, t Trial) error {
	if err := r.Shell(ctx, t.Before); err != nil {
		return fmt.Errorf("make it: %w", err)
	}
	report, err := r.Verify(ctx, map[bool]int{false: t.Step}[t.Kind == Undone])
	// Also where that failed the guest is put back, which is not worth less because of Ctrl-C.
	afterCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime)
	defer cancel()
	if afterErr := r.Shell(afterCtx, t.After); afterErr != nil && err == nil {
		err = fmt.Errorf("take it back: %w", afterErr)
	}
	if err != nil {
		return err
	}
	row := &r.table.Rows[t.Step-1]
	if t.Kind == Undone {
		row.Undone = true
	}
	for _, s := range report.Steps {
		want := t.wants(s.Step)
		good := s.State == want && (t.Check == "" || s.Step != t.Step || decides(s, t.Check))
		if !good {
			what := string(want)
			if t.Check != "" {
				what += " by " + t.Check
			}
			r.misjudged(s.Step, string(t.Kind)+": "+t.Name, what, s)
		}
		switch {
		case t.Kind == Undone && !good:
			row.Undone = false
		case t.Kind == Wrong:
			row.WrongTried++
			row.Wrong += map[bool]int{true: 1}[good]
		case t.Kind == Right:
			row.RightTried++
			row.Right += map[bool]int{true: 1}[good]
		}
	}
	return nil
}

// disturb judges the solved lab while something befalls the guest, and until it has come to itself again.
func (r *run) disturb(ctx context.Context) error {
	if !r.table.Good() {
		return nil
	}
	for _, d := range r.doc.Disturbances {
		r.say("disturbed: " + d.Name)
		r.table.DisturbedTried++
		before := len(r.table.Misjudged)
		if err := r.befall(ctx, d); err != nil {
			return fmt.Errorf("disturbed, %s: %w", d.Name, err)
		}
		if len(r.table.Misjudged) == before {
			r.table.Disturbed = append(r.table.Disturbed, d.Name)
		}
	}
	return nil
}

func (r *run) befall(ctx context.Context, d Disturbance) error {
	if err := r.Shell(ctx, d.Before); err != nil {
		return err
	}
	look := func(ctx context.Context) (passed bool, why string, err error) {
		report, err := r.judge(ctx)
		if err != nil {
			return false, "", err
		}
		passed = true
		for _, s := range report.Steps {
			if s.State == check.Failed {
				r.misjudged(s.Step, "disturbed: "+d.Name, "anything but failed", s)
			}
			if s.State != check.Passed && passed {
				passed, why = false, fmt.Sprintf("step %d is %s", s.Step, s.State)
			}
		}
		return passed, why, nil
	}
	var errs []error
	for range d.Looks {
		if _, _, err := look(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	afterCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime)
	defer cancel()
	if err := errors.Join(append(errs, r.Shell(afterCtx, d.After))...); err != nil {
		return err
	}
	_, err := check.Wait{Timeout: comeBack, Attempt: comeBack, First: 2 * time.Second, Most: 10 * time.Second}.For(ctx, check.Check{ID: "back", Title: "all steps pass again", Ask: func(ctx context.Context) (check.Outcome, error) {
		passed, why, err := look(ctx)
		if err == nil && !passed {
			return check.NotYet("all steps pass", why, ""), nil
		}
		return check.Pass(""), err
	}})
	return err
}

// comeBack bounds how long an emulated guest may take to come to itself.
const comeBack = 10 * time.Minute

// backTime bounds the way back from an answer: an Application may have to come up again.
const backTime = 5 * time.Minute

// wants is what a step must be while t is in place.
func (t Trial) wants(step int) check.State {
	switch {
	case t.Kind == Right:
		return check.Passed
	case t.Kind == Wrong || step == t.Step:
		return check.Failed
	case slices.Contains(t.Skipped, step):
		return check.Skipped
	}
	return check.Passed
}

// decides says whether the step's verdict is that check's, with a hint.
func decides(s labs.StepReport, id string) bool {
	n := len(s.Checks)
	return n > 0 && s.Checks[n-1].ID == id && s.Checks[n-1].Hint != ""
}

func (r *run) reset(ctx context.Context) error {
	r.say("reset")
	report, err := r.Reset(ctx)
	if err != nil {
		return err
	}
	if report.State != check.Passed || len(report.Left) > 0 {
		return fmt.Errorf("the reset of lab %s is %s: %s", r.doc.Lab, report.State, left(report))
	}
	report, err = r.judge(ctx)
	if err != nil {
		return err
	}
	for _, s := range report.Steps {
		if !slices.Contains(begun, s.State) {
			r.misjudged(s.Step, "after the reset", "failed or skipped", s)
		}
	}
	return nil
}

func left(r labs.Report) string {
	names := []string{r.Error}
	for _, l := range r.Left {
		names = append(names, l.Title+": "+l.Got)
	}
	return strings.Join(slices.DeleteFunc(names, func(s string) bool { return s == "" }), "; ")
}
