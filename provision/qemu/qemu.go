// Package qemu runs instances with QEMU on this host: an overlay disk, one process of its own session, user-mode network.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/accel"
	"github.com/cgoa-labs/labctl/provision/qemu/argv"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/state"
)

// Name is the driver's name.
const Name = "qemu"

// Options tune a Driver. The zero value is right for most hosts.
type Options struct {
	// Binary and ImgBinary are qemu-system-x86_64 and qemu-img; by default they are looked for on PATH.
	Binary, ImgBinary string
	// Accelerator is "auto" (the default), "kvm" or "tcg".
	Accelerator string
	// BootTimeout bounds the time from power-on to SSH; by default 90 s under KVM and 8 min under emulation.
	BootTimeout time.Duration
	// StopGrace bounds an orderly power-off; by default 30 s under KVM and 2 min under emulation.
	StopGrace time.Duration
	// NoSandbox turns QEMU's system call filter off.
	NoSandbox bool
	// Log is told what is worth knowing and no error, one line each; it may be nil.
	Log func(string)
}

// Driver is a provision.Driver.
type Driver struct {
	home  layout.Home
	opts  Options
	store state.Store
	// kvm is KVM's device and freeMemory asks the host; tests have their own.
	kvm        string
	freeMemory func() (int64, error)
	// hook is called between the steps of a change, so that tests can cut it short there.
	hook func(point string)
}

var _ provision.Driver = (*Driver)(nil)

// New makes a driver for the instances below home. It touches nothing.
func New(home layout.Home, opts Options) (*Driver, error) {
	switch opts.Accelerator {
	case "":
		opts.Accelerator = accel.Auto
	case accel.Auto, argv.KVM, argv.TCG:
	default:
		return nil, &provision.SpecError{Field: "the accelerator", Got: fmt.Sprintf("%q", opts.Accelerator), Want: "auto, kvm or tcg"}
	}
	if opts.Log == nil {
		opts.Log = func(string) {}
	}
	return &Driver{
		home: home, opts: opts, store: state.Store{Home: home},
		kvm: "/dev/kvm", freeMemory: host.MemoryAvailable, hook: func(string) {},
	}, nil
}

// times are the limits that depend on how fast the guest is.
type times struct{ boot, grace, attempt time.Duration }

func (d *Driver) times(accelerator string) times {
	t := times{boot: 8 * time.Minute, grace: 2 * time.Minute, attempt: 30 * time.Second}
	if accelerator == argv.KVM {
		t = times{boot: 90 * time.Second, grace: 30 * time.Second, attempt: 10 * time.Second}
	}
	if d.opts.BootTimeout > 0 {
		t.boot = d.opts.BootTimeout
	}
	if d.opts.StopGrace > 0 {
		t.grace = d.opts.StopGrace
	}
	return t
}

// Info implements provision.Driver.
func (d *Driver) Info() provision.Info {
	version, _ := d.version(context.Background())
	return provision.Info{Name: Name, Version: version}
}

// Status implements provision.Driver.
func (d *Driver) Status(_ context.Context, name string) (provision.Status, error) {
	rec, err := d.store.Load(name)
	var none *provision.NotFoundError
	if errors.As(err, &none) {
		if rec, err = d.store.LoadFrom(name, d.home.Before(name)); errors.As(err, &none) {
			return provision.Status{Name: name, Power: provision.Absent}, nil
		}
	}
	var broken *provision.BrokenError
	if err != nil && !errors.As(err, &broken) {
		return provision.Status{}, err
	}
	return d.status(state.Entry{Name: name, Record: rec, Err: err}), nil
}

// Used implements provision.Metered.
func (d *Driver) Used(st provision.Status) (int, error) {
	used, err := host.Share(st.PID)
	return int(used >> 20), err
}

// List implements provision.Driver.
func (d *Driver) List(context.Context) ([]provision.Status, error) {
	entries, err := d.entries()
	if err != nil {
		return nil, err
	}
	list := make([]provision.Status, 0, len(entries))
	for _, e := range entries {
		if !e.Record.Spec.Spare && !d.halfTaken(e.Name) {
			list = append(list, d.status(e))
		}
	}
	return list, nil
}

func (d *Driver) status(e state.Entry) provision.Status {
	s := provision.Status{Name: e.Name, Power: provision.Broken, Spec: e.Record.Spec, Created: e.Record.Created, Frozen: e.Record.Frozen}
	var broken *provision.BrokenError
	switch {
	case errors.As(e.Err, &broken):
		s.Reason = broken.Reason
		return s
	case e.Err != nil:
		s.Reason = e.Err.Error()
		return s
	case !e.Record.Complete:
		incomplete := provision.IncompleteError{Name: e.Name}
		s.Reason = "making it was interrupted; " + incomplete.Hint()
		return s
	}
	s.Power, s.Suspended = provision.Stopped, e.Record.Suspended != nil
	if d.waits(e.Name) {
		s.Waiting = d.waitingStatus(e.Name)
		if !d.busy(e.Name) {
			s.Reason = interruptedRenewal
		}
	}
	if p, ok := d.process(e.Name, e.Record.Run); ok {
		s.Power, s.Suspended, s.PID = provision.Running, false, p.PID
		if run := e.Record.Run; run != nil {
			s.Accelerator, s.Started = run.Accelerator, run.Started
			if !run.Ready && !e.Record.Spec.Spare && s.Reason == "" {
				s.Reason = "starting, or its start was interrupted"
			}
		}
	}
	return s
}

