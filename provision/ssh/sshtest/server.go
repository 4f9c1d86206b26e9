// Package sshtest is an SSH server inside the test's own process. Like OpenSSH's, it runs commands with a shell, passes
// signals on to their process group, and leaves them running when a session is merely closed.
package sshtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/crypto/ssh"
)

// Server is a running server.
type Server struct {
	listener net.Listener
	config   *ssh.ServerConfig
	// Connections counts the logins so far.
	Connections atomic.Int64
	// Sizes are the terminal sizes that clients reported, as "columns x rows".
	Sizes chan string
	// Refuse makes the server turn down new sessions.
	Refuse atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// Start serves on listener with a host key in PEM form. authorized says which keys may log in.
func Start(listener net.Listener, hostKey []byte, authorized func(ssh.PublicKey) bool) (*Server, error) {
	signer, err := ssh.ParsePrivateKey(hostKey)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, conns: map[net.Conn]bool{}, Sizes: make(chan string, 16)}
	s.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if authorized(key) {
			return nil, nil
		}
		return nil, errors.New("unknown key")
	}}
	s.config.AddHostKey(signer)
	go s.accept()
	return s, nil
}

// Port is where the server listens.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Close stops listening and drops every connection.
func (s *Server) Close() { s.listener.Close(); s.Drop() }

// Drop ends every connection without a word, as a guest that dies does.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close()
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		go s.serve(conn)
	}
}

func (s *Server) serve(raw net.Conn) {
	defer raw.Close()
	conn, channels, requests, err := ssh.NewServerConn(raw, s.config)
	if err != nil {
		return
	}
	defer conn.Close()
	s.Connections.Add(1)
	go ssh.DiscardRequests(requests)
	for next := range channels {
		if next.ChannelType() != "session" || s.Refuse.Load() {
			_ = next.Reject(ssh.Prohibited, "refused")
			continue
		}
		channel, requests, err := next.Accept()
		if err != nil {
			return
		}
		go s.session(channel, requests)
	}
}

func (s *Server) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	var cmd *exec.Cmd
	defer channel.Close()
	ended := make(chan struct{})
	for {
		select {
		case <-ended:
			return
		case req, open := <-requests:
			if !open {
				return
			}
			ok := true
			switch req.Type {
			case "pty-req":
				name := str(req.Payload)
				s.size(req.Payload[4+len(name):])
			case "window-change":
				s.size(req.Payload)
			case "exec", "shell":
				line := "exec sh"
				if req.Type == "exec" {
					line = str(req.Payload)
				}
				cmd = exec.Command("sh", "-c", line)
				ok = start(cmd, channel, ended) == nil
			case "signal":
				if cmd != nil && cmd.Process != nil {
					_ = syscall.Kill(-cmd.Process.Pid, number(str(req.Payload)))
				}
			default:
				ok = false
			}
			if req.WantReply {
				_ = req.Reply(ok, nil)
			}
		}
	}
}

func str(payload []byte) string {
	return string(payload[4 : 4+binary.BigEndian.Uint32(payload)])
}

func (s *Server) size(payload []byte) {
	select {
	case s.Sizes <- fmt.Sprintf("%dx%d", binary.BigEndian.Uint32(payload), binary.BigEndian.Uint32(payload[4:])):
	default:
	}
}

func number(name string) syscall.Signal {
	return map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}[name]
}

func start(cmd *exec.Cmd, channel ssh.Channel, ended chan<- struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(stdin, channel)
		stdin.Close()
	}()
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			name := map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGKILL: "KILL", syscall.SIGINT: "INT", syscall.SIGHUP: "HUP"}[status.Signal()]
			_, _ = channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Signal string
				Core   bool
				Msg    string
				Lang   string
			}{name, false, "", ""}))
			return
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status.ExitStatus())}))
	}()
	return nil
}
