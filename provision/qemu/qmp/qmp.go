// Package qmp speaks the QEMU Machine Protocol over any ReadWriteCloser.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// DefaultTimeout bounds a command whose ctx has no deadline, and the greeting.
const DefaultTimeout = 10 * time.Second

// keptEvents is how many unread events are kept; older ones are dropped, so that a caller who does not read them cannot
// block the replies behind them.
const keptEvents = 64

// ErrClosed says that the connection ended before the reply came.
var ErrClosed = errors.New("the QMP connection is closed")

// Error is QEMU's refusal of a command.
type Error struct {
	Command string
	Class   string
	Desc    string
}

func (e *Error) Error() string {
	return fmt.Sprintf("QEMU refused %s: %s (%s)", e.Command, e.Desc, e.Class)
}

// Event is something that QEMU reported by itself.
type Event struct {
	Name string
	Data json.RawMessage
	Time time.Time
}

// Version is QEMU's version as it greets.
type Version struct{ Major, Minor, Micro int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// Client is one connection. It is safe for concurrent use.
type Client struct {
	conn    io.ReadWriteCloser
	version Version
	events  chan Event

	writing sync.Mutex
	mu      sync.Mutex
	next    int
	waiting map[string]chan message
	// closed is closed when the reader has ended; cause says why.
	closed chan struct{}
	cause  error
}

// message is every shape that QEMU sends.
type message struct {
	Greeting *struct {
		Version struct {
			QEMU Version `json:"qemu"`
		} `json:"version"`
	} `json:"QMP"`
	ID     string          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

// Dial connects to the monitor socket at path and makes the connection ready for commands.
func Dial(ctx context.Context, path string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to QEMU's monitor: %w", err)
	}
	return New(ctx, conn)
}

// New waits for QEMU's greeting on conn and leaves the negotiation mode. It owns conn from then on, and closes it on failure.
func New(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	ctx, cancel := withDefault(ctx)
	defer cancel()
	c := &Client{conn: conn, events: make(chan Event, keptEvents), waiting: map[string]chan message{}, closed: make(chan struct{})}
	greeted := make(chan message, 1)
	go c.read(greeted)
	select {
	case hello := <-greeted:
		c.version = hello.Greeting.Version.QEMU
	case <-c.closed:
		return nil, errors.Join(c.err("greeting"), conn.Close())
	case <-ctx.Done():
		_ = c.Close()
		// A monitor serves one client at a time and lets the next wait without a word.
		return nil, fmt.Errorf("QEMU's monitor did not greet (is another client connected?): %w", context.Cause(ctx))
	}
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func withDefault(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, DefaultTimeout, fmt.Errorf("no answer within %s", DefaultTimeout))
}

// Version is QEMU's version.
func (c *Client) Version() Version { return c.version }

// Events are what QEMU reports by itself; the channel is closed with the connection. Unread events beyond 64 push out the oldest.
func (c *Client) Events() <-chan Event { return c.events }

// Closed is closed when the connection has ended, such as when QEMU has.
func (c *Client) Closed() <-chan struct{} { return c.closed }

// Close ends the connection; commands that still wait return ErrClosed. Closing twice is no error.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = ErrClosed
	}
	c.mu.Unlock()
	err := c.conn.Close()
	<-c.closed
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// Execute runs one command and decodes its reply into result, which may be nil; args may be nil too. It returns *Error when
// QEMU refuses, an error wrapping ErrClosed when the connection ends first, and ctx's cause when ctx does.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	ctx, cancel := withDefault(ctx)
	defer cancel()
	id, reply := c.expect()
	defer c.forget(id)
	request := struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        string `json:"id"`
	}{command, args, id}
	line, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode %s: %w", command, err)
	}
	written := make(chan error, 1)
	go func() { written <- c.write(append(line, '\n')) }()
	for {
		select {
		case err := <-written:
			if err != nil {
				return fmt.Errorf("send %s: %w: %w", command, ErrClosed, err)
			}
			written = nil
		case msg := <-reply:
			return msg.decode(command, result)
		case <-c.closed:
			// QEMU may answer and end at once; what it said counts.
			select {
			case msg := <-reply:
				return msg.decode(command, result)
			default:
				return c.err(command)
			}
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", command, context.Cause(ctx))
		}
	}
}

// decode reads a reply to command into result, which may be nil.
func (m message) decode(command string, result any) error {
	switch {
	case m.Error != nil:
		return &Error{Command: command, Class: m.Error.Class, Desc: m.Error.Desc}
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(m.Return, result); err != nil {
		return fmt.Errorf("decode the reply to %s: %w", command, err)
	}
	return nil
}

func (c *Client) err(doing string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.cause, ErrClosed) {
		return fmt.Errorf("%s: %w", doing, ErrClosed)
	}
	return fmt.Errorf("%s: %w: %w", doing, ErrClosed, c.cause)
}

func (c *Client) expect() (string, chan message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	id, reply := "labctl-"+strconv.Itoa(c.next), make(chan message, 1)
	c.waiting[id] = reply
	return id, reply
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Client) write(line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.conn.Write(line)
	return err
}

// read passes messages on until the connection ends. A reply that nobody waits for any more is dropped.
func (c *Client) read(greeted chan<- message) {
	defer close(c.closed)
	defer close(c.events)
	dec := json.NewDecoder(bufio.NewReader(c.conn))
	for {
		var msg message
		if err := dec.Decode(&msg); err != nil {
			c.mu.Lock()
			if c.cause == nil {
				c.cause = err
			}
			c.mu.Unlock()
			return
		}
		switch {
		case msg.Greeting != nil:
			select {
			case greeted <- msg:
			default:
			}
		case msg.Event != "":
			c.keep(Event{Name: msg.Event, Data: msg.Data, Time: time.Unix(msg.Timestamp.Seconds, msg.Timestamp.Microseconds*1000)})
		default:
			c.mu.Lock()
			if reply, ok := c.waiting[msg.ID]; ok {
				reply <- msg
				delete(c.waiting, msg.ID)
			}
			c.mu.Unlock()
		}
	}
}

// keep has one caller, the reader, so that after the oldest event is dropped there is room.
func (c *Client) keep(e Event) {
	for {
		select {
		case c.events <- e:
			return
		default:
		}
		select {
		case <-c.events:
		default:
		}
	}
}
