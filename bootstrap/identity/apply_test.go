package identity_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
)

// system records what an identity changes outside of files.
type system struct {
	now      time.Time
	entropy  []byte
	hostname string
	bootID   string
	fail     map[string]error
}

func (s *system) Now() time.Time { return s.now }
func (s *system) SetTime(t time.Time) error {
	if err := s.fail["time"]; err != nil {
		return err
	}
	s.now = t
	return nil
}
func (s *system) AddEntropy(data []byte) error {
	s.entropy = append(s.entropy, data...)
	return s.fail["entropy"]
}
func (s *system) SetHostname(name string) error { s.hostname = name; return s.fail["hostname"] }
func (s *system) BootID() (string, error)       { return s.bootID, s.fail["bootID"] }

var frozen = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type fixture struct {
	identity.Guest
	system *system
	runner *runtest.Fake
}

func newFixture(t *testing.T) fixture {
	root := t.TempDir()
	for _, dir := range []string{"etc/ssh", "root"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	sys := &system{now: frozen, bootID: "boot-1", fail: map[string]error{}}
	runner := runtest.New(t)
	return fixture{Guest: identity.Guest{Root: root, System: sys, Runner: runner}, system: sys, runner: runner}
}

func (f fixture) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.Root, name))
	require.NoError(t, err)
	return string(data)
}

func (f fixture) write(t *testing.T, name, data string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(f.Root, name), []byte(data), 0o644))
}

func newKey(t *testing.T) (private, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(priv, "")
	require.NoError(t, err)
	line, err := ssh.NewPublicKey(pub)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(block)), string(ssh.MarshalAuthorizedKey(line))
}

func request(t *testing.T) (req identity.Request, public string) {
	private, public := newKey(t)
	return identity.Request{
		Op: identity.Personalise, Nonce: "n1", Now: frozen.UnixNano(), Entropy: []byte(strings.Repeat("e", identity.EntropyBytes)),
		Hostname: "ada", MachineID: "0123456789abcdef0123456789abcdef", HostKey: private, AuthorizedKeys: "ssh-ed25519 AAAA ada\n",
	}, public
}

func (f fixture) sshIs(active bool) {
	code := 0
	if !active {
		code = 3
	}
	f.runner.On("systemctl", "is-active", "--quiet", "ssh").Exit(code)
}

func TestPersonalise(t *testing.T) {
	f := newFixture(t)
	req, public := request(t)
	req.Now = frozen.Add(90 * time.Minute).UnixNano()
	f.write(t, "etc/hosts", "127.0.0.1 localhost\n127.0.1.1 old names\n::1 localhost\n")
	f.sshIs(false)
	f.runner.On("systemctl", "--no-block", "start", "ssh")

	ans := f.Handle(t.Context(), req)
	require.Equal(t, identity.Answer{Nonce: "n1", OK: true, Hostname: "ada", ClockSteppedMillis: 90 * 60 * 1000, BootID: "boot-1"}, ans)
	require.True(t, f.system.now.Equal(frozen.Add(90*time.Minute)))
	require.Equal(t, req.Entropy, f.system.entropy)
	require.Equal(t, "ada", f.system.hostname)
	require.Equal(t, "ada\n", f.read(t, "etc/hostname"))
	require.Equal(t, "127.0.0.1 localhost\n127.0.1.1\tada\n::1 localhost\n", f.read(t, "etc/hosts"))
	require.Equal(t, req.MachineID+"\n", f.read(t, "etc/machine-id"))
	require.Equal(t, req.HostKey, f.read(t, "etc/ssh/ssh_host_ed25519_key"))
	require.Equal(t, public, f.read(t, "etc/ssh/ssh_host_ed25519_key.pub"))
	require.Equal(t, req.AuthorizedKeys, f.read(t, "root/.ssh/authorized_keys"))
	for name, mode := range map[string]os.FileMode{
		"etc/ssh/ssh_host_ed25519_key": 0o600, "root/.ssh/authorized_keys": 0o600, "root/.ssh": 0o700, "etc/machine-id": 0o444, "etc/hostname": 0o644,
	} {
		info, err := os.Stat(filepath.Join(f.Root, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), name)
	}
}

