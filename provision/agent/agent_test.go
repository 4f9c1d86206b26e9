package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
	"github.com/cgoa-labs/labctl/provision/agent"
)

var ada = agent.Identity{Hostname: "ada", MachineID: strings.Repeat("ab", 16), HostKey: "key", AuthorizedKeys: "ssh-ed25519 AAAA"}

// guest plays the agent: for each connection one function, the last one again and again.
type guest struct {
	socket string
	mu     sync.Mutex
	seen   []identity.Request
}

func newGuest(t *testing.T, talks ...func(g *guest, in *bufio.Scanner, out io.Writer)) *guest {
	g := &guest{socket: filepath.Join(t.TempDir(), "agent.sock")}
	listener, err := net.Listen("unix", g.socket)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			in := bufio.NewScanner(conn)
			in.Buffer(nil, identity.MaxLine)
			talks[min(i, len(talks)-1)](g, in, conn)
			conn.Close()
		}
	}()
	return g
}

// next reads a request, skipping blank lines.
func (g *guest) next(in *bufio.Scanner) (identity.Request, bool) {
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		var req identity.Request
		_ = json.Unmarshal(in.Bytes(), &req)
		g.mu.Lock()
		g.seen = append(g.seen, req)
		g.mu.Unlock()
		return req, true
	}
	return identity.Request{}, false
}

func say(out io.Writer, ans identity.Answer) {
	line, _ := json.Marshal(ans)
	fmt.Fprintf(out, "%s\n", line)
}

// willing answers everything, after some noise of others.
func willing(g *guest, in *bufio.Scanner, out io.Writer) {
	for {
		req, ok := g.next(in)
		if !ok {
			return
		}
		fmt.Fprintf(out, "garbage\n{\"nonce\":\"another's\",\"ok\":false}\n")
		say(out, identity.Answer{Nonce: req.Nonce, OK: true, Hostname: req.Hostname})
	}
}

func hangUp(*guest, *bufio.Scanner, io.Writer) {}

func silent(g *guest, in *bufio.Scanner, _ io.Writer) {
	for {
		if _, ok := g.next(in); !ok {
			return
		}
	}
}

func refuse(reason string) func(*guest, *bufio.Scanner, io.Writer) {
	return func(g *guest, in *bufio.Scanner, out io.Writer) {
		for {
			req, ok := g.next(in)
			if !ok {
				return
			}
			say(out, identity.Answer{Nonce: req.Nonce, OK: req.Op == identity.Ping, Error: reason})
		}
	}
}

func TestPersonalise(t *testing.T) {
	g := newGuest(t, willing)
	ans, err := agent.Personalise(t.Context(), g.socket, ada, agent.Options{Timeout: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "ada", ans.Hostname)
	require.Len(t, g.seen, 2)
	require.Equal(t, identity.Ping, g.seen[0].Op)
	got := g.seen[1]
	require.Equal(t, identity.Personalise, got.Op)
	require.Len(t, got.Entropy, identity.EntropyBytes)
	require.InDelta(t, time.Now().UnixNano(), got.Now, float64(time.Minute))
	require.Equal(t, ada, agent.Identity{Hostname: got.Hostname, MachineID: got.MachineID, HostKey: got.HostKey, AuthorizedKeys: got.AuthorizedKeys})
	require.NotEmpty(t, got.Nonce)
	require.NotEqual(t, g.seen[0].Nonce, got.Nonce)
}

// TestABootingGuest: hang-ups, silence and refusals are what a guest that still boots looks like.
func TestABootingGuest(t *testing.T) {
	g := newGuest(t, hangUp, silent, refuse("systemd is not up"), willing)
	ans, err := agent.Personalise(t.Context(), g.socket, ada, agent.Options{Timeout: time.Minute, Attempt: 50 * time.Millisecond})
	require.NoError(t, err)
	require.True(t, ans.OK)
	nonces := map[string]bool{}
	for _, req := range g.seen {
		require.False(t, nonces[req.Nonce], "each try has its own nonce")
		nonces[req.Nonce] = true
	}
}

func TestGivingUpSaysWhy(t *testing.T) {
	opts := agent.Options{Timeout: 100 * time.Millisecond, Attempt: 30 * time.Millisecond}
	for want, talk := range map[string]func(*guest, *bufio.Scanner, io.Writer){
		"the connection to the guest ended":                                  hangUp,
		"ping: no answer within 30ms":                                        silent,
		"the guest's agent could not personalise: write /etc: no space left": refuse("write /etc: no space left"),
	} {
		_, err := agent.Personalise(t.Context(), newGuest(t, talk).socket, ada, opts)
		require.ErrorContains(t, err, "did not answer within 100ms")
		require.ErrorContains(t, err, want)
	}
	var refused *agent.RefusedError
	_, err := agent.Personalise(t.Context(), newGuest(t, refuse("no")).socket, ada, opts)
	require.ErrorAs(t, err, &refused)
	_, err = agent.Personalise(t.Context(), filepath.Join(t.TempDir(), "none"), ada, opts)
	require.ErrorContains(t, err, "connect to the guest's agent")
}

func TestInterrupt(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	g := newGuest(t, func(*guest, *bufio.Scanner, io.Writer) { cancel(why); <-t.Context().Done() })
	_, err := agent.Personalise(ctx, g.socket, ada, agent.Options{Timeout: time.Hour, Attempt: time.Hour})
	require.ErrorIs(t, err, why)
}

func TestPowerOff(t *testing.T) {
	g := newGuest(t, willing)
	require.NoError(t, agent.PowerOff(t.Context(), g.socket))
	require.Equal(t, identity.PowerOff, g.seen[0].Op)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, agent.PowerOff(ctx, newGuest(t, silent).socket), context.DeadlineExceeded)
	require.ErrorContains(t, agent.PowerOff(t.Context(), newGuest(t, refuse("no systemd")).socket), "could not poweroff: no systemd")
	require.Error(t, agent.PowerOff(t.Context(), filepath.Join(t.TempDir(), "none")))
}
