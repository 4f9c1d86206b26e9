package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/config"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/source/release"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

// fakeParts are labctl's lower layers for scripts. FAKE, words separated by commas, says what goes wrong.
func fakeParts() factory.Parts {
	return factory.Parts{
		Driver: func(c config.Loaded, _ func(string)) (provision.Driver, error) {
			return &fakeDriver{home: c.Home()}, nil
		},
		Images:   func(c config.Config) factory.Images { return store.New(c.Home()) },
		Upstream: func(config.Loaded) (factory.Upstream, error) { return fakeUpstream{}, nil },
		Builder: func(c config.Loaded, _ func(string)) (factory.Builder, error) {
			return &fakeBuilder{home: c.Home()}, nil
		},
		Dial: func(_ context.Context, ep provision.Endpoint) (factory.Guest, error) {
			if fake("no-ssh") {
				return nil, errors.New("no SSH handshake within 30s")
			}
			return &fakeGuest{root: filepath.Dir(ep.KeyFile)}, nil
		},
		Fleet: func(_ context.Context, _ config.Loaded, parallel int, say, _, _ func(string)) (factory.Fleet, error) {
			return fakeFleet{}, nil
		},
		OpenSSH: func(ep provision.Endpoint, _ string, tty bool, command []string) ([]string, error) {
			argv := []string{"ssh", "-p", fmt.Sprint(ep.Port)}
			if tty && len(command) > 0 {
				return append(argv, "-t", ep.Host, run.Quote(command)), nil
			}
			return append(argv, ep.Host), nil
		},
		GuestChecks: func(guest run.Runner, deep bool) []check.Check {
			ask := func(context.Context) (check.Outcome, error) { return check.Pass("ready"), nil }
			if fake("no-platform") {
				ask = func(context.Context) (check.Outcome, error) {
					return check.NotYet("node lab is Ready", "the node is NotReady", "see `journalctl -u k3s` in the guest"), nil
				}
			}
			return []check.Check{{ID: "node", Title: "node", Ask: ask}}
		},
		Isolate:      fakeIsolate,
		HalfIsolated: func(context.Context, run.Runner) (bool, error) { return fake("half"), nil },
	}
}

// fakeIsolate is a file in the guest.
func fakeIsolate(ctx context.Context, guest run.Runner, progress func(string)) (bool, error) {
	progress("new keys")
	if fake("no-keys") {
		return false, errors.New("cluster authority: gave up")
	}
	res, err := guest.Run(ctx, run.Cmd{Argv: []string{"sh", "-c", `[ ! -e "$1" ] || echo done; mkdir -p "$(dirname "$1")"; touch "$1"`, "sh", "/usr/local/lib/isolated"}})
	return strings.TrimSpace(string(res.Stdout)) == "done", err
}

func fake(word string) bool {
	for _, w := range strings.Split(os.Getenv("FAKE"), ",") {
		if w == word {
			return true
		}
	}
	return false
}

// fakeDriver keeps each instance's status in a file.
type fakeDriver struct{ home layout.Home }

func (d *fakeDriver) file(name string) string {
	return filepath.Join(string(d.home.Instance(name)), "fake.json")
}

func (d *fakeDriver) save(st provision.Status) error {
	if err := os.MkdirAll(filepath.Dir(d.file(st.Name)), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return os.WriteFile(d.file(st.Name), data, 0o600)
}

func (d *fakeDriver) Info() provision.Info {
	if fake("no-qemu") {
		return provision.Info{Name: "qemu"}
	}
	return provision.Info{Name: "qemu", Version: "10.0.0"}
}

func (d *fakeDriver) Preflight(_ context.Context, spec provision.Spec) []check.Result {
	results := []check.Result{
		{ID: "qemu", Title: "QEMU", State: check.Passed, Got: "10.0.0"},
		{ID: "memory", Title: "memory", State: check.Passed, Got: "20 GiB free"},
		{ID: "disk", Title: "disk", State: check.Passed, Got: "100 GiB free"},
	}
	if fake("no-qemu") {
		results[0] = check.Result{ID: "qemu", Title: "QEMU", State: check.Failed, Got: "QEMU is not installed", Hint: "install it: apt-get install qemu-system-x86 qemu-utils"}
	}
	if fake("no-memory") || spec.MemoryMiB > 20*1024 {
		results[1] = check.Result{ID: "memory", Title: "memory", State: check.Failed, Got: (&provision.ResourceError{What: "memory", Need: fmt.Sprintf("%d MiB", spec.MemoryMiB), Have: "1024 MiB"}).Error(), Hint: "stop an instance, or use less with --memory"}
	}
	if fake("no-disk") {
		results[2] = check.Result{ID: "disk", Title: "disk", State: check.Failed, Got: (&provision.ResourceError{What: "disk space", Need: "6 GiB", Have: "2 GiB"}).Error(), Hint: "make room in the state folder"}
	}
	return results
}

func (d *fakeDriver) Create(_ context.Context, spec provision.Spec) error {
	if have, err := d.Status(context.Background(), spec.Name); err == nil && have.Power != provision.Absent {
		if have.Power == provision.Broken {
			return &provision.BrokenError{Name: spec.Name, Reason: have.Reason}
		}
		return provision.Conflict(have.Spec, spec)
	}
	private, _, err := ssh.GenerateKey("host")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d.home.Instance(spec.Name)), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(d.home.Instance(spec.Name).HostKey(), private, 0o600); err != nil {
		return err
	}
	if spec.SSHPort == 0 {
		spec.SSHPort = 40000 + len(spec.Name)
	}
	return d.save(provision.Status{Name: spec.Name, Power: provision.Stopped, Spec: spec, Created: time.Unix(1700000000, 0).UTC()})
}