func TestPersonaliseTwiceChangesNothing(t *testing.T) {
	f := newFixture(t)
	req, _ := request(t)
	f.sshIs(false)
	f.runner.On("systemctl", "--no-block", "start", "ssh")
	require.True(t, f.Handle(t.Context(), req).OK)
	before := tree(t, f.Root)

	f.sshIs(true) // and no start or restart after it
	require.True(t, f.Handle(t.Context(), req).OK)
	require.Equal(t, before, tree(t, f.Root))
}

// tree is every file below root with its inode's times, so that a rewrite shows.
func tree(t *testing.T, root string) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			data, _ := os.ReadFile(path)
			files[path] = info.ModTime().String() + info.Mode().String() + string(data)
		}
		return err
	}))
	return files
}

func TestANewHostKeyRestartsSSH(t *testing.T) {
	f := newFixture(t)
	first, _ := request(t)
	f.sshIs(false)
	f.runner.On("systemctl", "--no-block", "start", "ssh")
	require.True(t, f.Handle(t.Context(), first).OK)

	second, public := request(t)
	f.sshIs(true)
	f.runner.On("systemctl", "--no-block", "restart", "ssh")
	require.True(t, f.Handle(t.Context(), second).OK)
	require.Equal(t, public, f.read(t, "etc/ssh/ssh_host_ed25519_key.pub"))
}

func TestLooseModesAreTightened(t *testing.T) {
	f := newFixture(t)
	req, _ := request(t)
	f.write(t, "etc/ssh/ssh_host_ed25519_key", req.HostKey) // 0644
	f.sshIs(true)
	require.True(t, f.Handle(t.Context(), req).OK)
	info, err := os.Stat(filepath.Join(f.Root, "etc/ssh/ssh_host_ed25519_key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestClockPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		host    time.Duration
		stepped bool
	}{
		"far behind":       {time.Hour, true},
		"just beyond":      {time.Second + time.Millisecond, true},
		"within tolerance": {time.Second, false},
		"equal":            {0, false},
		"ahead":            {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			req, _ := request(t)
			req.Now = frozen.Add(c.host).UnixNano()
			f.sshIs(true)
			f.runner.On("systemctl", "--no-block", "restart", "ssh")
			ans := f.Handle(t.Context(), req)
			require.True(t, ans.OK, ans.Error)
			if c.stepped {
				require.Equal(t, c.host.Milliseconds(), ans.ClockSteppedMillis)
				require.True(t, f.system.now.Equal(frozen.Add(c.host)))
			} else {
				require.Zero(t, ans.ClockSteppedMillis)
				require.True(t, f.system.now.Equal(frozen), "never back, and no needless jump")
			}
		})
	}
}

func TestBadRequestsChangeNothing(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(rsaKey, "")
	require.NoError(t, err)
	for want, spoil := range map[string]func(r *identity.Request){
		"host name":                func(r *identity.Request) { r.Hostname = "a\nb" },
		"DNS label":                func(r *identity.Request) { r.Hostname = "" },
		"machine id":               func(r *identity.Request) { r.MachineID = "xyz" },
		"32 hexadecimal":           func(r *identity.Request) { r.MachineID += "00" },
		"time is missing":          func(r *identity.Request) { r.Now = 0 },
		"entropy is missing":       func(r *identity.Request) { r.Entropy = nil },
		"keys are missing":         func(r *identity.Request) { r.AuthorizedKeys = "" },
		"host key":                 func(r *identity.Request) { r.HostKey = "not a key" },
		"want ed25519":             func(r *identity.Request) { r.HostKey = string(pem.EncodeToMemory(block)) },
		`unknown operation "frob"`: func(r *identity.Request) { r.Op = "frob" },
	} {
		t.Run(want, func(t *testing.T) {
			f := newFixture(t)
			req, _ := request(t)
			spoil(&req)
			ans := f.Handle(t.Context(), req)
			require.False(t, ans.OK)
			require.Equal(t, "n1", ans.Nonce)
			require.Contains(t, ans.Error, want)
			require.Empty(t, tree(t, f.Root))
			require.Empty(t, f.system.entropy)
		})
	}
}

