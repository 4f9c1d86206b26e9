// Package guide has the commands that tell a learner what to do: guide and hint.
package guide

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/text"
)

// options are what both commands take.
type options struct {
	lab, instance string
	step          int
	format        ui.Format
}

func (o *options) flags(f *factory.Factory, cmd *cobra.Command, step string) {
	cmd.Args = cli.NoArgs
	cmd.Flags().StringVar(&o.lab, "lab", "", "which `LAB`, as the list of labs names it")
	_ = cmd.RegisterFlagCompletionFunc("lab", labrun.CompleteLabs)
	cmd.Flags().IntVar(&o.step, "step", 0, step)
	_ = cmd.RegisterFlagCompletionFunc("step", labrun.CompleteSteps)
	factory.LanguageFlag(cmd)
	f.InstanceFlag(cmd, &o.instance)
	ui.AddFormat(cmd, &o.format)
}

// find checks the arguments and reads the lab's text.
func (o *options) find(f *factory.Factory, cmd *cobra.Command) (labrun.Known, text.Text, error) {
	known, err := labrun.Find(o.lab)
	if err == nil && cmd.Flags().Changed("step") {
		err = known.CheckStep("step", o.step)
	}
	if err != nil {
		return known, text.Text{}, err
	}
	said, err := known.Text(f.Language())
	return known, said, err
}

// stepDocument is one step as JSON.
type stepDocument struct {
	Step     int    `json:"step"`
	Title    string `json:"title"`
	Goal     string `json:"goal"`
	Note     string `json:"note,omitempty"`
	Language string `json:"language"`
	// State is what the last check said of it; empty where there was none.
	State check.State `json:"state,omitempty"`
}

type document struct {
	Schema     string         `json:"schema"`
	Lab        string         `json:"lab"`
	Language   string         `json:"language"`
	Title      string         `json:"title"`
	Goal       string         `json:"goal"`
	Why        string         `json:"why"`
	References []string       `json:"references"`
	Steps      []stepDocument `json:"steps"`
}

// New is the command guide.
func New(f *factory.Factory) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "guide --lab LAB",
		Short: "Show what a lab is about and what its steps want",
		Long: `Show what a lab is about and what its steps want, with how far the learner was when the work was last checked. It needs no running
instance.`,
		Example: "  labctl guide --lab ci\n  labctl guide --lab ci --step 3 --lang ja",
	}
	o.flags(f, cmd, "only step `N`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		known, said, err := o.find(f, cmd)
		if err != nil {
			return err
		}
		standing, err := o.standing(cmd.Context(), f, known)
		if err != nil {
			return err
		}
		language := f.Language()
		doc := document{
			Schema: ui.Schema("guide"), Lab: known.ID, Language: orElse(said.Foreign, language),
			Title: said.Title, Goal: said.Goal, Why: said.Why, References: said.References,
		}
		for i, s := range said.Steps {
			if o.step == 0 || o.step == i+1 {
				doc.Steps = append(doc.Steps, stepDocument{Step: i + 1, Title: s.Title, Goal: s.Goal, Note: s.Note, Language: orElse(s.Foreign, language), State: standing.Steps[i+1]})
			}
		}
		if o.format == ui.JSON {
			return f.UI().JSON(doc)
		}
		p := newPage(f, language)
		if o.step == 0 {
			p.whole(doc)
		} else {
			p.step(doc.Steps[0])
		}
		return nil
	}
	return cmd
}

// standing is that of the instance that is named, or of the only one; without one nothing is known.
func (o *options) standing(ctx context.Context, f *factory.Factory, known labrun.Known) (labrun.Standing, error) {
	name := o.instance
	if name == "" {
		driver, err := f.Driver()
		if err != nil {
			return labrun.Standing{}, err
		}
		if all, err := driver.List(ctx); err != nil || len(all) != 1 {
			return labrun.Standing{}, nil
		}
	}
	st, err := f.Pick(ctx, name)
	if err != nil {
		return labrun.Standing{}, err
	}
	standing, _ := labrun.Recall(f.Home().Instance(st.Name), known.ID) // what cannot be read is not known
	return standing, nil
}

// NewHint is the command hint.
func NewHint(f *factory.Factory) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "hint --lab LAB",
		Short: "Give one hint more for a step",
		Long: `Give one hint more for a step each time: the first says where to look, the last the shape of what to type. Without --step it is the
first step that was not passed when the work was last checked. A reset of the lab takes all hints back.`,
		Example: "  labctl hint --lab ci\n  labctl hint --lab ci --step 2",
	}
	o.flags(f, cmd, "for step `N`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		known, said, err := o.find(f, cmd)
		if err != nil {
			return err
		}
		st, err := f.Pick(cmd.Context(), o.instance)
		if err != nil {
			return err
		}
		dir := f.Home().Instance(st.Name)
		if o.step == 0 {
			if o.step, err = next(dir, known); err != nil {
				return err
			}
		}
		step := said.Steps[o.step-1]
		taken, err := labrun.TakeHint(dir, known.ID, o.step, len(step.Hints))
		if err != nil {
			return err
		}
		language := f.Language()
		if o.format == ui.JSON {
			return f.UI().JSON(hintDocument{
				Schema: ui.Schema("hint"), Lab: known.ID, Instance: st.Name, Step: o.step, Language: orElse(step.Foreign, language), Title: step.Title,
				Hints: step.Hints[:taken], All: len(step.Hints),
			})
		}
		newPage(f, language).hints(o.step, step, taken)
		return nil
	}
	return cmd
}

