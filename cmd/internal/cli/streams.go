// Package cli is the frame of every program here: streams, exit codes, signals, what is printed when something fails, and
// the debug log.
package cli

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Streams are a program's input and outputs and what is known of them. Results go to Out; everything else to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// InTTY, OutTTY and ErrTTY say which of them are terminals.
	InTTY, OutTTY, ErrTTY bool
	// Columns is the width of the terminal behind Err, 0 where it is none.
	Columns func() int
	// Env is the environment, as os.Getenv reads it.
	Env func(name string) string
}

// OS is the streams of this process.
func OS() Streams {
	isTTY := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return Streams{
		In: os.Stdin, Out: &Results{w: os.Stdout}, Err: os.Stderr,
		InTTY: isTTY(os.Stdin), OutTTY: isTTY(os.Stdout), ErrTTY: isTTY(os.Stderr),
		Columns: func() int {
			width, _, err := term.GetSize(int(os.Stderr.Fd()))
			if err != nil {
				return 0
			}
			return width
		},
		Env: os.Getenv,
	}
}

// CanAsk reports whether there is a person to answer a question.
func (s Streams) CanAsk() bool { return s.InTTY && s.ErrTTY }

// Results writes results, and remembers that one could not be written: most are written line by line, where nobody looks.
type Results struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

// NewResults writes to w.
func NewResults(w io.Writer) *Results { return &Results{w: w} }

// Write implements io.Writer.
func (r *Results) Write(data []byte) (int, error) {
	n, err := r.w.Write(data)
	if err != nil {
		r.mu.Lock()
		if r.err == nil {
			r.err = err
		}
		r.mu.Unlock()
	}
	return n, err
}

// lost is why not all of the results were written, nil where they were.
func (r *Results) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
