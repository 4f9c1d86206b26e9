package ui

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
)

// Progress shows stages as they run: on a terminal with a line that moves, elsewhere with plain lines. Close it before
// the result is printed.
type Progress struct {
	ui    *UI
	now   func() time.Time
	start time.Time

	mu      sync.Mutex
	running []*runningStage
	ended   []endedStage
	drawn   bool // the moving line is on the screen
	frame   int
	stop    chan struct{}
	stopped sync.WaitGroup
}

type runningStage struct {
	name, detail string
	since        time.Time
	// told is when a plain line last gave a detail.
	told time.Time
}

type endedStage struct {
	name string
	kind stage.Kind
	took time.Duration
}

const (
	// redraw is how often the moving line changes.
	redraw = 120 * time.Millisecond
	// retell is the shortest time between two plain lines on one stage's details.
	retell = 15 * time.Second
	// notable is how long a stage takes to get a row of its own in the summary.
	notable = 100 * time.Millisecond
)

// NewProgress starts the display.
func (u *UI) NewProgress() *Progress {
	p := &Progress{ui: u, now: time.Now, start: time.Now(), stop: make(chan struct{})}
	if u.ErrTTY {
		p.stopped.Go(p.spin)
	}
	u.mu.Lock()
	u.progress = p
	u.mu.Unlock()
	return p
}

func (p *Progress) spin() {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			p.frame++
			p.draw()
			p.mu.Unlock()
		}
	}
}

// Sink receives the events of stages; prefix, such as "image", is put before their names.
func (p *Progress) Sink(prefix string) stage.Sink {
	return func(e stage.Event) {
		if prefix != "" {
			e.Stage = prefix + ": " + e.Stage
		}
		p.event(e)
	}
}

func (p *Progress) event(e stage.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.running, func(r *runningStage) bool { return r.name == e.Stage })
	switch e.Kind {
	case stage.Started:
		if i < 0 {
			p.running = append(p.running, &runningStage{name: e.Stage, since: p.now()})
		}
		if !p.ui.ErrTTY {
			p.line(e.Stage + " ...")
		}
	case stage.Progress:
		if i < 0 {
			return
		}
		r := p.running[i]
		if !p.ui.ErrTTY && e.Detail != "" && e.Detail != r.detail && p.now().Sub(r.told) >= retell {
			r.told = p.now()
			p.line(e.Stage + ": " + e.Detail)
		}
		r.detail = e.Detail
	case stage.Done, stage.Cached, stage.Failed:
		if i >= 0 {
			p.running = slices.Delete(p.running, i, i+1)
		}
		p.ended = append(p.ended, endedStage{e.Stage, e.Kind, e.Took})
		p.line(p.endLine(e))
	}
	p.draw()
}

func (p *Progress) endLine(e stage.Event) string {
	style := p.ui.Notes
	word, mark := "done", style.Good(p.mark("✓", "+"))
	switch e.Kind {
	case stage.Cached:
		word = "cached"
	case stage.Failed:
		word, mark = "failed", style.Bad(p.mark("✗", "x"))
		if errors.As(e.Err, new(*cli.InterruptError)) {
			word, mark = "stopped", style.Warn(p.mark("■", "-"))
		}
	}
	if !p.ui.ErrTTY {
		return fmt.Sprintf("%s %s (%s)", e.Stage, word, Took(e.Took))
	}
	text := mark + " " + e.Stage
	if e.Kind != stage.Done {
		text += " " + word
	}
	return text + style.Dim("  "+Took(e.Took))
}

func (p *Progress) mark(unicode, ascii string) string {
	if p.ui.unicode {
		return unicode
	}
	return ascii
}

// Note writes a line between the stages.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(fmt.Sprintf(format, args...))
	p.draw()
}

// line replaces the moving line by a lasting one.
func (p *Progress) line(text string) {
	p.clear()
	_, _ = io.WriteString(p.ui.Err, text+"\n")
}

func (p *Progress) clear() {
	if p.drawn {
		_, _ = io.WriteString(p.ui.Err, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *Progress) draw() {
	if !p.ui.ErrTTY {
		return
	}
	p.clear()
	if len(p.running) == 0 {
		return
	}
	r := p.running[len(p.running)-1]
	frames := p.mark("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", `|/-\`)
	runes := []rune(frames)
	text := string(runes[p.frame%len(runes)]) + " " + r.name + "  " + Took(p.now().Sub(r.since))
	if r.detail != "" {
		text += "  " + r.detail
	}
	if more := len(p.running) - 1; more > 0 {
		text += fmt.Sprintf("  (+%d)", more)
	}
	// A line that wraps could not be taken back.
	text = cut(strings.ReplaceAll(text, "\n", " "), p.ui.Columns()-1)
	_, _ = io.WriteString(p.ui.Err, text)
	p.drawn = true
}

func cut(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	n := 0
	for i, r := range text {
		n += Width(string(r))
		if n > columns {
			return text[:i]
		}
	}
	return text
}

// Close takes the moving line away. It may be called more than once.
func (p *Progress) Close() {
	p.mu.Lock()
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.clear()
	p.running = nil
	p.mu.Unlock()
	p.stopped.Wait()
	p.ui.mu.Lock()
	if p.ui.progress == p {
		p.ui.progress = nil
	}
	p.ui.mu.Unlock()
}

// Timing is how long one stage took.
type Timing struct {
	Stage   string  `json:"stage"`
	Seconds float64 `json:"seconds"`
	Cached  bool    `json:"cached,omitempty"`
}

// Timings is every stage that has ended, in order.
func (p *Progress) Timings() []Timing {
	p.mu.Lock()
	defer p.mu.Unlock()
	timings := []Timing{}
	for _, e := range p.ended {
		timings = append(timings, Timing{e.name, float64(e.took.Milliseconds()) / 1000, e.kind == stage.Cached})
	}
	return timings
}

// Summary writes where the time went, if there is something to tell.
func (p *Progress) Summary() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var table Table
	table.Indent = "  "
	var rest time.Duration
	short, rows := 0, 0
	for _, e := range p.ended {
		if e.took < notable {
			rest += e.took
			short++
			continue
		}
		note := ""
		if e.kind == stage.Cached {
			note = "cached"
		}
		table.Row(e.name, fmt.Sprintf("%6s", Took(e.took)), note)
		rows++
	}
	if rows < 2 {
		return
	}
	if short > 0 {
		table.Row(fmt.Sprintf("%d short or cached stages", short), fmt.Sprintf("%6s", Took(rest)), "")
	}
	table.Row("all together", fmt.Sprintf("%6s", Took(p.now().Sub(p.start))), "")
	p.clear()
	_, _ = io.WriteString(p.ui.Err, p.ui.Notes.Bold("where the time went")+"\n")
	table.Write(p.ui.Err)
}
