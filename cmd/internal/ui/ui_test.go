package ui_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
)

// screen is a UI whose outputs are kept.
func screen(tty bool, color string, env map[string]string) (u *ui.UI, out, errOut *bytes.Buffer) {
	out, errOut = new(bytes.Buffer), new(bytes.Buffer)
	return ui.New(cli.Streams{
		In: strings.NewReader(""), Out: out, Err: errOut, OutTTY: tty, ErrTTY: tty,
		Columns: func() int { return 40 },
		Env:     func(name string) string { return env[name] },
	}, color), out, errOut
}

func TestColoursOnlyWhereTheyAreWanted(t *testing.T) {
	for _, tc := range []struct {
		tty   bool
		color string
		env   map[string]string
		want  bool
	}{
		{tty: true, color: "auto", want: true},
		{tty: false, color: "auto"},
		{tty: true, color: "auto", env: map[string]string{"NO_COLOR": "1"}},
		{tty: true, color: "auto", env: map[string]string{"TERM": "dumb"}},
		{tty: true, color: "never"},
		{tty: false, color: "always", want: true},
	} {
		u, _, _ := screen(tc.tty, tc.color, tc.env)
		require.Equal(t, tc.want, u.Result.Good("yes") != "yes", "%+v", tc)
		require.Equal(t, tc.want, bool(u.Notes), "%+v", tc)
	}
}

func TestTableAlignsWideLettersAndColours(t *testing.T) {
	var table ui.Table
	table.Indent = "  "
	table.Row("NAME", "WHAT")
	table.Cells(ui.Cell{Text: "저장소", Paint: ui.Style(true).Good}, ui.Cell{Text: "Korean"})
	table.Row("ab", "")
	var b bytes.Buffer
	table.Write(&b)
	require.Equal(t, "  NAME    WHAT\n  \x1b[32m저장소\x1b[0m  Korean\n  ab\n", b.String())
}

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 440 * time.Millisecond: "0.4s", 9940 * time.Millisecond: "9.9s", 9960 * time.Millisecond: "10s", 59400 * time.Millisecond: "59s",
		59600 * time.Millisecond: "1m00s", 200 * time.Second: "3m20s", time.Hour + 5*time.Minute: "1h05m",
	} {
		require.Equal(t, want, ui.Took(d))
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 KiB", 1: "1 KiB", 5 << 20: "5 MiB", 3 << 29: "1.5 GiB"} {
		require.Equal(t, want, ui.Bytes(n))
	}
}

// clock moves by hand.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func TestPlainProgress(t *testing.T) {
	u, out, errOut := screen(false, "auto", nil)
	c := &clock{time.Unix(0, 0)}
	p := u.NewProgress()
	p.SetNow(c.now)
	sink := p.Sink("image")
	sink(stage.Event{Kind: stage.Started, Stage: "kernel"})
	sink(stage.Event{Kind: stage.Progress, Stage: "kernel", Detail: "unpack"})
	sink(stage.Event{Kind: stage.Progress, Stage: "kernel", Detail: "unpack 2"}) // too soon to tell
	c.t = c.t.Add(16 * time.Second)
	sink(stage.Event{Kind: stage.Progress, Stage: "kernel", Detail: "unpack 2"}) // told before, if not shown: nothing new
	sink(stage.Event{Kind: stage.Progress, Stage: "kernel", Detail: "strip"})
	sink(stage.Event{Kind: stage.Done, Stage: "kernel", Took: 16 * time.Second})
	sink(stage.Event{Kind: stage.Cached, Stage: "k3s", Took: time.Millisecond})
	p.Note("a word between")
	sink(stage.Event{Kind: stage.Failed, Stage: "disk", Took: 2 * time.Second, Err: errors.New("x")})
	sink(stage.Event{Kind: stage.Failed, Stage: "boot", Took: 2 * time.Second, Err: fmt.Errorf("wait: %w", &cli.InterruptError{Signal: "Ctrl-C"})})
	p.Close()
	p.Close()
	p.Summary()
	require.Empty(t, out.String(), "progress is not a result")
	require.Equal(t, `image: kernel ...
image: kernel: unpack
image: kernel: strip
image: kernel done (16s)
image: k3s cached (0.0s)
a word between
image: disk failed (2.0s)
image: boot stopped (2.0s)
where the time went
  image: kernel                16s
  image: disk                 2.0s
  image: boot                 2.0s
  1 short or cached stages    0.0s
  all together                 16s
`, errOut.String())
	require.Equal(t, []ui.Timing{{Stage: "image: kernel", Seconds: 16}, {Stage: "image: k3s", Seconds: 0.001, Cached: true}, {Stage: "image: disk", Seconds: 2}, {Stage: "image: boot", Seconds: 2}}, p.Timings())
}

func TestSummaryOfOneStageSaysNothing(t *testing.T) {
	u, _, errOut := screen(false, "auto", nil)
	p := u.NewProgress()
	p.Sink("")(stage.Event{Kind: stage.Done, Stage: "start", Took: time.Minute})
	p.Close()
	errOut.Reset()
	p.Summary()
	require.Empty(t, errOut.String())
}

func TestMovingLineNeverWrapsAndIsTakenAway(t *testing.T) {
	u, _, errOut := screen(true, "never", map[string]string{"LANG": "en_US.UTF-8"})
	c := &clock{time.Unix(0, 0)}
	p := u.NewProgress()
	p.SetNow(c.now)
	p.Close() // only Tick moves it from here
	errOut.Reset()
	sink := p.Sink("")
	sink(stage.Event{Kind: stage.Started, Stage: "kernel"})
	c.t = c.t.Add(3 * time.Second)
	sink(stage.Event{Kind: stage.Progress, Stage: "kernel", Detail: strings.Repeat("very ", 20) + "long"})
	p.Tick()
	for _, line := range strings.Split(errOut.String(), "\r\x1b[K") {
		require.LessOrEqual(t, ui.Width(line), 39, line)
	}
	sink(stage.Event{Kind: stage.Done, Stage: "kernel", Took: 3 * time.Second})
	require.True(t, strings.HasSuffix(errOut.String(), "\r\x1b[K✓ kernel  3.0s\n"), "%q", errOut.String())
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "no\n": false, "yess\n": false, "": false, "y": true} {
		u, _, errOut := screen(true, "never", nil)
		u.In = strings.NewReader(answer)
		got, err := u.Confirm(t.Context(), "Remove it?")
		require.NoError(t, err)
		require.Equal(t, want, got, "%q", answer)
		require.Equal(t, "Remove it? [y/N] ", errOut.String())
	}
	u, _, _ := screen(true, "never", nil)
	in, _ := io.Pipe() // nobody answers
	u.In = in
	why := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := u.Confirm(ctx, "?")
	require.ErrorIs(t, err, why)
}

func TestFormat(t *testing.T) {
	var f, g ui.Format
	plain, more := &cobra.Command{}, &cobra.Command{}
	ui.AddFormat(plain, &f)
	ui.AddFormat(more, &g, ui.CSV)
	require.Equal(t, ui.Text, f)
	require.NoError(t, plain.Flags().Set("output", "json"))
	require.Equal(t, ui.JSON, f)
	require.ErrorContains(t, plain.Flags().Set("output", "csv"), `"csv" is not a format; use text or json`)
	require.NoError(t, more.Flags().Set("output", "csv"))
	require.Equal(t, ui.CSV, g)
}
