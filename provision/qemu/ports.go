package qemu

import (
	"context"
	"fmt"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
	"github.com/cgoa-labs/labctl/provision/state"
)

// Ports that are chosen lie below those that the kernel gives to outgoing connections, so that none of these takes one
// while its instance is off.
const firstPort, lastPort = 22200, 23199

// withPort gives rec a free port where none was asked for, or its own is taken by now, and refuses a taken one that was
// asked for. save runs before another labctl can choose.
func (d *Driver) withPort(ctx context.Context, rec *state.Record, save func() error) error {
	lock, err := d.store.Lock(ctx, d.home.Lock("host", "ports"), "the choice of ports", nil)
	if err != nil {
		return err
	}
	defer lock.Release()
	if rec.PortChosen {
		if rec.Spec.SSHPort, err = d.choosePort(rec.Spec.Name, rec.Spec.SSHPort); err != nil {
			return err
		}
	} else if err := d.portFree(rec.Spec.Name, rec.Spec.SSHPort); err != nil {
		return err
	}
	return save()
}

// choosePort keeps kept where it is free.
func (d *Driver) choosePort(name string, kept int) (int, error) {
	taken, err := d.otherPorts(name)
	if err != nil {
		return 0, err
	}
	if kept != 0 && taken[kept] == "" && host.PortFree(kept) {
		return kept, nil
	}
	for port := firstPort; port <= lastPort; port++ {
		if taken[port] == "" && host.PortFree(port) {
			return port, nil
		}
	}
	return 0, &provision.HostError{
		Problem: fmt.Sprintf("no port from %d to %d is free on 127.0.0.1", firstPort, lastPort),
		Fix:     "remove instances that are not needed (`labctl status`), or choose a port",
	}
}

// portFree refuses a port that a program or another instance has.
func (d *Driver) portFree(name string, port int) error {
	taken, err := d.otherPorts(name)
	if err != nil {
		return err
	}
	if owner := taken[port]; owner != "" {
		return &provision.PortError{Port: port, Owner: fmt.Sprintf("instance %q", owner)}
	}
	if !host.PortFree(port) {
		return &provision.PortError{Port: port, Owner: host.PortOwner(port)}
	}
	return nil
}

// otherPorts are the ports of the other instances, with their names. A broken instance's port is not known.
func (d *Driver) otherPorts(name string) (map[int]string, error) {
	entries, err := d.entries()
	if err != nil {
		return nil, err
	}
	taken := map[int]string{}
	for _, e := range entries {
		if e.Name != name && e.Err == nil && e.Record.Spec.SSHPort != 0 {
			taken[e.Record.Spec.SSHPort] = e.Name
		}
	}
	return taken, nil
}
