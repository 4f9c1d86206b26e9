package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrNotReady says that a Port has nothing to read for now.
var ErrNotReady = errors.New("nothing to read for now")

// Port is the guest's end of the channel.
type Port interface {
	// Read returns io.EOF while no host is connected, and ErrNotReady while the host says nothing; both pass.
	Read(p []byte) (int, error)
	// Write gives up with an error after a bounded time when the host does not read.
	Write(p []byte) (int, error)
	// Wait returns when something may have changed, at the latest after limit or with ctx.
	Wait(ctx context.Context, limit time.Duration)
}

const (
	// idleWait is how long to sleep on a port where nothing happens; a change ends the sleep at once.
	idleWait = 30 * time.Second
	// shortest and longest pause after an EOF, so that a port which keeps waking up cannot make a busy loop.
	firstPause, mostPause = 10 * time.Millisecond, 500 * time.Millisecond
)

// Serve answers requests from port with handle until ctx ends or the port breaks. It outlives hosts that leave and come
// back, and it skips lines that are no requests. log receives one line for each thing worth keeping; it may be nil.
func Serve(ctx context.Context, port Port, handle func(context.Context, Request) Answer, log func(string)) error {
	if log == nil {
		log = func(string) {}
	}
	var lines lineBuffer
	buf := make([]byte, 32<<10)
	pause := firstPause
	for ctx.Err() == nil {
		n, err := port.Read(buf)
		for _, line := range lines.add(buf[:n]) {
			if ans, ok := answer(ctx, line, handle, log); ok {
				if err := send(port, ans); err != nil {
					log("the answer was not taken: " + err.Error())
				}
			}
		}
		switch {
		case n > 0:
			pause = firstPause
		case errors.Is(err, ErrNotReady):
			port.Wait(ctx, idleWait)
		case err == nil || errors.Is(err, io.EOF):
			// Half a line of a host that is gone must not be glued to what the next one says.
			lines.reset()
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(pause*2, mostPause)
			port.Wait(ctx, idleWait)
		default:
			return fmt.Errorf("read from labctl's port: %w", err)
		}
	}
	return context.Cause(ctx)
}

// answer handles one line; false means that it was no request.
func answer(ctx context.Context, line []byte, handle func(context.Context, Request) Answer, log func(string)) (Answer, bool) {
	var req Request
	if err := json.Unmarshal(line, &req); err != nil || req.Nonce == "" {
		if len(bytes.TrimSpace(line)) > 0 {
			log(fmt.Sprintf("skipped %d bytes that are no request", len(line)))
		}
		return Answer{}, false
	}
	ans := handle(ctx, req)
	switch {
	case !ans.OK:
		log(fmt.Sprintf("%s failed: %s", req.Op, ans.Error))
	case req.Op != Ping:
		log(fmt.Sprintf("%s done, clock stepped by %d ms", req.Op, ans.ClockSteppedMillis))
	}
	return ans, true
}

func send(port Port, ans Answer) error {
	line, err := json.Marshal(ans)
	if err != nil {
		return err
	}
	_, err = port.Write(append(line, '\n'))
	return err
}

// lineBuffer cuts a stream into lines and skips those beyond MaxLine.
type lineBuffer struct {
	part     []byte
	skipping bool
}

func (b *lineBuffer) reset() { b.part, b.skipping = nil, false }

// add takes more of the stream and returns the lines that are complete now.
func (b *lineBuffer) add(data []byte) (lines [][]byte) {
	for len(data) > 0 {
		piece, rest, complete := bytes.Cut(data, []byte{'\n'})
		data = rest
		if !b.skipping {
			b.part = append(b.part, piece...)
		}
		if len(b.part) > MaxLine {
			b.part, b.skipping = nil, true
		}
		if complete {
			if !b.skipping {
				lines = append(lines, b.part)
			}
			b.reset()
		}
	}
	return lines
}
