// Package agent talks to the guest's agent, which gives the guest its identity, over the socket of its serial port.
package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Identity is what makes a guest one of its own.
type Identity struct {
	Hostname, MachineID string
	// HostKey is the SSH host key, a private key in PEM form.
	HostKey string
	// AuthorizedKeys are the keys that may log in, one a line.
	AuthorizedKeys string
}

// Options bound the talk.
type Options struct {
	// Timeout bounds the whole of it, waiting for the guest to boot included.
	Timeout time.Duration
	// Attempt bounds one connection's try, by default 15 s. A question waits in the port for a guest that still boots, so
	// that a try should not be short.
	Attempt time.Duration
	// Clock is the real one where nil.
	Clock check.Clock
}

// RefusedError says that the agent answered, and that it could not do what it was asked.
type RefusedError struct {
	Op     identity.Op
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the guest's agent could not %s: %s", e.Op, e.Reason)
}

// Personalise gives the guest behind socket its identity, and tries again until it worked or the time is over; then the
// error has the last reason.
func Personalise(ctx context.Context, socket string, id Identity, opts Options) (identity.Answer, error) {
	var answer identity.Answer
	err := opts.until(ctx, "the guest's agent", func(ctx context.Context) error {
		t, err := connect(ctx, socket)
		if err != nil {
			return err
		}
		defer t.close()
		// Only an agent that listens gets the identity: the time and the entropy in it must be fresh when they arrive.
		if _, err := t.ask(ctx, identity.Request{Op: identity.Ping}); err != nil {
			return err
		}
		entropy := make([]byte, identity.EntropyBytes)
		_, _ = rand.Read(entropy) // never fails, see crypto/rand
		answer, err = t.ask(ctx, identity.Request{
			Op: identity.Personalise, Now: time.Now().UnixNano(), Entropy: entropy,
			Hostname: id.Hostname, MachineID: id.MachineID, HostKey: id.HostKey, AuthorizedKeys: id.AuthorizedKeys,
		})
		return err
	})
	return answer, err
}

// PowerOff asks the guest to power off, once. It returns when the agent took the order, not when the guest is off.
func PowerOff(ctx context.Context, socket string) error {
	t, err := connect(ctx, socket)
	if err != nil {
		return err
	}
	defer t.close()
	_, err = t.ask(ctx, identity.Request{Op: identity.PowerOff})
	return err
}

func (o Options) until(ctx context.Context, title string, try func(context.Context) error) error {
	attempt := o.Attempt
	if attempt == 0 {
		attempt = 15 * time.Second
	}
	attempt = min(attempt, o.Timeout) // the last try must not stretch the whole
	var last error
	_, err := check.Wait{Timeout: o.Timeout, Attempt: attempt, Clock: o.Clock}.For(ctx, check.Check{ID: "agent", Title: title,
		Ask: func(ctx context.Context) (check.Outcome, error) {
			if last = try(ctx); last != nil {
				return check.Outcome{}, last
			}
			return check.Pass("answered"), nil
		}})
	var timeout *check.TimeoutError
	if errors.As(err, &timeout) {
		return fmt.Errorf("%s did not answer within %s: %w", title, o.Timeout, last)
	}
	return err
}

// talk is one connection to the agent.
type talk struct {
	conn net.Conn
	in   *bufio.Scanner
}

func connect(ctx context.Context, socket string) (*talk, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the guest's agent: %w", err)
	}
	in := bufio.NewScanner(conn)
	in.Buffer(nil, identity.MaxLine)
	return &talk{conn: conn, in: in}, nil
}

func (t *talk) close() { _ = t.conn.Close() }

// ask sends one request and waits for its answer. Answers to others, which an earlier host may not have fetched, are skipped.
func (t *talk) ask(ctx context.Context, req identity.Request) (identity.Answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = t.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req.Nonce = rand.Text()
	line, err := json.Marshal(req)
	if err != nil {
		return identity.Answer{}, err
	}
	// The first newline ends half a line that an earlier host may have left in the port.
	if _, err := t.conn.Write(bytes.Join([][]byte{nil, line, nil}, []byte{'\n'})); err != nil {
		return identity.Answer{}, t.failed(ctx, req.Op, err)
	}
	for t.in.Scan() {
		var ans identity.Answer
		if json.Unmarshal(t.in.Bytes(), &ans) != nil || ans.Nonce != req.Nonce {
			continue
		}
		if !ans.OK {
			return ans, &RefusedError{Op: req.Op, Reason: ans.Error}
		}
		return ans, nil
	}
	return identity.Answer{}, t.failed(ctx, req.Op, t.in.Err())
}

func (t *talk) failed(ctx context.Context, op identity.Op, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	if err == nil {
		err = io.EOF
	}
	return fmt.Errorf("%s: the connection to the guest ended: %w", op, err)
}
