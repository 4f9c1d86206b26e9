package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/agent"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/qemu/qmp"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/state"
)

// consoleTail is how much of the guest's console a boot error shows, in bytes.
const consoleTail = 3000

// Start implements provision.Driver.
func (d *Driver) Start(ctx context.Context, name string, progress func(stage string)) (provision.Endpoint, error) {
	if progress == nil {
		progress = func(string) {}
	}
	lock, err := d.lock(ctx, name)
	if err != nil {
		return provision.Endpoint{}, err
	}
	defer d.release(lock, name)
	return d.start(ctx, name, progress)
}

// start is Start by who holds the lock.
func (d *Driver) start(ctx context.Context, name string, progress func(string)) (provision.Endpoint, error) {
	none := provision.Endpoint{}
	rec, err := d.load(name)
	if err != nil {
		return none, err
	}
	if err := d.tidy(rec); err != nil {
		return none, err
	}
	p, running := d.process(name, rec.Run)
	if running && rec.Run != nil && rec.Run.Ready && rec.Suspended == nil {
		// A suspend that was cut short may have left the guest standing still. A monitor that is silent is no reason to fail.
		quick, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := d.wake(quick, name); err != nil {
			d.opts.Log(fmt.Sprintf("QEMU's monitor of %q does not answer: %v", name, err))
		}
		return d.endpoint(rec)
	}
	if running {
		if p, running, err = d.adopt(ctx, &rec, p, progress); err != nil {
			return none, err
		}
	}
	if !running {
		rec.Run = nil
		if p, err = d.launch(ctx, &rec, progress); err != nil {
			return none, d.undo(ctx, rec, p, "power on", err)
		}
	}
	stage, err := d.bringUp(ctx, &rec, p, progress)
	for range portTries {
		if !rec.PortChosen || !portLost(err) || ctx.Err() != nil {
			break
		}
		// Programs, and labctls with another state home, choose ports as well.
		d.opts.Log(fmt.Sprintf("port %d was taken while %q started; another is chosen", rec.Spec.SSHPort, name))
		if err := d.end(name, p); err != nil {
			return none, d.undo(ctx, rec, p, stage, err)
		}
		rec.Run = nil
		if p, err = d.launch(ctx, &rec, progress); err != nil {
			return none, d.undo(ctx, rec, p, "power on", err)
		}
		stage, err = d.bringUp(ctx, &rec, p, progress)
	}
	if clone := rec.Fresh && rec.Frozen != ""; err != nil && (clone || rec.Suspended != nil) && ctx.Err() == nil {
		d.opts.Log(fmt.Sprintf("%q could not be resumed (%s: %v); it is booted instead", name, stage, err))
		if err := errors.Join(d.end(name, p), d.forgetSuspended(&rec)); err != nil {
			return none, d.undo(ctx, rec, p, stage, err)
		}
		rec.Spec.Cold, rec.Run = rec.Spec.Cold || clone, nil
		if p, err = d.launch(ctx, &rec, progress); err != nil {
			return none, d.undo(ctx, rec, p, "power on", err)
		}
		stage, err = d.bringUp(ctx, &rec, p, progress)
	}
	if err != nil {
		return none, d.undo(ctx, rec, p, stage, err)
	}
	return d.endpoint(rec)
}

// portTries is how often another port is chosen in one start.
const portTries = 3

// portLost says of a failed start that QEMU did not get the port, by what QEMU says then.
func portLost(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Could not set up host forwarding rule")
}

// What QEMU's monitor says of a machine that runs, and of one that stands still.
const machineRuns, machineStands = "running", "paused"

// adopt takes over the machine of a start that was interrupted, where it can still be talked to; otherwise it ends it and
// says that nothing runs.
func (d *Driver) adopt(ctx context.Context, rec *state.Record, p host.Process, progress func(string)) (host.Process, bool, error) {
	if rec.Run != nil && rec.Suspended == nil {
		status, err := d.machineStatus(ctx, rec.Spec.Name, 10*time.Second)
		how := "go on with the machine of a start that was interrupted"
		if err == nil && status == machineStands && rec.Run.Parked {
			how = "a spare that stood ready"
			if err = d.monitor(ctx, rec.Spec.Name, "cont", nil); err == nil {
				status = machineRuns
			}
		}
		if err == nil && status == machineRuns {
			progress(how)
			rec.Run.Parked = false
			return p, true, d.record(rec, p)
		}
		if ctx.Err() != nil {
			return p, true, context.Cause(ctx)
		}
	}
	progress("end the machine of a start that was interrupted")
	if err := d.end(rec.Spec.Name, p); err != nil {
		return p, true, err
	}
	rec.Run = nil
	return host.Process{}, false, d.store.Save(*rec)
}