func (d *fakeDriver) Start(ctx context.Context, name string, progress func(string)) (provision.Endpoint, error) {
	st, err := d.Status(ctx, name)
	if err != nil {
		return provision.Endpoint{}, err
	}
	progress("power on")
	if fake("no-boot") {
		return provision.Endpoint{}, &provision.BootError{Name: name, Stage: "SSH", Console: "[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs", Err: errors.New("the guest stopped")}
	}
	if fake("hang") {
		if err := os.WriteFile(filepath.Join(os.Getenv("WORK"), "booting"), nil, 0o600); err != nil {
			return provision.Endpoint{}, err
		}
		<-ctx.Done()
		return provision.Endpoint{}, context.Cause(ctx)
	}
	if fake("panic") {
		panic("index out of reach")
	}
	if st.Power != provision.Running {
		st.Power, st.PID, st.Accelerator, st.Started = provision.Running, 4242, "tcg", time.Now().Add(-3*time.Minute)
		if err := d.save(st); err != nil {
			return provision.Endpoint{}, err
		}
	}
	return d.Endpoint(ctx, name)
}

func (d *fakeDriver) Renew(ctx context.Context, spec provision.Spec, keep string, ready func(context.Context, provision.Endpoint) error, progress func(string)) error {
	before, err := d.Status(ctx, spec.Name)
	if err != nil {
		return err
	}
	if err := d.Delete(ctx, spec.Name); err != nil {
		return err
	}
	err = d.Create(ctx, spec)
	var ep provision.Endpoint
	if err == nil {
		ep, err = d.Start(ctx, spec.Name, progress)
	}
	if err == nil {
		err = ready(ctx, ep)
	}
	before.Power, before.PID = provision.Stopped, 0
	if err != nil {
		return &provision.RenewError{Name: spec.Name, Err: errors.Join(err, d.save(before))}
	}
	if before.Name = keep; keep == "" {
		return nil
	}
	before.Suspended = true
	return d.save(before)
}

// pool keeps the fake driver's spares apart from its instances.
func (d *fakeDriver) pool() *fakeDriver {
	return &fakeDriver{home: layout.Home{State: filepath.Join(d.home.State, "pool")}}
}

func (d *fakeDriver) MakeSpare(ctx context.Context, spec provision.Spec, ready func(context.Context, provision.Endpoint) error, progress func(string)) error {
	err := d.Create(ctx, spec)
	var ep provision.Endpoint
	if err == nil {
		ep, err = d.Start(ctx, spec.Name, progress)
	}
	if err == nil {
		err = ready(ctx, ep)
	}
	st, statusErr := d.Status(ctx, spec.Name)
	if err := errors.Join(err, statusErr, d.Delete(ctx, spec.Name)); err != nil {
		return err
	}
	st.Spec.Spare = true
	return d.pool().save(st)
}

func (d *fakeDriver) Spares(ctx context.Context) ([]provision.Status, error) {
	return d.pool().List(ctx)
}

func (d *fakeDriver) Stop(ctx context.Context, name string) error {
	st, err := d.Status(ctx, name)
	if err != nil {
		return err
	}
	st.Power, st.PID, st.Accelerator, st.Started = provision.Stopped, 0, "", time.Time{}
	return d.save(st)
}

func (d *fakeDriver) Delete(_ context.Context, name string) error {
	return errors.Join(os.RemoveAll(string(d.home.Instance(name))), os.RemoveAll(string(layout.Home{State: filepath.Join(d.home.State, "pool")}.Instance(name))))
}

func (d *fakeDriver) Status(_ context.Context, name string) (provision.Status, error) {
	data, err := os.ReadFile(d.file(name))
	if err != nil {
		if _, dirErr := os.Stat(string(d.home.Instance(name))); dirErr == nil {
			return provision.Status{Name: name, Power: provision.Broken, Reason: "its record is missing"}, nil
		}
		return provision.Status{Name: name, Power: provision.Absent}, nil
	}
	var st provision.Status
	return st, json.Unmarshal(data, &st)
}

