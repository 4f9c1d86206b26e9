package identity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
)

// port gives one scripted read after the other and ends ctx when the script is over.
type port struct {
	reads []any // string, or error
	end   context.CancelFunc
	waits int
	wrote bytes.Buffer
	deaf  error
}

func (p *port) Read(buf []byte) (int, error) {
	if len(p.reads) == 0 {
		p.end()
		return 0, identity.ErrNotReady
	}
	next := p.reads[0]
	p.reads = p.reads[1:]
	if err, isErr := next.(error); isErr {
		return 0, err
	}
	n := copy(buf, next.(string))
	if rest := next.(string)[n:]; rest != "" {
		p.reads = append([]any{rest}, p.reads...)
	}
	return n, nil
}

func (p *port) Write(data []byte) (int, error) {
	if p.deaf != nil {
		return 0, p.deaf
	}
	return p.wrote.Write(data)
}

func (p *port) Wait(context.Context, time.Duration) { p.waits++ }

// serve runs the script and gives the nonces that were answered.
func serve(t *testing.T, p *port) (answered []string, logged []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p.end = cancel
	err := identity.Serve(ctx, p, func(_ context.Context, r identity.Request) identity.Answer {
		return identity.Answer{Nonce: r.Nonce, OK: r.Op == identity.Ping, Error: string(r.Op)}
	}, func(line string) { logged = append(logged, line) })
	require.ErrorIs(t, err, context.Canceled)
	for line := range strings.Lines(p.wrote.String()) {
		var ans identity.Answer
		require.NoError(t, json.Unmarshal([]byte(line), &ans))
		answered = append(answered, ans.Nonce)
	}
	return answered, logged
}

func ping(nonce string) string { return fmt.Sprintf("{\"op\":\"ping\",\"nonce\":%q}\n", nonce) }

func TestServeAnswersLines(t *testing.T) {
	one := ping("c")
	p := &port{reads: []any{ping("a") + ping("b"), one[:5], one[5:9], identity.ErrNotReady, one[9:], strings.TrimSuffix(ping("d"), "\n") + "\r\n"}}
	answered, logged := serve(t, p)
	require.Equal(t, []string{"a", "b", "c", "d"}, answered)
	require.Empty(t, logged, "pings are not worth a line")
}

func TestServeSkipsGarbage(t *testing.T) {
	p := &port{reads: []any{
		"\n\n", "login: root\n", "{\"op\":\"ping\"}\n", "[1]\n", "{\"nonce\":5}\n", "\x00\xff\n", ping("a"),
		strings.Repeat("x", identity.MaxLine) + "yyy", "still the same line\n", ping("b"),
	}}
	answered, logged := serve(t, p)
	require.Equal(t, []string{"a", "b"}, answered)
	require.Len(t, logged, 5)
	require.Contains(t, logged[0], "skipped 11 bytes")
}

func TestServeOutlivesHosts(t *testing.T) {
	p := &port{reads: []any{io.EOF, io.EOF, ping("a"), ping("half")[:10], io.EOF, ping("b"), io.EOF, ping("c")}}
	answered, _ := serve(t, p)
	require.Equal(t, []string{"a", "b", "c"}, answered, "half a line of a host that is gone is dropped")
	require.GreaterOrEqual(t, p.waits, 4, "it sleeps while no host is there")
}

func TestServeLogsFailuresButNoSecrets(t *testing.T) {
	p := &port{reads: []any{`{"op":"personalise","nonce":"a","hostKey":"SECRET"}` + "\n"}}
	answered, logged := serve(t, p)
	require.Equal(t, []string{"a"}, answered)
	require.Equal(t, []string{"personalise failed: personalise"}, logged)
}

func TestServeGoesOnWhenTheHostIsDeaf(t *testing.T) {
	p := &port{reads: []any{ping("a"), ping("b")}, deaf: errors.New("the host did not read for 5s")}
	_, logged := serve(t, p)
	require.Len(t, logged, 2)
	require.Contains(t, logged[0], "did not read")
}

func TestServeEndsWithABrokenPort(t *testing.T) {
	broken := errors.New("input/output error")
	p := &port{reads: []any{broken}, end: func() {}}
	require.ErrorIs(t, identity.Serve(t.Context(), p, nil, nil), broken)
}

// TestServeDoesNotSpin: a port that says EOF and never sleeps must not cost a core.
func TestServeDoesNotSpin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	p := &eofPort{}
	require.Error(t, identity.Serve(ctx, p, nil, nil))
	require.LessOrEqual(t, p.count(), 10)
	require.GreaterOrEqual(t, p.count(), 3)
}

type eofPort struct {
	mu sync.Mutex
	n  int
}

func (p *eofPort) Read([]byte) (int, error)            { p.mu.Lock(); p.n++; p.mu.Unlock(); return 0, io.EOF }
func (p *eofPort) Write(data []byte) (int, error)      { return len(data), nil }
func (p *eofPort) Wait(context.Context, time.Duration) {}
func (p *eofPort) count() int                          { p.mu.Lock(); defer p.mu.Unlock(); return p.n }