type hintDocument struct {
	Schema   string   `json:"schema"`
	Lab      string   `json:"lab"`
	Instance string   `json:"instance"`
	Step     int      `json:"step"`
	Language string   `json:"language"`
	Title    string   `json:"title"`
	Hints    []string `json:"hints"`
	// All is how many there are.
	All int `json:"all"`
}

// next is the first step that was not passed when last checked.
func next(dir layout.InstanceDir, known labrun.Known) (int, error) {
	standing, _ := labrun.Recall(dir, known.ID) // what cannot be read is not known
	for n := range known.Steps {
		if standing.Steps[n+1] != check.Passed {
			return n + 1, nil
		}
	}
	return 0, &cli.UsageError{Msg: fmt.Sprintf("all steps of lab %s are passed", known.ID), Fix: "say for which step you want a hint, with --step"}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// page writes text for people, as wide as suits reading.
type page struct {
	w     io.Writer
	style ui.Style
	words words
	width int
}

// most is the width beyond which lines are tiring to read.
const most = 100

func newPage(f *factory.Factory, language string) *page {
	u := f.UI()
	width := most
	if columns := u.Columns(); columns > 20 && columns < most {
		width = columns
	}
	return &page{w: f.Out, style: u.Result, words: wordsIn(language), width: width}
}

// paragraph writes text below a heading, wrapped. Wide characters count as two columns.
func (p *page) paragraph(indent, text string) {
	for _, line := range ui.Wrap(text, p.width-len(indent)) {
		_, _ = fmt.Fprintln(p.w, strings.TrimRight(indent+line, " "))
	}
}

func (p *page) heading(text string) { _, _ = fmt.Fprintf(p.w, "\n%s\n", p.style.Bold(text)) }

// mark says of a text that it is in another language than was asked for.
func (p *page) mark(foreign bool) string {
	if foreign {
		return " " + p.style.Warn(p.words.Foreign)
	}
	return ""
}

func (p *page) whole(doc document) {
	_, _ = fmt.Fprintln(p.w, p.style.Bold(doc.Lab+": "+doc.Title)+p.mark(doc.Language != p.words.language))
	p.heading(p.words.Goal)
	p.paragraph("  ", doc.Goal)
	p.heading(p.words.Why)
	p.paragraph("  ", doc.Why)
	p.heading(p.words.Steps)
	for _, s := range doc.Steps {
		_, _ = fmt.Fprintf(p.w, "\n  %s\n", p.title(s))
		p.paragraph("     ", s.Goal)
		if s.Note != "" {
			p.paragraph("     ", p.words.Note+": "+s.Note)
		}
	}
	if len(doc.References) > 0 {
		p.heading(p.words.References)
		for _, r := range doc.References {
			p.paragraph("  ", r)
		}
	}
	_, _ = fmt.Fprintln(p.w)
	p.paragraph("", fmt.Sprintf(p.words.Next, doc.Lab))
}

// title is a step's line: its number, whether it was passed when last checked, what it is about.
func (p *page) title(s stepDocument) string {
	line := p.style.Bold(fmt.Sprintf("%d. %s", s.Step, s.Title))
	switch s.State {
	case "":
	case check.Passed:
		line += "  " + p.style.Good(p.words.Passed)
	default:
		line += "  " + p.style.Dim(p.words.Open)
	}
	return line + p.mark(s.Language != p.words.language)
}

func (p *page) step(s stepDocument) {
	_, _ = fmt.Fprintln(p.w, p.title(s))
	p.heading(p.words.Goal)
	p.paragraph("  ", s.Goal)
	if s.Note != "" {
		p.heading(p.words.Note)
		p.paragraph("  ", s.Note)
	}
}

func (p *page) hints(n int, step text.Step, taken int) {
	_, _ = fmt.Fprintln(p.w, p.style.Bold(fmt.Sprintf("%d. %s", n, step.Title))+p.mark(step.Foreign != ""))
	for i, hint := range step.Hints[:taken] {
		p.heading(fmt.Sprintf(p.words.Hint, i+1, len(step.Hints)))
		p.paragraph("  ", hint)
	}
	if taken == len(step.Hints) {
		_, _ = fmt.Fprintln(p.w)
		p.paragraph("", p.words.Last)
	}
}