func (d *fakeDriver) List(ctx context.Context) ([]provision.Status, error) {
	entries, err := os.ReadDir(d.home.Instances())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []provision.Status
	for _, e := range entries {
		st, err := d.Status(ctx, e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, st)
	}
	return all, nil
}

func (d *fakeDriver) Endpoint(ctx context.Context, name string) (provision.Endpoint, error) {
	st, err := d.Status(ctx, name)
	if err != nil {
		return provision.Endpoint{}, err
	}
	if st.Power != provision.Running {
		return provision.Endpoint{}, &provision.NotRunningError{Name: name}
	}
	return provision.Endpoint{Host: "127.0.0.1", Port: st.Spec.SSHPort, User: "root", KeyFile: d.home.Instance(name).UserKey()}, nil
}

func (d *fakeDriver) ConsoleTail(string, int) string { return "[   30.1] k3s: waiting for etcd" }

func (d *fakeDriver) leftover() string { return filepath.Join(d.home.State, "leftover") }

func (d *fakeDriver) Leftovers(context.Context) ([]provision.Leftover, error) {
	if _, err := os.Stat(d.leftover()); err != nil {
		return nil, nil
	}
	return []provision.Leftover{{Kind: "file", Path: d.leftover(), Why: "no instance owns it"}}, nil
}

func (d *fakeDriver) Sweep(_ context.Context, all []provision.Leftover) error {
	for _, l := range all {
		if err := os.Remove(l.Path); err != nil {
			return err
		}
	}
	return nil
}

// fakeFleet works on one instance after another.
type fakeFleet struct{}

func (fakeFleet) Up(ctx context.Context, specs []provision.Spec, do func(context.Context, string) error) (map[string]error, error) {
	out := map[string]error{}
	for _, spec := range specs {
		out[spec.Name] = do(ctx, spec.Name)
	}
	return out, nil
}

func (fakeFleet) Down(ctx context.Context, names []string, do func(context.Context, string) error) (map[string]error, error) {
	out := map[string]error{}
	for _, name := range names {
		out[name] = do(ctx, name)
	}
	return out, nil
}

// Fits has room for four.
func (d *fakeDriver) Fits(_ context.Context, specs []provision.Spec) error {
	if len(specs) <= 4 {
		return nil
	}
	return &provision.ResourceError{What: "memory", Need: fmt.Sprintf("%d MiB for %d instances", len(specs)*3584, len(specs)), Have: "16000 MiB, enough for 4 of them", Fix: "make fewer"}
}

// fakeGuest is a folder on this machine; commands run here, with /usr/local below the folder. It counts its sessions.
type fakeGuest struct{ root string }

func (g *fakeGuest) path(p string) string {
	for _, own := range []string{"/usr/local/", "/dev/pts", "/root", "/srv/bare"} {
		if strings.HasPrefix(p, own) {
			return g.root + p
		}
	}
	return p
}

func (g *fakeGuest) session(what string) error {
	file, err := os.OpenFile(filepath.Join(os.Getenv("WORK"), "sessions"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintln(file, what)
	return err
}

func (g *fakeGuest) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	if err := g.session("run"); err != nil {
		return run.Result{}, err
	}
	if fake("lost") {
		return run.Result{}, errors.New("the SSH connection was lost: EOF")
	}
	for i, word := range cmd.Argv {
		cmd.Argv[i] = g.path(word)
	}
	return run.Local{}.Run(ctx, cmd)
}

func (g *fakeGuest) Upload(_ context.Context, local, remote string, mode fs.FileMode) error {
	if err := g.session("upload"); err != nil {
		return err
	}
	if fake("guest-full") {
		return fmt.Errorf("upload to %s: No space left on device", remote)
	}
	data, err := os.ReadFile(local)
	if err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(g.path(remote)), g.path("/usr/local/bin")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return os.WriteFile(g.path(remote), data, mode)
}

func (g *fakeGuest) Shell(_ context.Context, stdin io.Reader, stdout, _ io.Writer, _ bool) error {
	words, err := io.ReadAll(stdin)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "shell: %s", words)
	return err
}

func (g *fakeGuest) Close() error { return nil }

// fakeBuilder makes an image of a few bytes.
type fakeBuilder struct{ home layout.Home }

func (b *fakeBuilder) Preflight(context.Context, factory.Build) []check.Result {
	if fake("no-tools") {
		return []check.Result{{ID: "mmdebstrap", Title: "mmdebstrap", State: check.Failed, Got: "mmdebstrap is not installed", Hint: "install it: apt-get install mmdebstrap"}}
	}
	return []check.Result{{ID: "mmdebstrap", Title: "mmdebstrap", State: check.Passed, Got: "1.5"}}
}