// process is the instance's running machine: the recorded one, or else one that was started and not recorded any more
// before labctl was ended.
func (d *Driver) process(name string, run *state.Run) (host.Process, bool) {
	if run != nil && run.PID != 0 {
		p := host.Process{PID: run.PID, StartTicks: run.StartTicks, HostBoot: run.HostBoot}
		if p.Alive() {
			return p, true
		}
	}
	found, err := host.Find(func(args []string) bool {
		dir, ok := argv.Owner(args, d.home.Instances())
		return ok && (dir == d.home.Instance(name) || run != nil && run.Folder != "" && dir == d.home.Instance(run.Folder))
	})
	if err != nil || len(found) == 0 {
		return host.Process{}, false
	}
	return found[0].Process, true
}

// Endpoint implements provision.Driver.
func (d *Driver) Endpoint(_ context.Context, name string) (provision.Endpoint, error) {
	if d.unsettled(name) {
		// Work on what will be discarded would be lost.
		return provision.Endpoint{}, &provision.UnsettledError{Name: name}
	}
	rec, err := d.load(name)
	if err != nil {
		return provision.Endpoint{}, err
	}
	if _, ok := d.process(name, rec.Run); !ok {
		return provision.Endpoint{}, &provision.NotRunningError{Name: name}
	}
	return d.endpoint(rec)
}

func (d *Driver) endpoint(rec state.Record) (provision.Endpoint, error) {
	dir := d.home.Instance(rec.Spec.Name)
	private, err := os.ReadFile(dir.HostKey())
	if err != nil {
		return provision.Endpoint{}, &provision.BrokenError{Name: rec.Spec.Name, Reason: err.Error()}
	}
	public, err := ssh.PublicLine(private)
	if err != nil {
		return provision.Endpoint{}, &provision.BrokenError{Name: rec.Spec.Name, Reason: err.Error()}
	}
	return provision.Endpoint{Host: "127.0.0.1", Port: rec.Spec.SSHPort, User: "root", KeyFile: dir.UserKey(), HostKey: public}, nil
}

// load reads the record of an instance that is whole.
func (d *Driver) load(name string) (state.Record, error) {
	rec, err := d.store.Load(name)
	if err == nil && !rec.Complete {
		err = &provision.IncompleteError{Name: name}
	}
	return rec, err
}

// lock takes the instance's lock and says so once when it has to wait. Whoever has the lock finds the instance as it was before a
// renewal that was interrupted.
func (d *Driver) lock(ctx context.Context, name string) (*state.Lock, error) {
	if err := layout.CheckName("instance", name); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("instance %q", name)
	lock, err := d.store.Lock(ctx, d.home.Lock("instance", name), what, func(pid int) {
		d.opts.Log(fmt.Sprintf("waiting for another labctl (pid %d) to finish with %s", pid, what))
	})
	if err != nil {
		return nil, err
	}
	if err := d.putBack(name); err != nil {
		d.release(lock, name)
		return nil, err
	}
	return lock, nil
}

// release gives the instance's lock up, and removes its file where there is no instance, such as after a refusal.
func (d *Driver) release(lock *state.Lock, name string) {
	if _, err := os.Stat(string(d.home.Instance(name))); errors.Is(err, fs.ErrNotExist) && !d.waits(name) {
		_ = lock.Remove()
		return
	}
	_ = lock.Release()
}

// ConsoleTail implements provision.Driver. What the guest wrote is made safe to print: no control characters, valid UTF-8.
func (d *Driver) ConsoleTail(name string, limit int) string {
	if layout.CheckName("instance", name) != nil {
		return ""
	}
	return tail(d.home.Instance(name).Console(), limit)
}

// escapes are a terminal's control sequences.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?!]*[ -/]*[@-~]|[@-Z\\^_])`)

// tail is the end of a text file in whole lines, at most limit bytes, without what would change a terminal.
func tail(path string, limit int) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := size - int64(limit)
	if _, err := file.Seek(max(from, 0), io.SeekStart); err != nil {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(file, int64(limit)))
	if err != nil {
		return ""
	}
	text := string(data)
	if from > 0 {
		if _, rest, cut := strings.Cut(text, "\n"); cut {
			text = rest
		}
	}
	text = escapes.ReplaceAllString(text, "")
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, ""))
	return strings.TrimSpace(text)
}
