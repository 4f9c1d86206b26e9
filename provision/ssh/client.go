// Package ssh runs commands in a guest over one SSH connection with a pinned host key.
package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/melbahja/goph"
	"golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/provision"
)

// Options tune a connection. The zero value is right for guests, also under emulation.
type Options struct {
	// Handshake bounds connecting and logging in when ctx has no earlier deadline; by default 30 s.
	Handshake time.Duration
	// KeepAlive is the pause between two questions whether the guest is still there, by default 15 s. After a minute (four
	// pauses) without an answer the connection counts as lost.
	KeepAlive time.Duration
	// Grace is how long a cancelled command may take to end after SIGTERM, by default 5 s.
	Grace time.Duration
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&o.Handshake, 30*time.Second)
	set(&o.KeepAlive, 15*time.Second)
	set(&o.Grace, 5*time.Second)
	return o
}

// HostKeyError says that whoever answered does not hold the guest's host key.
type HostKeyError struct{ Address, Want, Got string }

func (e *HostKeyError) Error() string {
	return fmt.Sprintf("%s shows host key %s, not the pinned %s", e.Address, e.Got, e.Want)
}

// Hint is the next action.
func (e *HostKeyError) Hint() string {
	return "another program may have taken the port, or the guest's /etc/ssh was changed: `labctl stop` and `labctl start` the instance"
}

// LostError says that the connection ended while a command ran, so that its outcome is unknown.
type LostError struct {
	Doing string
	Err   error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the SSH connection was lost during %s: %v", e.Doing, e.Err)
}
func (e *LostError) Unwrap() error { return e.Err }

// maxSessions is how many commands run at once over a connection; sshd refuses more than 10.
const maxSessions = 8

// Client is a run.Runner over one connection. It is safe for concurrent use.
type Client struct {
	// goph's own way to run commands joins arguments unquoted and leaves a cancelled command running, so that its
	// connection is used with sessions of our own.
	conn     *goph.Client
	opts     Options
	sessions chan struct{}
	closed   chan struct{}
	once     sync.Once
}

// Dial connects to ep, insists on its host key and logs in. It returns an error wrapping *HostKeyError when another key is shown.
func Dial(ctx context.Context, ep provision.Endpoint, opts Options) (*Client, error) {
	opts = opts.withDefaults()
	address := net.JoinHostPort(ep.Host, strconv.Itoa(ep.Port))
	auth, err := goph.Key(ep.KeyFile, "")
	if err != nil {
		return nil, fmt.Errorf("read the login key: %w", err)
	}
	pinned, _, _, _, err := ssh.ParseAuthorizedKey([]byte(ep.HostKey))
	if err != nil {
		return nil, fmt.Errorf("read the pinned host key: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Handshake, fmt.Errorf("no SSH handshake within %s", opts.Handshake))
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	// A forwarded port is accepted long before the guest listens, so that the handshake needs a limit of its own, which
	// neither goph.NewConn nor ssh.Dial has.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	config := &goph.Config{Auth: auth, User: ep.User, Addr: ep.Host, Port: uint(ep.Port), Callback: pin(address, pinned)}
	conn, channels, requests, err := ssh.NewClientConn(raw, address, &ssh.ClientConfig{
		User: config.User, Auth: config.Auth, HostKeyCallback: config.Callback,
		HostKeyAlgorithms: []string{pinned.Type()},
	})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		raw.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("log in to %s: %w", address, err)
	}
	c := &Client{
		conn:     &goph.Client{Client: ssh.NewClient(conn, channels, requests), Config: config},
		opts:     opts,
		sessions: make(chan struct{}, maxSessions),
		closed:   make(chan struct{}),
	}
	go func() {
		_ = conn.Wait()
		c.markClosed()
	}()
	go c.keepAlive()
	return c, nil
}

func pin(address string, want ssh.PublicKey) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, got ssh.PublicKey) error {
		if !bytes.Equal(want.Marshal(), got.Marshal()) {
			return &HostKeyError{Address: address, Want: ssh.FingerprintSHA256(want), Got: ssh.FingerprintSHA256(got)}
		}
		return nil
	}
}

// Closed is closed when the connection has ended, for whatever reason.
func (c *Client) Closed() <-chan struct{} { return c.closed }

// Close ends the connection and with it every session. Closing twice is no error.
func (c *Client) Close() error {
	select {
	case <-c.closed:
		return nil
	default:
	}
	err := c.conn.Close()
	c.markClosed()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (c *Client) markClosed() { c.once.Do(func() { close(c.closed) }) }

// keepAlive closes a connection whose other end is gone: nothing else would ever tell.
func (c *Client) keepAlive() {
	const patience = 4
	tick := time.NewTicker(c.opts.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-tick.C:
		}
		answered := make(chan struct{})
		go func() {
			// A refusal is an answer too; an error ends the connection by itself.
			if _, _, err := c.conn.SendRequest("keepalive@openssh.com", true, nil); err == nil {
				close(answered)
			}
		}()
		limit := time.NewTimer(patience * c.opts.KeepAlive)
		select {
		case <-answered:
			limit.Stop()
		case <-c.closed:
			limit.Stop()
			return
		case <-limit.C:
			_ = c.Close()
			return
		}
	}
}