func (b *fakeBuilder) Build(ctx context.Context, o factory.Build) (images.Image, error) {
	dir := b.home.Image(o.Name)
	stages := []stage.Stage[struct{}]{
		{Name: "guest system", Run: func(context.Context, *struct{}, func(string)) error { return os.MkdirAll(string(dir), 0o700) }},
		{Name: "disk", Run: func(context.Context, *struct{}, func(string)) error {
			if fake("no-build") {
				return errors.New("mke2fs: exit code 1: no space left on device")
			}
			return os.WriteFile(dir.Disk(), []byte("disk of "+o.Name), 0o600)
		}},
		{Name: "publish", Run: func(ctx context.Context, _ *struct{}, _ func(string)) error {
			return store.Seal(ctx, dir, images.Metadata{
				Name: o.Name, Created: time.Unix(1700000000, 0).UTC(), Source: images.Modules, Recipe: "sha256:" + os.Getenv("RECIPE"),
				Versions: map[string]string{"kubernetes": "v1.37.0", "argocd": "v3.6.1", "nginx": "1.27"}, StandIns: map[string]string{"nginx": "nginx 1.26.3 of Debian"},
				Containers:   fakeContainers(),
				MinMemoryMiB: 1536, MinDiskGiB: 6,
			}, []string{filepath.Base(dir.Disk())}, nil)
		}},
	}
	if err := stage.Run(ctx, &struct{}{}, o.Sink, stages...); err != nil {
		return images.Image{}, err
	}
	return store.New(b.home).Get(ctx, o.Name)
}

func (b *fakeBuilder) Current(ctx context.Context, o factory.Build) (bool, error) {
	img, err := store.New(b.home).Get(ctx, o.Name)
	if err != nil {
		return false, err
	}
	why, err := b.Outdated(ctx, img)
	return why == "", err
}

func (b *fakeBuilder) Cloud(_ context.Context, o factory.Build, dir string) ([]images.File, error) {
	if fake("no-build") {
		return nil, errors.New("mke2fs: exit code 1: no space left on device")
	}
	return []images.File{{Name: o.Name + ".raw", Size: 1 << 30, SHA256: strings.Repeat("d", 64)}}, os.MkdirAll(dir, 0o755)
}

func (b *fakeBuilder) Outdated(_ context.Context, img images.Image) (string, error) {
	if img.Metadata.Recipe != "sha256:"+os.Getenv("RECIPE") {
		return "it was made from another recipe", nil
	}
	return "", nil
}

func (*fakeBuilder) Leftovers(factory.Build) ([]provision.Leftover, error) { return nil, nil }

func (*fakeBuilder) Sweep(context.Context, factory.Build, []provision.Leftover) error { return nil }

// fakeContainers are nginx's; with FAKE=no-containers there is none.
func fakeContainers() map[string]string {
	if fake("no-containers") {
		return nil
	}
	return map[string]string{"docker.io/library/nginx:1.27-alpine": "sha256:aa", "docker.io/library/nginx:1.28-alpine": "sha256:bb"}
}

// fakeUpstream has one file and one image. UPSTREAM=moved has another image under the same name, UPSTREAM=newer another release, and
// UPSTREAM=mirrored is a mirror.
type fakeUpstream struct{}

func (fakeUpstream) Resolve(_ context.Context, mirror string, progress func(string)) (*release.Lock, error) {
	progress("k3s")
	digest := strings.Repeat("b", 64)
	if os.Getenv("UPSTREAM") == "moved" {
		digest = strings.Repeat("c", 64)
	}
	if os.Getenv("UPSTREAM") == "away" {
		return nil, &release.StatusError{URL: "https://upstream.example/sums", Code: 404}
	}
	var mirrors *release.LockedMirrors
	if os.Getenv("UPSTREAM") == "mirrored" {
		mirrors = &release.LockedMirrors{Releases: "https://mirror.example/releases", Registries: map[string]string{"docker.io": "mirror.example/hub"}}
	}
	return &release.Lock{
		SchemaVersion: 1, Resolved: time.Unix(1_700_000_000, 0).UTC(), Mirrors: mirrors, Debian: release.LockedDebian{Suite: "trixie", Mirror: mirror},
		Files:  []release.LockedFile{{Part: "k3s", Version: "v1", URL: "https://upstream.example/k3s", Bytes: 2048, SHA256: strings.Repeat("a", 64)}},
		Images: []release.LockedImage{{Name: "nginx:1", Digest: "sha256:" + digest, Bytes: 4096}},
	}, nil
}

func (fakeUpstream) Newer(context.Context) (map[string]string, error) {
	if os.Getenv("UPSTREAM") == "newer" {
		return map[string]string{"k3s": "v2"}, nil
	}
	return map[string]string{}, nil
}