func TestFailuresAreReported(t *testing.T) {
	oops := errors.New("not permitted")
	for _, what := range []string{"time", "entropy", "hostname", "bootID"} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			req, _ := request(t)
			req.Now = frozen.Add(time.Hour).UnixNano()
			f.system.fail[what] = oops
			f.runner.OnMatch("systemctl", func(runtest.Seen) bool { return true }).Any()
			ans := f.Handle(t.Context(), req)
			require.False(t, ans.OK)
			require.Contains(t, ans.Error, "not permitted")
		})
	}
	t.Run("systemctl", func(t *testing.T) {
		f := newFixture(t)
		req, _ := request(t)
		f.sshIs(false)
		f.runner.On("systemctl", "--no-block", "start", "ssh").Stderr("Unit ssh.service not found.").Exit(5)
		ans := f.Handle(t.Context(), req)
		require.False(t, ans.OK)
		require.Contains(t, ans.Error, "Unit ssh.service not found.")
	})
	t.Run("no systemctl", func(t *testing.T) {
		f := newFixture(t)
		req, _ := request(t)
		f.runner.On("systemctl", "is-active", "--quiet", "ssh").Err(errors.New("no such program"))
		require.Contains(t, f.Handle(t.Context(), req).Error, "no such program")
	})
	t.Run("a folder in the way", func(t *testing.T) {
		f := newFixture(t)
		req, _ := request(t)
		require.NoError(t, os.MkdirAll(filepath.Join(f.Root, "etc/machine-id/x"), 0o755))
		require.Contains(t, f.Handle(t.Context(), req).Error, "write /etc/machine-id")
	})
	t.Run("panic", func(t *testing.T) {
		g := identity.Guest{} // nothing set: using any of it panics
		ans := g.Handle(t.Context(), identity.Request{Op: identity.Ping, Nonce: "x"})
		require.Equal(t, "x", ans.Nonce)
		require.False(t, ans.OK)
		require.Contains(t, ans.Error, "the agent broke")
	})
}

func TestPingAndPowerOff(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, identity.Answer{Nonce: "p", OK: true, BootID: "boot-1"}, f.Handle(t.Context(), identity.Request{Op: identity.Ping, Nonce: "p"}))
	require.Empty(t, tree(t, f.Root))

	f.runner.On("systemctl", "--no-block", "poweroff")
	require.True(t, f.Handle(t.Context(), identity.Request{Op: identity.PowerOff, Nonce: "p"}).OK)
}

func TestResume(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.Resume(t.Context()), "a golden image has no identity and starts nothing")
	f.write(t, "etc/ssh/ssh_host_ed25519_key", "key")
	f.sshIs(false)
	f.runner.On("systemctl", "--no-block", "start", "ssh")
	require.NoError(t, f.Resume(t.Context()))
}

func TestHostsFile(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "127.0.1.1\tada\n",
		"127.0.0.1 localhost":              "127.0.0.1 localhost\n127.0.1.1\tada\n",
		"127.0.1.1 a\nx y\n127.0.1.1 b\n":  "127.0.1.1\tada\nx y\n",
		"# 127.0.1.1 note\n10.0.0.1 127\n": "# 127.0.1.1 note\n10.0.0.1 127\n127.0.1.1\tada\n",
		"  127.0.1.1\tb c\n":               "127.0.1.1\tada\n",
	} {
		f := newFixture(t)
		req, _ := request(t)
		f.write(t, "etc/hosts", in)
		f.sshIs(true)
		f.runner.On("systemctl", "--no-block", "restart", "ssh")
		require.True(t, f.Handle(t.Context(), req).OK)
		require.Equal(t, want, f.read(t, "etc/hosts"), "%q", in)
	}
}

// TestWireForm fixes the JSON: agents in older images must go on understanding newer hosts.
func TestWireForm(t *testing.T) {
	data, err := json.Marshal(identity.Request{Op: identity.Personalise, Nonce: "n", Now: 1, Entropy: []byte("ab"), Hostname: "h", MachineID: "m", HostKey: "k", AuthorizedKeys: "a"})
	require.NoError(t, err)
	require.JSONEq(t, `{"op":"personalise","nonce":"n","now":1,"entropy":"YWI=","hostname":"h","machineID":"m","hostKey":"k","authorizedKeys":"a"}`, string(data))
	data, err = json.Marshal(identity.Answer{Nonce: "n", OK: true, Hostname: "h", ClockSteppedMillis: 5, BootID: "b"})
	require.NoError(t, err)
	require.JSONEq(t, `{"nonce":"n","ok":true,"hostname":"h","clockSteppedMillis":5,"bootID":"b"}`, string(data))
}
