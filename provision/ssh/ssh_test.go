package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xssh "golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/ssh/sshtest"
)

// guest is a server and the endpoint that reaches it.
func guest(t *testing.T) (*sshtest.Server, provision.Endpoint) {
	t.Helper()
	hostKey, hostLine, err := ssh.GenerateKey("host")
	require.NoError(t, err)
	userKey, userLine, err := ssh.GenerateKey("user")
	require.NoError(t, err)
	keyFile := filepath.Join(t.TempDir(), "id")
	require.NoError(t, os.WriteFile(keyFile, userKey, 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, err := sshtest.Start(listener, hostKey, func(key xssh.PublicKey) bool {
		return strings.HasPrefix(userLine, strings.TrimSpace(string(xssh.MarshalAuthorizedKey(key))))
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server, provision.Endpoint{Host: "127.0.0.1", Port: server.Port(), User: "root", KeyFile: keyFile, HostKey: hostLine}
}

func dial(t *testing.T, ep provision.Endpoint, opts ssh.Options) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial(t.Context(), ep, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestClientKeepsTheRunnerContract(t *testing.T) {
	server, ep := guest(t)
	runtest.Contract(t, dial(t, ep, ssh.Options{Grace: 200 * time.Millisecond}))
	require.EqualValues(t, 1, server.Connections.Load(), "one connection serves every command")
}

func TestMoreCommandsThanSessions(t *testing.T) {
	_, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	errs := make(chan error, 30)
	for range cap(errs) {
		go func() {
			_, err := c.Run(t.Context(), run.Cmd{Argv: []string{"sleep", "0.05"}})
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func TestWrongHostKeyIsRefused(t *testing.T) {
	_, ep := guest(t)
	_, other, err := ssh.GenerateKey("other")
	require.NoError(t, err)
	ep.HostKey = other
	_, err = ssh.Dial(t.Context(), ep, ssh.Options{})
	var wrong *ssh.HostKeyError
	require.ErrorAs(t, err, &wrong)
	require.Contains(t, wrong.Address, "127.0.0.1:")
	require.NotEqual(t, wrong.Want, wrong.Got)
	require.NotEmpty(t, wrong.Hint())
}

func TestWrongUserKeyIsRefused(t *testing.T) {
	server, ep := guest(t)
	key, _, err := ssh.GenerateKey("stranger")
	require.NoError(t, err)
	ep.KeyFile = filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(ep.KeyFile, key, 0o600))
	_, err = ssh.Dial(t.Context(), ep, ssh.Options{})
	require.ErrorContains(t, err, "log in to 127.0.0.1")
	require.Zero(t, server.Connections.Load())
}

func TestDialProblems(t *testing.T) {
	_, ep := guest(t)
	bad := ep
	bad.HostKey = "nonsense"
	_, err := ssh.Dial(t.Context(), bad, ssh.Options{})
	require.ErrorContains(t, err, "pinned host key")
	bad = ep
	bad.KeyFile = "/no/such/key"
	_, err = ssh.Dial(t.Context(), bad, ssh.Options{})
	require.ErrorContains(t, err, "login key")

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bad = ep
	bad.Port = closed.Addr().(*net.TCPAddr).Port
	closed.Close()
	_, err = ssh.Dial(t.Context(), bad, ssh.Options{})
	require.ErrorContains(t, err, "connect to")
}

// TestSilentPort: a forwarded port accepts at once and says nothing until the guest serves.
func TestSilentPort(t *testing.T) {
	_, ep := guest(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	ep.Port = silent.Addr().(*net.TCPAddr).Port
	_, err = ssh.Dial(t.Context(), ep, ssh.Options{Handshake: 50 * time.Millisecond})
	require.ErrorContains(t, err, "no SSH handshake within 50ms")

	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	_, err = ssh.Dial(ctx, ep, ssh.Options{})
	require.ErrorIs(t, err, why)
}

func TestLostConnection(t *testing.T) {
	server, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	out, in := io.Pipe()
	go func() {
		_, _ = out.Read(make([]byte, 1)) // the command runs
		server.Drop()
	}()
	_, err := c.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", "echo; exec sleep 5"}, Stdout: in})
	var lost *ssh.LostError
	require.ErrorAs(t, err, &lost)
	require.ErrorContains(t, err, "sleep 5")
	_, isExit := run.ExitCode(err)
	require.False(t, isExit)
	<-c.Closed()
	_, err = c.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.ErrorAs(t, err, &lost)
}

// TestLasting: a guest that started anew is logged in to anew.
func TestLasting(t *testing.T) {
	server, ep := guest(t)
	l, err := ssh.DialLasting(t.Context(), ep, ssh.Options{})
	require.NoError(t, err)
	out, in := io.Pipe()
	go func() {
		_, _ = out.Read(make([]byte, 1)) // the command runs
		server.Drop()
	}()
	_, err = l.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", "echo; exec sleep 5"}, Stdout: in})
	var lost *ssh.LostError
	require.ErrorAs(t, err, &lost)
	require.Eventually(t, func() bool {
		_, err := l.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	server.Close()
	_, err = l.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.Error(t, err, "nobody answers any more")
}

// TestKeepAlive: a guest that stops answering without closing anything is noticed.
func TestKeepAlive(t *testing.T) {
	_, ep := guest(t)
	proxy := newProxy(t, ep.Port)
	ep.Port = proxy.port
	c := dial(t, ep, ssh.Options{KeepAlive: 20 * time.Millisecond})
	_, err := c.Run(t.Context(), run.Cmd{Argv: []string{"sleep", "0.3"}})
	require.NoError(t, err, "a guest that answers is left alone")
	close(proxy.stall)
	_, err = c.Run(t.Context(), run.Cmd{Argv: []string{"sleep", "30"}})
	var lost *ssh.LostError
	require.ErrorAs(t, err, &lost)
}

// proxy passes bytes on until stall is closed, and then keeps both connections open without a word.
type proxy struct {
	port  int
	stall chan struct{}
}

func newProxy(t *testing.T, to int) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	p := &proxy{port: listener.Addr().(*net.TCPAddr).Port, stall: make(chan struct{})}
	pass := func(dst, src net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := src.Read(buf)
			select {
			case <-p.stall:
				return
			default:
			}
			if err != nil {
				dst.Close()
				return
			}
			_, _ = dst.Write(buf[:n])
		}
	}
	go func() {
		a, err := listener.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", to))
		if err != nil {
			a.Close()
			return
		}
		t.Cleanup(func() { a.Close(); b.Close() })
		go pass(a, b)
		pass(b, a)
	}()
	return p
}

func TestRefusedSession(t *testing.T) {
	server, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	server.Refuse.Store(true)
	_, err := c.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.ErrorContains(t, err, "the guest refused a session")
	server.Refuse.Store(false)
	_, err = c.Run(t.Context(), run.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
}

func TestUpload(t *testing.T) {
	_, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "a b", "it's", "-lab")
	content := bytes.Repeat([]byte("0123456789\x00\xff"), 200_000)
	require.NoError(t, os.WriteFile(local, content, 0o600))
	require.NoError(t, c.Upload(t.Context(), local, remote, 0o751))
	got, err := os.ReadFile(remote)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got))
	info, err := os.Stat(remote)
	require.NoError(t, err)
	require.EqualValues(t, 0o751, info.Mode().Perm())
	onlyIn(t, filepath.Dir(remote), "-lab")

	require.NoError(t, os.WriteFile(local, []byte("new"), 0o600))
	require.NoError(t, c.Upload(t.Context(), local, remote, 0o644), "an existing file is replaced")
	got, err = os.ReadFile(remote)
	require.NoError(t, err)
	require.Equal(t, "new", string(got))
	require.NoError(t, os.WriteFile(local, nil, 0o600))
	require.NoError(t, c.Upload(t.Context(), local, filepath.Join(dir, "empty"), 0o644))
}

func onlyIn(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	require.ElementsMatch(t, names, have)
}

func TestPushSendsOnlyWhatDiffers(t *testing.T) {
	_, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "remote")
	push := func(mode os.FileMode) bool {
		sent, err := c.Push(t.Context(), local, remote, mode)
		require.NoError(t, err)
		return sent
	}
	require.NoError(t, os.WriteFile(local, []byte("one"), 0o600))
	require.True(t, push(0o755))
	require.False(t, push(0o755))
	require.True(t, push(0o700), "another mode")
	require.NoError(t, os.WriteFile(local, []byte("two"), 0o600))
	require.True(t, push(0o700), "other content")
	require.False(t, push(0o700))
}

func TestUploadProblems(t *testing.T) {
	_, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "in", "remote")
	require.NoError(t, os.WriteFile(local, bytes.Repeat([]byte("x"), 1<<20), 0o600))

	require.ErrorIs(t, c.Upload(t.Context(), filepath.Join(dir, "none"), remote, 0o644), os.ErrNotExist)
	_, err := c.Push(t.Context(), filepath.Join(dir, "none"), remote, 0o644)
	require.ErrorIs(t, err, os.ErrNotExist)

	// A folder in the way: the guest says why, and nothing is left behind.
	require.NoError(t, os.MkdirAll(filepath.Join(remote, "x"), 0o755))
	err = c.Upload(t.Context(), local, remote, 0o644)
	code, isExit := run.ExitCode(err)
	require.True(t, isExit)
	require.NotZero(t, code)
	require.ErrorContains(t, err, "upload to "+remote)
	onlyIn(t, filepath.Dir(remote), "remote")

	// A path below a file.
	require.Error(t, c.Upload(t.Context(), local, filepath.Join(local, "below"), 0o644))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Upload(ctx, local, remote, 0o644), context.Canceled)
}

// TestUploadDigestMismatch makes the guest's sha256sum lie, as a damaged transfer would.
func TestUploadDigestMismatch(t *testing.T) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "sha256sum"), []byte("#!/bin/sh\ncat >/dev/null\necho 00 -\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	_, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "local"), filepath.Join(dir, "in", "remote")
	require.NoError(t, os.MkdirAll(filepath.Dir(remote), 0o755))
	require.NoError(t, os.WriteFile(remote, []byte("before"), 0o644))
	require.NoError(t, os.WriteFile(local, []byte("after"), 0o600))
	err := c.Upload(t.Context(), local, remote, 0o644)
	var damaged *ssh.DigestError
	require.ErrorAs(t, err, &damaged)
	require.Equal(t, remote, damaged.Remote)
	got, err := os.ReadFile(remote)
	require.NoError(t, err)
	require.Equal(t, "before", string(got), "what was there stays")
	onlyIn(t, filepath.Dir(remote), "remote")
}

func TestShell(t *testing.T) {
	server, ep := guest(t)
	c := dial(t, ep, ssh.Options{})
	var out, errOut bytes.Buffer
	require.NoError(t, c.Shell(t.Context(), strings.NewReader("echo hello\necho oops >&2\n"), &out, &errOut, false))
	require.Equal(t, "hello\n", out.String())
	require.Equal(t, "oops\n", errOut.String())
	require.Empty(t, server.Sizes)

	err := c.Shell(t.Context(), strings.NewReader("exit 3\n"), io.Discard, io.Discard, true)
	code, isExit := run.ExitCode(err)
	require.True(t, isExit)
	require.Equal(t, 3, code)
	require.Equal(t, "80x24", <-server.Sizes, "where no terminal tells, 80 columns")
}

func TestKeys(t *testing.T) {
	private, public, err := ssh.GenerateKey("labctl-ada")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(private), "-----BEGIN OPENSSH PRIVATE KEY-----\n"))
	require.True(t, strings.HasPrefix(public, "ssh-ed25519 "))
	require.True(t, strings.HasSuffix(public, " labctl-ada"))
	line, err := ssh.PublicLine(private)
	require.NoError(t, err)
	require.Equal(t, public, line+" labctl-ada")
	again, _, err := ssh.GenerateKey("labctl-ada")
	require.NoError(t, err)
	require.NotEqual(t, private, again)
	_, err = ssh.PublicLine([]byte("nonsense"))
	require.ErrorContains(t, err, "read an SSH key")
}

