package identity

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/provision/run"
)

// System is what applying an identity changes outside of files.
type System interface {
	Now() time.Time
	SetTime(t time.Time) error
	// AddEntropy credits data to the kernel's random pool and makes the generator take it up at once.
	AddEntropy(data []byte) error
	SetHostname(name string) error
	// BootID changes with each boot of the kernel.
	BootID() (string, error)
}

// Guest applies identities to the guest that it runs in.
type Guest struct {
	// Root is where the guest's file system is, "/" but in tests.
	Root   string
	System System
	// Runner runs systemctl.
	Runner run.Runner
}

// clockTolerance is how far behind the host the guest's clock may be without being set. A jump costs more (timers fire,
// tokens age) than a second of difference.
const clockTolerance = time.Second

// systemctlTime bounds one systemctl command; under emulation, while booting, it can take seconds.
const systemctlTime = 30 * time.Second

// Handle carries out one request. It never panics and always answers.
func (g *Guest) Handle(ctx context.Context, req Request) (ans Answer) {
	defer func() {
		if p := recover(); p != nil {
			ans = Answer{Nonce: req.Nonce, Error: fmt.Sprintf("the agent broke: %v", p)}
		}
	}()
	ans = Answer{Nonce: req.Nonce}
	var err error
	switch req.Op {
	case Ping:
	case Personalise:
		err = g.personalise(ctx, req, &ans)
	case PowerOff:
		err = g.systemctl(ctx, "--no-block", "poweroff")
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	if err == nil {
		ans.BootID, err = g.System.BootID()
	}
	if err != nil {
		ans.Error = err.Error()
		return ans
	}
	ans.OK = true
	return ans
}

func (g *Guest) personalise(ctx context.Context, req Request, ans *Answer) error {
	if err := req.validate(); err != nil {
		return err
	}
	public, err := publicLine(req.HostKey)
	if err != nil {
		return err
	}
	// Entropy and time come first: whatever is generated after this line is this guest's own, and dated right.
	if err := g.System.AddEntropy(req.Entropy); err != nil {
		return fmt.Errorf("add entropy: %w", err)
	}
	if err := g.stepClock(req.Now, ans); err != nil {
		return err
	}
	if err := g.setHostname(req.Hostname); err != nil {
		return err
	}
	ans.Hostname = req.Hostname
	if _, err := g.write("etc/machine-id", []byte(req.MachineID+"\n"), 0o444); err != nil {
		return err
	}
	changed, err := g.write(hostKeyFile, []byte(req.HostKey), 0o600)
	if err != nil {
		return err
	}
	if _, err := g.write(hostKeyFile+".pub", public, 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(g.path("root/.ssh"), 0o700); err != nil {
		return err
	}
	if _, err := g.write("root/.ssh/authorized_keys", []byte(req.AuthorizedKeys), 0o600); err != nil {
		return err
	}
	return g.serveSSH(ctx, changed)
}

const hostKeyFile = "etc/ssh/ssh_host_ed25519_key"

// Resume starts SSH where an identity was taken on before: after a reboot from inside, nobody sends it again.
func (g *Guest) Resume(ctx context.Context) error {
	if _, err := os.Stat(g.path(hostKeyFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return g.serveSSH(ctx, false)
}

func (g *Guest) serveSSH(ctx context.Context, keyChanged bool) error {
	verb := "start"
	err := g.systemctl(ctx, "is-active", "--quiet", "ssh")
	if _, answered := run.ExitCode(err); err != nil && !answered {
		return err
	}
	if err == nil {
		if !keyChanged {
			return nil
		}
		verb = "restart"
	}
	// Waiting for the job would deadlock the boot: ssh may be ordered after units that wait for this agent.
	return g.systemctl(ctx, "--no-block", verb, "ssh")
}

func (g *Guest) systemctl(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, systemctlTime, fmt.Errorf("no answer within %s", systemctlTime))
	defer cancel()
	_, err := g.Runner.Run(ctx, run.Cmd{Argv: append([]string{"systemctl"}, args...)})
	return err
}

func (g *Guest) stepClock(now int64, ans *Answer) error {
	host := time.Unix(0, now)
	behind := host.Sub(g.System.Now())
	if behind <= clockTolerance {
		// Never back: tokens and leases from the future do more harm than a fast clock.
		return nil
	}
	if err := g.System.SetTime(host); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	ans.ClockSteppedMillis = behind.Milliseconds()
	return nil
}

func (g *Guest) setHostname(name string) error {
	if _, err := g.write("etc/hostname", []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	hosts, err := os.ReadFile(g.path("etc/hosts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := g.write("etc/hosts", withOwnName(hosts, name), 0o644); err != nil {
		return err
	}
	if err := g.System.SetHostname(name); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	return nil
}

// withOwnName replaces the line of 127.0.1.1, Debian's address for a host's own name, or adds it after the last line.
func withOwnName(hosts []byte, name string) []byte {
	own := "127.0.1.1\t" + name
	var lines []string
	placed := false
	for line := range strings.Lines(string(hosts)) {
		line = strings.TrimSuffix(line, "\n")
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "127.0.1.1" {
			if placed {
				continue
			}
			line, placed = own, true
		}
		lines = append(lines, line)
	}
	if !placed {
		lines = append(lines, own)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// publicLine is the public half of an ed25519 private key, as sshd keeps it beside the private one.
func publicLine(pem string) ([]byte, error) {
	key, err := ssh.ParseRawPrivateKey([]byte(pem))
	if err != nil {
		return nil, fmt.Errorf("host key: %w", err)
	}
	private, ok := key.(*ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("host key: want ed25519, got %T", key)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("host key: %w", err)
	}
	return ssh.MarshalAuthorizedKey(public), nil
}

func (g *Guest) path(name string) string { return filepath.Join(g.Root, name) }

// write gives the file this content and mode, and says whether its content was another before.
func (g *Guest) write(name string, data []byte, mode fs.FileMode) (changed bool, err error) {
	path := g.path(name)
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, data) {
		return false, os.Chmod(path, mode)
	}
	err = renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
	if errors.Is(err, syscall.EBUSY) {
		// systemd mounts a file over an empty /etc/machine-id; a mount point cannot be renamed over.
		err = os.WriteFile(path, data, mode)
	}
	if err != nil {
		return false, fmt.Errorf("write /%s: %w", name, err)
	}
	return true, nil
}
