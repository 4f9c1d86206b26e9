package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh/sshtest"
)

// The test binary takes the place of QEMU, and of labctls that are killed, by the name or the environment it is run with.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "qemu-system-x86_64":
		os.Exit(fakeQEMU(os.Args[1:]))
	case "qemu-img":
		os.Exit(fakeImg(os.Args[1:]))
	}
	if os.Getenv(actEnv) != "" {
		os.Exit(act())
	}
	os.Exit(m.Run())
}

const (
	// misbehave holds words that make the fake QEMU go wrong, separated by commas.
	misbehave = "LABCTL_FAKE_QEMU"
	// guestRoot is a guest's file system, in the instance's folder: like the disk, it goes where that folder goes.
	guestRoot = "guest"
)

func does(what string) bool {
	for _, word := range strings.Split(os.Getenv(misbehave), ",") {
		if word == what {
			return true
		}
	}
	return false
}

func fakeImg(args []string) int {
	// create -q -u -f qcow2 -F FORMAT -b BASE -o OPTIONS PATH SIZE
	if len(args) != 13 || args[0] != "create" {
		fmt.Fprintln(os.Stderr, "qemu-img: unexpected arguments", args)
		return 1
	}
	if does("no-space") {
		fmt.Fprintln(os.Stderr, "qemu-img: no space left on device")
		return 1
	}
	return code(os.WriteFile(args[11], []byte("overlay of "+args[8]+" "+args[12]), 0o644))
}