func TestOpenSSH(t *testing.T) {
	_, ep := guest(t)
	known := filepath.Join(t.TempDir(), "known_hosts")
	argv, err := ssh.OpenSSH(ep, known, true, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"ssh", "-F", "none"}, argv[:3])
	require.Contains(t, argv, "StrictHostKeyChecking=yes")
	require.NotContains(t, argv, "-t", "a login shell has a terminal anyway")
	require.Equal(t, []string{"--", "127.0.0.1"}, argv[len(argv)-2:])
	pinned, err := os.ReadFile(known)
	require.NoError(t, err)
	fields := strings.Fields(ep.HostKey)
	require.Equal(t, fmt.Sprintf("[127.0.0.1]:%d %s %s\n", ep.Port, fields[0], fields[1]), string(pinned))
	info, err := os.Stat(known)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	argv, err = ssh.OpenSSH(ep, known, true, []string{"echo", "a b"})
	require.NoError(t, err)
	require.Contains(t, argv, "-t")
	require.Equal(t, "echo 'a b'", argv[len(argv)-1])

	ep.HostKey = "nonsense"
	_, err = ssh.OpenSSH(ep, known, false, nil)
	require.ErrorContains(t, err, "pinned host key")
}

// TestOpenSSHClient logs in with the system's own client, where there is one, with paths that its option parser could spoil.
func TestOpenSSHClient(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("no ssh program on this machine")
	}
	_, ep := guest(t)
	dir := filepath.Join(t.TempDir(), `a b%h"c\d`)
	require.NoError(t, os.Mkdir(dir, 0o700))
	key, err := os.ReadFile(ep.KeyFile)
	require.NoError(t, err)
	ep.KeyFile = filepath.Join(dir, "id")
	require.NoError(t, os.WriteFile(ep.KeyFile, key, 0o600))
	known := filepath.Join(dir, "known_hosts")

	argv, err := ssh.OpenSSH(ep, known, false, append([]string{"printf", `<%s>`}, runtest.Hostile...))
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Output()
	require.NoError(t, err)
	require.Equal(t, "<"+strings.Join(runtest.Hostile, "><")+">", string(out))

	_, other, err := ssh.GenerateKey("other")
	require.NoError(t, err)
	ep.HostKey = other
	argv, err = ssh.OpenSSH(ep, known, false, []string{"true"})
	require.NoError(t, err)
	both, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(both), "HOST IDENTIFICATION HAS CHANGED")
}
