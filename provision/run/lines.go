package run

import (
	"bytes"
	"io"
	"sync"
)

// Lines hands on what is written to it line by line. It is safe for concurrent use.
type Lines struct {
	// Each is called for every line, one after another, without its line break.
	Each func(line string)

	mu   sync.Mutex
	part []byte
}

var _ io.Writer = (*Lines)(nil)

// Write implements io.Writer. It never fails.
func (l *Lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, data...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(data), nil
		}
		l.part = rest
		l.Each(string(line))
	}
}

// Flush hands on what did not end with a line break.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.part) > 0 {
		l.Each(string(l.part))
		l.part = nil
	}
}
