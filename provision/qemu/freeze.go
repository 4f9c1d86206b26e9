package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/qmp"
	"github.com/cgoa-labs/labctl/provision/state"
)

var _ provision.Freezer = (*Driver)(nil)

// freezeTime bounds the saving of a guest: its memory is in a file already, so that only what the page cache holds is written.
const freezeTime = 10 * time.Minute

// thawTime bounds the loading of a frozen guest's device state, which is less than 2 MB.
const thawTime = 2 * time.Minute

// inMigrate is what QEMU's monitor says of a machine that waits for its state.
const inMigrate = "inmigrate"

// ignoreShared leaves the guest's memory where it is, in a file; the stream then holds the devices only. Both sides must agree.
// A suspended guest's memory is its own and goes into the stream; that is said too, because a clone's QEMU remembers how it was resumed.
var ignoreShared, withMemory = streamOf(true), streamOf(false)

func streamOf(devicesOnly bool) map[string]any {
	return map[string]any{"capabilities": []map[string]any{{"capability": "x-ignore-shared", "state": devicesOnly}}}
}

// Freeze implements provision.Freezer.
func (d *Driver) Freeze(ctx context.Context, name string, dir layout.FrozenDir, progress func(string)) (err error) {
	lock, err := d.lock(ctx, name)
	if err != nil {
		return err
	}
	gone := false
	defer func() {
		if gone {
			err = errors.Join(err, lock.Remove())
			return
		}
		d.release(lock, name)
	}()
	rec, err := d.load(name)
	if err != nil {
		return err
	}
	p, running := d.process(name, rec.Run)
	switch {
	case !running || rec.Run == nil || !rec.Run.Ready:
		return &provision.NotRunningError{Name: name}
	case !rec.Spec.Freezable:
		return fmt.Errorf("instance %q was not made to be frozen", name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTime, fmt.Errorf("not frozen within %s", freezeTime))
	defer cancel()
	progress("save the devices")
	if err := d.save(ctx, name, dir.Devices(), ignoreShared); err != nil {
		return fmt.Errorf("freeze instance %q: %w", name, err)
	}
	if err := d.end(name, p); err != nil {
		return err
	}
	progress("write out memory and disk")
	from := d.home.Instance(name)
	for _, file := range [][2]string{{from.Memory(), dir.Memory()}, {from.Disk(), dir.Disk()}} {
		if err := syncFile(file[0]); err != nil {
			return err
		}
		if err := os.Rename(file[0], file[1]); err != nil {
			return fmt.Errorf("freeze instance %q: %w", name, err)
		}
	}
	gone = true
	return d.discard(name)
}

// save stops the guest and writes its state into a new file: its devices, and its memory unless the capabilities leave it out. The
// stream goes through a socket of ours, because QEMU's sandbox lets it start no program and older ones cannot write to a file.
func (d *Driver) save(ctx context.Context, name, into string, capabilities map[string]any) error {
	monitor, err := qmp.Dial(ctx, d.home.Instance(name).QMP())
	if err != nil {
		return err
	}
	defer monitor.Close()
	if err := prepare(ctx, monitor, capabilities); err != nil {
		return err
	}
	// Stopped first: a running guest's memory would go on changing in its file.
	if err := monitor.Execute(ctx, "stop", nil, nil); err != nil {
		return err
	}
	path := d.home.Instance(name).Transfer()
	// An earlier save that was killed may have left it.
	if err := removeFile(path); err != nil {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer listener.Close() // which also removes the socket
	written := make(chan error, 1)
	go func() { written <- receive(listener, into) }()
	if err := monitor.Execute(ctx, "migrate", map[string]string{"uri": "unix:" + path}, nil); err != nil {
		return err
	}
	if err := migrated(ctx, monitor); err != nil {
		return err
	}
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive writes the one stream that comes to listener into a file.
func receive(listener net.Listener, path string) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, conn)
	return errors.Join(err, file.Sync(), file.Close())
}

// migrated waits until QEMU has written or read a stream.
func migrated(ctx context.Context, monitor *qmp.Client) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	_, err := check.Wait{Timeout: freezeTime, First: 2 * time.Millisecond, Most: 100 * time.Millisecond}.For(ctx, check.Check{ID: "migrate", Title: "the device state",
		Ask: func(ctx context.Context) (check.Outcome, error) {
			var info struct {
				Status string
				Error  string `json:"error-desc"`
			}
			if err := monitor.Execute(ctx, "query-migrate", nil, &info); err != nil {
				return check.Outcome{}, err
			}
			switch info.Status {
			case "completed":
				return check.Pass(info.Status), nil
			case "failed", "cancelled":
				give(fmt.Errorf("QEMU says %s %s", info.Status, info.Error))
				return check.Outcome{}, context.Cause(ctx)
			}
			return check.NotYet("completed", info.Status, ""), nil
		}})
	return err
}

// unbounded lifts the limit of 128 MiB/s that QEMU keeps for networks.
var unbounded = map[string]any{"max-bandwidth": int64(1) << 40}

// prepare makes both sides of a stream agree.
func prepare(ctx context.Context, monitor *qmp.Client, capabilities map[string]any) error {
	if err := monitor.Execute(ctx, "migrate-set-capabilities", capabilities, nil); err != nil {
		return err
	}
	return monitor.Execute(ctx, "migrate-set-parameters", unbounded, nil)
}

// thaw loads the state of a frozen or suspended guest into a machine that waits for it, and lets the guest go on.
func (d *Driver) thaw(ctx context.Context, rec *state.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, thawTime, fmt.Errorf("not resumed within %s", thawTime))
	defer cancel()
	dir := d.home.Instance(rec.Spec.Name)
	monitor, err := qmp.Dial(ctx, dir.QMP())
	if err != nil {
		return err
	}
	defer monitor.Close()
	from, capabilities := dir.Suspended(), withMemory
	if rec.Suspended == nil {
		from, capabilities = rec.Spec.Image.Frozen(rec.Frozen).Devices(), ignoreShared
	}
	if err := prepare(ctx, monitor, capabilities); err != nil {
		return err
	}
	if err := monitor.Execute(ctx, "migrate-incoming", map[string]string{"uri": "unix:" + dir.Transfer()}, nil); err != nil {
		return err
	}
	err = send(ctx, from, dir.Transfer())
	if removeErr := os.Remove(dir.Transfer()); err == nil && !errors.Is(removeErr, os.ErrNotExist) {
		err = removeErr
	}
	if err != nil {
		return err
	}
	if err := migrated(ctx, monitor); err != nil {
		return err
	}
	d.hook("start:loaded")
	// Before the guest writes its next byte: from then on the kept memory does not belong to the disk any more.
	if err := d.forgetSuspended(rec); err != nil {
		return err
	}
	return monitor.Execute(ctx, "cont", nil, nil)
}

// send writes a file into a socket that QEMU listens on.
func send(ctx context.Context, path, socket string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = io.Copy(conn, file)
	return errors.Join(err, conn.Close())
}