func code(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// machine is a fake QEMU with its guest.
type machine struct {
	args  []string
	root  string
	guest *identity.Guest
	ssh   net.Listener
	// added is the port that takes the place of ssh.
	added net.Listener

	mu      sync.Mutex
	serving bool
	off     chan int
	// state is what the monitor says of the machine, and woken is closed when its guest runs.
	state string
	woken chan struct{}
	wake  sync.Once
	// migration is how the saving or loading of the devices went.
	migration string
}

func fakeQEMU(args []string) int {
	switch {
	case len(args) == 1 && args[0] == "--version":
		fmt.Println("QEMU emulator version 7.2.22 (fake)")
		return 0
	case len(args) == 2 && args[1] == "help":
		fmt.Print("q35  Standard PC (alias of pc-q35-7.2)\npc-q35-7.2  Standard PC\npc-q35-7.1  Standard PC\n")
		return 0
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	m := &machine{args: args, off: make(chan int, 1), state: "running", woken: make(chan struct{})}
	if len(m.option("-incoming")) == 1 {
		m.state = inMigrate
	} else {
		m.wake.Do(func() { close(m.woken) })
	}
	if err := m.boot(); err != nil {
		fmt.Fprintf(os.Stderr, "qemu-system-x86_64: %v\n", err)
		return 1
	}
	return <-m.off
}

// option gives the values of an option.
func (m *machine) option(name string) (values []string) {
	for i, arg := range m.args {
		if arg == name {
			values = append(values, m.args[i+1])
		}
	}
	return values
}

var (
	pathPattern    = regexp.MustCompile(`path=([^,]+)`)
	memoryPattern  = regexp.MustCompile(`mem-path=([^,]+)`)
	forwardPattern = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	portPattern    = regexp.MustCompile(`127\.0\.0\.1:(\d+)-`)
)

func (m *machine) boot() error {
	if does("die") {
		return errors.New("could not set up the machine")
	}
	var files []string
	for _, option := range []string{"-kernel", "-initrd"} {
		files = append(files, m.option(option)...)
	}
	for _, option := range m.option("-blockdev") {
		var node struct{ Filename string }
		if err := json.Unmarshal([]byte(option), &node); err != nil {
			return err
		}
		if node.Filename != "" {
			files = append(files, node.Filename)
		}
	}
	for _, option := range m.option("-object") {
		path := memoryPattern.FindStringSubmatch(option)
		switch {
		case path == nil:
		case strings.Contains(option, "share=on"):
			if err := os.WriteFile(path[1], []byte("memory"), 0o600); err != nil {
				return err
			}
		default:
			files = append(files, path[1])
		}
	}
	for _, path := range files {
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	chardevs := m.option("-chardev")
	console := pathPattern.FindStringSubmatch(chardevs[0])[1]
	if err := os.WriteFile(console, []byte("\x1b[1mLinux version 6.12\x1b[0m\r\nlab login: \r\n"), 0o600); err != nil {
		return err
	}
	monitor := strings.TrimSuffix(strings.TrimPrefix(m.option("-qmp")[0], "unix:"), ",server=on,wait=off")
	if !does("no-monitor") {
		listener, err := net.Listen("unix", monitor)
		if err != nil {
			return err
		}
		go m.monitor(listener)
	}
	// The folder may get another name while the machine runs.
	folder, err := syscall.Open(filepath.Dir(console), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	m.root = fmt.Sprintf("/proc/self/fd/%d/%s", folder, guestRoot)
	for _, dir := range []string{"etc/ssh", "root"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			return err
		}
	}
	m.guest = &identity.Guest{Root: m.root, System: m, Runner: m}
	port, _ := strconv.Atoi(portPattern.FindStringSubmatch(m.option("-netdev")[0])[1])
	// As with QEMU, connections are taken from the start, whether the guest serves or not.
	if m.ssh, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		return fmt.Errorf("Could not set up host forwarding rule: %w", err)
	}
	agents, err := net.Listen("unix", pathPattern.FindStringSubmatch(chardevs[1])[1])
	if err != nil {
		return err
	}
	go m.agent(agents)
	if does("die-later") {
		time.AfterFunc(300*time.Millisecond, func() {
			fmt.Fprintln(os.Stderr, "qemu-system-x86_64: KVM internal error")
			m.off <- 1
		})
	}
	return nil
}

// monitor serves QMP to one client at a time.
func (m *machine) monitor(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(conn, `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}, "capabilities": []}}`)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			var cmd struct {
				Execute, ID string
				Arguments   struct {
					URI     string
					Command string `json:"command-line"`
				}
			}
			_ = json.Unmarshal(lines.Bytes(), &cmd)
			reply := "{}"
			socket := strings.TrimPrefix(cmd.Arguments.URI, "unix:")
			switch cmd.Execute {
			case "query-status":
				reply = fmt.Sprintf(`{"status": %q}`, m.state)
				if does("paused") {
					reply = `{"status": "internal-error"}`
				}
			case "stop":
				m.state = "paused"
			case "migrate":
				if does("save-fails") {
					m.migration = "failed"
					break
				}
				m.migrated(m.saveDevices(socket))
			case "migrate-incoming":
				incoming, err := net.Listen("unix", socket)
				if err != nil {
					m.migrated(err)
					break
				}
				go func() { m.migrated(m.loadDevices(incoming)) }()
			case "query-migrate":
				m.mu.Lock()
				reply = fmt.Sprintf(`{"status": %q}`, m.migration)
				m.mu.Unlock()
			case "human-monitor-command":
				said, _ := json.Marshal(m.forward(cmd.Arguments.Command))
				reply = string(said)
			case "cont":
				m.state = "running"
				m.wake.Do(func() { close(m.woken) })
			}
			fmt.Fprintf(conn, "{\"return\": %s, \"id\": %q}\n", reply, cmd.ID)
			// QEMU answers before it ends; a fake that ended first would lose the answer.
			if (cmd.Execute == "quit" && !does("no-quit")) || (cmd.Execute == "system_powerdown" && !does("no-button")) {
				m.off <- 0
			}
		}
		conn.Close()
	}
}

// forward changes the ports that lead to the guest. As with QEMU, a new one that went well is not worth a word.
func (m *machine) forward(command string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	port := forwardPattern.FindString(command)
	if strings.HasPrefix(command, "hostfwd_remove ") {
		m.ssh.Close()
		m.ssh = m.added
		return "host forwarding rule for " + port + " removed\r\n"
	}
	listener, err := net.Listen("tcp", port)
	if err != nil || does("no-forward") {
		return "could not set up host forwarding rule '" + port + "'\r\n"
	}
	if m.added = listener; m.serving {
		if _, err := sshtest.Start(listener, m.read("etc/ssh/ssh_host_ed25519_key"), m.authorized); err != nil {
			return err.Error()
		}
	}
	return ""
}