// bringUp waits until the machine's guest is reachable. On failure it says at which stage.
func (d *Driver) bringUp(ctx context.Context, rec *state.Record, p host.Process, progress func(string)) (stage string, err error) {
	limits := d.times(rec.Run.Accelerator)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dir := d.home.Instance(rec.Spec.Name)
	go func() {
		if p.WaitExit(ctx) == nil {
			cancel(died(dir.QEMULog()))
		}
	}()
	deadline := time.Now().Add(limits.boot)
	stage = "QEMU's monitor"
	status, err := d.machineStatus(ctx, rec.Spec.Name, min(limits.boot, 30*time.Second))
	if err != nil {
		return stage, err
	}
	switch stage = "the guest boots"; {
	case rec.Run.Folder != "":
		stage = "the guest goes on"
	case status == inMigrate:
		stage = "the guest resumes"
		if rec.Fresh {
			// A clone that does not answer soon is not worth waiting for: it can be booted.
			deadline = time.Now().Add(min(limits.boot, thawTime))
		}
		if err := d.thaw(ctx, rec); err != nil {
			// QEMU ends itself where it cannot load a state, and its own words say more than the monitor's.
			soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if p.WaitExit(soon) == nil {
				err = died(dir.QEMULog())
			}
			return stage, err
		}
	}
	progress(stage)
	id, err := d.identity(*rec)
	if err != nil {
		return stage, err
	}
	answer, err := agent.Personalise(ctx, dir.Agent(), id, agent.Options{Timeout: time.Until(deadline), Attempt: limits.attempt})
	if err != nil {
		return stage, err
	}
	if answer.ClockSteppedMillis > 0 {
		d.opts.Log(fmt.Sprintf("the clock of %q was set forward by %s", rec.Spec.Name, time.Duration(answer.ClockSteppedMillis)*time.Millisecond))
	}
	d.hook("start:personalised")
	stage = "SSH"
	progress(stage)
	if err := d.reach(ctx, *rec, time.Until(deadline), limits.attempt); err != nil {
		return stage, err
	}
	rec.Run.Ready, rec.Fresh = true, false
	return "save the record", d.store.Save(*rec)
}

// identity is what the guest is to be told.
func (d *Driver) identity(rec state.Record) (agent.Identity, error) {
	dir := d.home.Instance(rec.Spec.Name)
	hostKey, err := os.ReadFile(dir.HostKey())
	if err != nil {
		return agent.Identity{}, err
	}
	userKey, err := os.ReadFile(dir.UserKey())
	if err != nil {
		return agent.Identity{}, err
	}
	login, err := ssh.PublicLine(userKey)
	if err != nil {
		return agent.Identity{}, err
	}
	return agent.Identity{Hostname: rec.Spec.Name, MachineID: rec.MachineID, HostKey: string(hostKey), AuthorizedKeys: login + " labctl\n"}, nil
}

// reach waits until SSH answers with the pinned key and lets us in.
func (d *Driver) reach(ctx context.Context, rec state.Record, timeout, attempt time.Duration) error {
	ep, err := d.endpoint(rec)
	if err != nil {
		return err
	}
	_, err = check.Wait{Timeout: timeout, Attempt: min(attempt, timeout)}.For(ctx, check.Check{ID: "ssh", Title: "SSH", Ask: func(ctx context.Context) (check.Outcome, error) {
		client, err := ssh.Dial(ctx, ep, ssh.Options{})
		if err != nil {
			return check.Outcome{}, err
		}
		return check.Pass("answers"), client.Close()
	}})
	return err
}

// machineStatus asks QEMU how the machine is, such as "running" or "internal-error", and waits for its monitor to be there.
func (d *Driver) machineStatus(ctx context.Context, name string, timeout time.Duration) (string, error) {
	var status struct{ Status string }
	_, err := check.Wait{Timeout: timeout, First: 20 * time.Millisecond, Most: time.Second}.For(ctx, check.Check{ID: "qmp", Title: "QEMU's monitor",
		Ask: func(ctx context.Context) (check.Outcome, error) {
			return check.Pass(""), d.monitor(ctx, name, "query-status", &status)
		}})
	return status.Status, err
}

// monitor runs one command on the instance's monitor.
func (d *Driver) monitor(ctx context.Context, name, command string, result any) error {
	client, err := qmp.Dial(ctx, d.home.Instance(name).QMP())
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Execute(ctx, command, nil, result)
}

// undo ends the machine that a failed start leaves, and says why the start failed.
func (d *Driver) undo(ctx context.Context, rec state.Record, p host.Process, stage string, err error) error {
	name := rec.Spec.Name
	if p == (host.Process{}) && rec.Run == nil {
		return err // refused before anything was changed
	}
	console := d.ConsoleTail(name, consoleTail)
	if p != (host.Process{}) {
		err = errors.Join(err, d.end(name, p))
	}
	rec.Run = nil
	err = errors.Join(err, d.store.Save(rec), d.clear(d.home.Instance(name)))
	if ctx.Err() != nil {
		return fmt.Errorf("the start of instance %q was interrupted, and it is off again: %w", name, err)
	}
	return &provision.BootError{Name: name, Stage: stage, Console: console, Err: err}
}

// clear removes the sockets of a machine that has ended; a new one could not listen on them.
func (d *Driver) clear(dir layout.InstanceDir) error {
	for _, path := range sockets(dir) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
