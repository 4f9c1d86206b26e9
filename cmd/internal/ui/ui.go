// Package ui is how results and progress look: tables, colours, JSON documents, questions and stages with their times.
package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
)

// UI writes to a program's streams.
type UI struct {
	cli.Streams
	// Result and Notes style what goes to Out and to Err.
	Result, Notes Style
	unicode       bool

	mu       sync.Mutex
	progress *Progress // the one that is on the screen
}

// New makes a UI. color is auto, always or never; auto means on a terminal that has colours, unless NO_COLOR is set.
func New(s cli.Streams, color string) *UI {
	wanted := func(tty bool) Style {
		switch color {
		case "always":
			return true
		case "never":
			return false
		}
		return Style(tty && s.Env("NO_COLOR") == "" && s.Env("TERM") != "dumb")
	}
	return &UI{Streams: s, Result: wanted(s.OutTTY), Notes: wanted(s.ErrTTY), unicode: utf8Locale(s.Env)}
}

func utf8Locale(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := env(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

// Style says whether words are coloured.
type Style bool

func (s Style) paint(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Good, Bad, Warn, Dim and Bold colour a text.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Bad is for what failed.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Warn is for what is not there yet or could not be asked.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Dim is for what matters less.
func (s Style) Dim(text string) string { return s.paint("2", text) }

// Bold is for headings.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Note writes a line to Err, between the stages where some are shown.
func (u *UI) Note(format string, args ...any) {
	u.mu.Lock()
	progress := u.progress
	u.mu.Unlock()
	if progress != nil {
		progress.Note(format, args...)
		return
	}
	_, _ = fmt.Fprintf(u.Err, format+"\n", args...)
}

// Print writes a line to Out.
func (u *UI) Print(format string, args ...any) {
	_, _ = fmt.Fprintf(u.Out, format+"\n", args...)
}

// JSON writes one document to Out.
func (u *UI) JSON(doc any) error {
	enc := json.NewEncoder(u.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// Schema is the version of a JSON document of a kind, such as labctl.dev/status/v1.
func Schema(kind string) string { return "labctl.dev/" + kind + "/v1" }

// Format is the value of -o.
type Format string

// The formats of a result.
const (
	Text Format = "text"
	JSON Format = "json"
	CSV  Format = "csv"
)

// formatFlag is a flag whose value is one of some formats.
type formatFlag struct {
	value   *Format
	allowed []Format
}

func (f formatFlag) String() string { return string(*f.value) }

func (f formatFlag) Set(text string) error {
	if !slices.Contains(f.allowed, Format(text)) {
		return fmt.Errorf("%q is not a format; use %s", text, f.sentence())
	}
	*f.value = Format(text)
	return nil
}

func (f formatFlag) sentence() string {
	last := len(f.allowed) - 1
	return formatFlag{allowed: f.allowed[:last]}.join(", ") + " or " + string(f.allowed[last])
}

// Type names the flag's values in help texts.
func (f formatFlag) Type() string { return f.join("|") }

func (f formatFlag) join(sep string) string {
	words := make([]string, len(f.allowed))
	for i, format := range f.allowed {
		words[i] = string(format)
	}
	return strings.Join(words, sep)
}

// AddFormat adds -o to a command that prints a result, as text, as JSON, or in more formats.
func AddFormat(cmd *cobra.Command, f *Format, more ...Format) {
	*f = Text
	flag := formatFlag{f, append([]Format{Text, JSON}, more...)}
	cmd.Flags().VarP(flag, "output", "o", "format of the result")
	var words []cobra.Completion
	for _, format := range flag.allowed {
		words = append(words, string(format))
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// Confirm asks a yes-or-no question on the terminal and returns the answer; anything but yes is no. ctx ends the wait.
func (u *UI) Confirm(ctx context.Context, question string) (bool, error) {
	_, _ = fmt.Fprintf(u.Err, "%s [y/N] ", question)
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(u.In).ReadString('\n')
		answers <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case a := <-answers:
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return false, fmt.Errorf("read the answer: %w", a.err)
		}
		switch strings.ToLower(strings.TrimSpace(a.line)) {
		case "y", "yes":
			return true, nil
		}
		return false, nil
	}
}

// Took writes a duration for people: 0.4s, 12s, 3m20s, 1h05m.
func Took(d time.Duration) string {
	switch {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Bytes writes a number of bytes for people: 812 MiB, 1.4 GiB.
func Bytes(n int64) string {
	const mib = 1 << 20
	switch {
	case n < mib:
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	case n < 1024*mib:
		return fmt.Sprintf("%d MiB", n/mib)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1024*mib))
}