// devices is the whole device state of a fake machine.
const devices = "two processors, one disk"

func (m *machine) saveDevices(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(devices))
	return err
}

func (m *machine) loadDevices(incoming net.Listener) error {
	conn, err := incoming.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	data, err := io.ReadAll(conn)
	if err == nil && (string(data) != devices || does("bad-devices")) {
		err = errors.New("Unknown section or instance 'serial' 0")
	}
	if err != nil {
		return err
	}
	m.state = "paused"
	return nil
}

// migrated notes how it went. As with QEMU, what cannot be loaded is the end of the machine.
func (m *machine) migrated(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.migration = "completed"; err != nil {
		m.migration = "failed"
		fmt.Fprintf(os.Stderr, "qemu-system-x86_64: load of migration failed: %v\n", err)
		m.off <- 1
	}
}

// agent serves the personalisation channel with the guest's real code.
func (m *machine) agent(listener net.Listener) {
	if does("no-agent") {
		return
	}
	<-m.woken
	handle := m.guest.Handle
	if does("agent-refuses") {
		handle = func(_ context.Context, req identity.Request) identity.Answer {
			return identity.Answer{Nonce: req.Nonce, OK: req.Op == identity.Ping, Error: "write /etc/hostname: no space left on device"}
		}
	}
	_ = m.guest.Resume(context.Background())
	_ = identity.Serve(context.Background(), &port{listener: listener}, handle, nil)
}

// port is the guest's end of the channel: the connection of whoever is there.
type port struct {
	listener net.Listener
	conn     net.Conn
}

func (p *port) Read(buf []byte) (int, error) {
	if p.conn == nil {
		conn, err := p.listener.Accept()
		if err != nil {
			return 0, err
		}
		p.conn = conn
	}
	n, err := p.conn.Read(buf)
	if err != nil {
		p.conn.Close()
		p.conn = nil
		return n, io.EOF
	}
	return n, nil
}

func (p *port) Write(data []byte) (int, error) {
	if p.conn == nil {
		return 0, errors.New("the host has left")
	}
	return p.conn.Write(data)
}

func (p *port) Wait(context.Context, time.Duration) {}

// machine is the guest's system, too.
func (m *machine) Now() time.Time           { return time.Now() }
func (m *machine) SetTime(time.Time) error  { return nil }
func (m *machine) AddEntropy([]byte) error  { return nil }
func (m *machine) SetHostname(string) error { return nil }
func (m *machine) BootID() (string, error)  { return strconv.Itoa(os.Getpid()), nil }
func (m *machine) path(name string) string  { return filepath.Join(m.root, name) }
func (m *machine) read(name string) []byte  { data, _ := os.ReadFile(m.path(name)); return data }
func (m *machine) authorized(k xssh.PublicKey) bool {
	return strings.HasPrefix(string(m.read("root/.ssh/authorized_keys")), strings.TrimSpace(string(xssh.MarshalAuthorizedKey(k))))
}

// Run is the guest's systemctl.
func (m *machine) Run(_ context.Context, cmd run.Cmd) (run.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch strings.Join(cmd.Argv, " ") {
	case "systemctl is-active --quiet ssh":
		if !m.serving {
			res := run.Result{ExitCode: 3}
			return res, run.NewExitError(cmd.Argv, res, nil)
		}
	case "systemctl --no-block start ssh", "systemctl --no-block restart ssh":
		if m.serving || does("no-ssh") {
			break
		}
		m.serving = true
		key := m.read("etc/ssh/ssh_host_ed25519_key")
		if _, err := sshtest.Start(m.ssh, key, m.authorized); err != nil {
			return run.Result{}, err
		}
	case "systemctl --no-block poweroff":
		if !does("no-poweroff") {
			time.AfterFunc(20*time.Millisecond, func() { m.off <- 0 })
		}
	default:
		return run.Result{}, fmt.Errorf("unexpected command %q", cmd.Argv)
	}
	return run.Result{}, nil
}
