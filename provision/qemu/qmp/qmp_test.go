package qmp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision/qemu/qmp"
)

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}`

// peer plays QEMU: it checks each command against the script and answers.
type peer struct {
	t    *testing.T
	conn net.Conn
	dec  *json.Decoder
}

func newPeer(t *testing.T) (*peer, net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return &peer{t: t, conn: theirs, dec: json.NewDecoder(theirs)}, ours
}

func (p *peer) say(text string) { _, _ = io.WriteString(p.conn, text+"\r\n") }

// expect reads one command, which must be this one with these arguments ("" for none), and returns its id.
func (p *peer) expect(command, args string) string {
	var got struct {
		Execute   string          `json:"execute"`
		Arguments json.RawMessage `json:"arguments"`
		ID        string          `json:"id"`
	}
	if err := p.dec.Decode(&got); err != nil {
		p.t.Errorf("peer: read %s: %v", command, err)
		return ""
	}
	if got.Execute != command || string(got.Arguments) != args || got.ID == "" {
		p.t.Errorf("peer: got %+v (arguments %s), wanted %s %s", got, got.Arguments, command, args)
	}
	return got.ID
}

func (p *peer) ret(id, value string) { p.say(fmt.Sprintf(`{"return": %s, "id": %q}`, value, id)) }

// connect runs the handshake, then the rest of the script, and gives the client.
func connect(t *testing.T, script func(p *peer)) *qmp.Client {
	t.Helper()
	p, conn := newPeer(t)
	var done sync.WaitGroup
	done.Go(func() {
		p.say(greeting)
		p.ret(p.expect("qmp_capabilities", ""), "{}")
		script(p)
	})
	c, err := qmp.New(t.Context(), conn)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		done.Wait()
	})
	return c
}

func TestHandshakeAndExecute(t *testing.T) {
	c := connect(t, func(p *peer) {
		p.ret(p.expect("query-status", ""), `{"running": true, "status": "running"}`)
		p.ret(p.expect("block_resize", `{"node-name":"root","size":4096}`), `{}`)
	})
	require.Equal(t, "7.2.22", c.Version().String())
	var status struct{ Status string }
	require.NoError(t, c.Execute(t.Context(), "query-status", nil, &status))
	require.Equal(t, "running", status.Status)
	require.NoError(t, c.Execute(t.Context(), "block_resize", map[string]any{"node-name": "root", "size": 4096}, nil))
}

func TestRefusalIsTyped(t *testing.T) {
	c := connect(t, func(p *peer) {
		id := p.expect("nonsense", "")
		p.say(fmt.Sprintf(`{"id": %q, "error": {"class": "CommandNotFound", "desc": "The command nonsense has not been found"}}`, id))
	})
	err := c.Execute(t.Context(), "nonsense", nil, nil)
	var refused *qmp.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, qmp.Error{Command: "nonsense", Class: "CommandNotFound", Desc: "The command nonsense has not been found"}, *refused)
	require.ErrorContains(t, err, "QEMU refused nonsense")
}

func TestRepliesAreMatchedByID(t *testing.T) {
	c := connect(t, func(p *peer) {
		// Two commands are under way at once, in either order; the one that came first is answered last.
		var first, second struct{ Execute, ID string }
		if err := errors.Join(p.dec.Decode(&first), p.dec.Decode(&second)); err != nil {
			t.Error(err)
		}
		p.say(`{"event": "RESUME", "timestamp": {"seconds": 1, "microseconds": 500000}}`)
		p.ret("labctl-999", `"nobody waits for this"`)
		p.ret(second.ID, fmt.Sprintf(`{"name": %q}`, second.Execute))
		p.ret(first.ID, fmt.Sprintf(`{"name": %q}`, first.Execute))
	})
	var wg sync.WaitGroup
	for _, command := range []string{"query-name", "query-status"} {
		wg.Go(func() {
			var got struct{ Name string }
			if err := c.Execute(t.Context(), command, nil, &got); err != nil || got.Name != command {
				t.Errorf("%s: got the reply to %q, %v", command, got.Name, err)
			}
		})
	}
	wg.Wait()
	e := <-c.Events()
	require.Equal(t, "RESUME", e.Name)
	require.Equal(t, time.Unix(1, 500000000), e.Time)
}

func TestUnreadEventsDoNotBlockReplies(t *testing.T) {
	c := connect(t, func(p *peer) {
		id := p.expect("stop", "")
		for i := range 200 {
			p.say(fmt.Sprintf(`{"event": "E%d", "data": {"i": %d}, "timestamp": {"seconds": 1, "microseconds": 0}}`, i, i))
		}
		p.ret(id, "{}")
	})
	require.NoError(t, c.Execute(t.Context(), "stop", nil, nil))
	e := <-c.Events()
	require.Equal(t, "E136", e.Name, "the newest 64 are kept")
	require.JSONEq(t, `{"i": 136}`, string(e.Data))
}

func TestDeadline(t *testing.T) {
	c := connect(t, func(p *peer) {
		late := p.expect("stop", "")
		id := p.expect("cont", "")
		p.ret(late, "{}") // answered after its caller gave up: dropped
		p.ret(id, "{}")
	})
	why := errors.New("took too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, why)
	defer cancel()
	err := c.Execute(ctx, "stop", nil, nil)
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err, "stop")
	require.NoError(t, c.Execute(t.Context(), "cont", nil, nil), "the connection is still good")
}

func TestPeerThatDies(t *testing.T) {
	c := connect(t, func(p *peer) {
		p.expect("system_powerdown", "")
		p.conn.Close()
	})
	err := c.Execute(t.Context(), "system_powerdown", nil, nil)
	require.ErrorIs(t, err, qmp.ErrClosed)
	<-c.Closed()
	_, open := <-c.Events()
	require.False(t, open)
	require.ErrorIs(t, c.Execute(t.Context(), "query-status", nil, nil), qmp.ErrClosed)
}

// anyWrite is a connection whose writes go well even when its reader has seen the end.
type anyWrite struct{ net.Conn }

func (c anyWrite) Write(b []byte) (int, error) {
	_, _ = c.Conn.Write(b)
	return len(b), nil
}

// meanwhile is an argument; encoding it does something while the command is already waited for.
type meanwhile func()

func (m meanwhile) MarshalJSON() ([]byte, error) {
	m()
	return []byte("{}"), nil
}

func TestTheLastAnswerCounts(t *testing.T) {
	// Both the answer and the end are there when the caller looks, and select takes either.
	for range 20 {
		p, conn := newPeer(t)
		go func() {
			p.say(greeting)
			p.ret(p.expect("qmp_capabilities", ""), "{}")
		}()
		c, err := qmp.New(t.Context(), anyWrite{conn})
		require.NoError(t, err)
		answered := meanwhile(func() {
			p.ret("labctl-2", "{}")
			p.conn.Close()
			<-c.Closed()
		})
		require.NoError(t, c.Execute(t.Context(), "system_powerdown", answered, nil))
		require.NoError(t, c.Close())
	}
}

func TestCloseEndsWaitingCommands(t *testing.T) {
	asked := make(chan struct{})
	c := connect(t, func(p *peer) {
		p.expect("query-status", "")
		close(asked)
	})
	done := make(chan error, 1)
	go func() { done <- c.Execute(t.Context(), "query-status", nil, nil) }()
	<-asked
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-done, qmp.ErrClosed)
	require.NoError(t, c.Close(), "closing twice is no error")
}

func TestNoGreeting(t *testing.T) {
	_, conn := newPeer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := qmp.New(ctx, conn)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "another client")
	_, err = conn.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "the connection is closed on failure")
}

func TestBadPeers(t *testing.T) {
	for name, script := range map[string]func(p *peer){
		"hangs up":    func(p *peer) { p.conn.Close() },
		"no JSON":     func(p *peer) { p.say("SSH-2.0-OpenSSH"); p.conn.Close() },
		"no capacity": func(p *peer) { p.say(greeting); p.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p, conn := newPeer(t)
			go script(p)
			_, err := qmp.New(t.Context(), conn)
			require.ErrorIs(t, err, qmp.ErrClosed)
		})
	}
}

func TestUnusableReply(t *testing.T) {
	c := connect(t, func(p *peer) { p.ret(p.expect("query-status", ""), `"text"`) })
	var status struct{ Status string }
	require.ErrorContains(t, c.Execute(t.Context(), "query-status", nil, &status), "decode the reply to query-status")
	require.ErrorContains(t, c.Execute(t.Context(), "x", make(chan int), nil), "encode x")
}

func TestDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qmp.sock")
	_, err := qmp.Dial(t.Context(), path)
	require.ErrorContains(t, err, "connect to QEMU's monitor")

	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		p := &peer{t: t, conn: conn, dec: json.NewDecoder(conn)}
		p.say(greeting)
		p.ret(p.expect("qmp_capabilities", ""), "{}")
	}()
	c, err := qmp.Dial(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}
