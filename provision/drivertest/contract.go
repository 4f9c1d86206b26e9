// Package drivertest holds the contract that every provision.Driver must keep.
package drivertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

// Setup is a driver to test, on a state home of its own without instances.
type Setup struct {
	Driver provision.Driver
	// Spec is a shape that the driver can run, for an instance of this name.
	Spec func(name string) provision.Spec
	// Scratch is an existing folder on the guest's disk.
	Scratch string
}

// Contract checks what package provision promises of a Driver. It makes, starts and deletes two instances.
func Contract(t *testing.T, s Setup) {
	ctx, d := t.Context(), s.Driver
	ada, bob := s.Spec("ada"), s.Spec("bob")
	t.Cleanup(func() {
		clean, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, name := range []string{"ada", "bob"} {
			if err := d.Delete(clean, name); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})

	require.NotEmpty(t, d.Info().Name)
	require.NotEmpty(t, d.Info().Version)

	// Nothing is there yet.
	status, err := d.Status(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, provision.Absent, status.Power)
	list, err := d.List(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Empty(t, d.ConsoleTail("ada", 1000))
	var none *provision.NotFoundError
	_, err = d.Start(ctx, "ada", nil)
	require.ErrorAs(t, err, &none)
	require.ErrorAs(t, d.Stop(ctx, "ada"), &none)
	_, err = d.Endpoint(ctx, "ada")
	require.ErrorAs(t, err, &none)
	require.NoError(t, d.Delete(ctx, "ada"), "deleting what is absent is no error")
	requireNothingLeft(t, d)

	// Names that could leave the state home.
	var bad *layout.NameError
	for _, name := range []string{"", "../ada", "Ada"} {
		spec := ada
		spec.Name = name
		require.ErrorAs(t, d.Create(ctx, spec), &bad)
		_, err = d.Start(ctx, name, nil)
		require.ErrorAs(t, err, &bad)
		require.ErrorAs(t, d.Delete(ctx, name), &bad)
	}

	for _, spec := range []provision.Spec{ada, {}} {
		for _, res := range d.Preflight(ctx, spec) {
			require.Equal(t, check.Passed, res.State, "%s: %s", res.ID, res.Got)
		}
	}
	list, err = d.List(ctx)
	require.NoError(t, err)
	require.Empty(t, list, "a preflight changes nothing")

	// Create.
	require.NoError(t, d.Create(ctx, ada))
	require.NoError(t, d.Create(ctx, ada), "creating an equal instance changes nothing")
	bigger := ada
	bigger.MemoryMiB++
	var conflict *provision.ConflictError
	require.ErrorAs(t, d.Create(ctx, bigger), &conflict)
	require.Equal(t, "ada", conflict.Name)
	status, err = d.Status(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, provision.Stopped, status.Power, status.Reason)
	require.NotZero(t, status.Spec.SSHPort, "a port was taken")
	require.False(t, status.Created.IsZero())
	var off *provision.NotRunningError
	_, err = d.Endpoint(ctx, "ada")
	require.ErrorAs(t, err, &off)
	require.NoError(t, d.Stop(ctx, "ada"), "stopping what is stopped changes nothing")

	// Start.
	var stages []string
	ep, err := d.Start(ctx, "ada", func(stage string) { stages = append(stages, stage) })
	require.NoError(t, err)
	require.NotEmpty(t, stages)
	require.Equal(t, status.Spec.SSHPort, ep.Port)
	require.Equal(t, "127.0.0.1", ep.Host)
	file := s.Scratch + "/drivertest"
	guest(t, ep, "echo kept > "+file)
	running, err := d.Status(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, provision.Running, running.Power)
	require.Empty(t, running.Reason)
	require.NotEmpty(t, running.Accelerator)
	require.False(t, running.Started.IsZero())
	again, err := d.Start(ctx, "ada", nil)
	require.NoError(t, err)
	require.Equal(t, ep, again, "starting what runs changes nothing")
	same, err := d.Status(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, running, same)
	got, err := d.Endpoint(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, ep, got)
	require.NotEmpty(t, d.ConsoleTail("ada", 1000))
	require.LessOrEqual(t, len(d.ConsoleTail("ada", 10)), 10)
	require.NoError(t, d.Create(ctx, ada), "also while it runs")

	// Two instances do not share anything.
	require.NoError(t, d.Create(ctx, bob))
	list, err = d.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "ada", list[0].Name)
	require.NotEqual(t, list[0].Spec.SSHPort, list[1].Spec.SSHPort)
	other := s.Spec("carol")
	other.SSHPort = ep.Port
	var taken *provision.PortError
	require.ErrorAs(t, d.Create(ctx, other), &taken)
	require.Contains(t, taken.Owner, "ada")
	status, err = d.Status(ctx, "carol")
	require.NoError(t, err)
	require.Equal(t, provision.Absent, status.Power, "what was refused left nothing")
	requireNothingLeft(t, d)

	// Stop and start again: same port, same key, same disk.
	require.NoError(t, d.Stop(ctx, "ada"))
	status, err = d.Status(ctx, "ada")
	require.NoError(t, err)
	require.Equal(t, provision.Stopped, status.Power)
	require.Zero(t, status.PID)
	_, err = ssh.Dial(ctx, ep, ssh.Options{Handshake: 5 * time.Second})
	require.Error(t, err, "nothing listens any more")
	requireNothingLeft(t, d)
	again, err = d.Start(ctx, "ada", nil)
	require.NoError(t, err)
	require.Equal(t, ep, again)
	require.Equal(t, "kept\n", guest(t, ep, "cat "+file+" && rm "+file))

	// An interrupted start leaves the instance off.
	why := errors.New("interrupted by the test")
	interrupted, cancel := context.WithCancelCause(ctx)
	_, err = d.Start(interrupted, "bob", func(string) { cancel(why) })
	require.ErrorIs(t, err, why)
	status, err = d.Status(ctx, "bob")
	require.NoError(t, err)
	require.Equal(t, provision.Stopped, status.Power)
	requireNothingLeft(t, d)

	// Delete, running or not.
	require.NoError(t, d.Delete(ctx, "ada"))
	require.NoError(t, d.Delete(ctx, "bob"))
	list, err = d.List(ctx)
	require.NoError(t, err)
	require.Empty(t, list)
	requireNothingLeft(t, d)
	require.NoError(t, d.Sweep(ctx, []provision.Leftover{{Kind: "file", Path: "/etc/hostname", Why: "not ours"}}), "what is no leftover stays")
}

// guest runs a shell line in the guest and gives its output.
func guest(t *testing.T, ep provision.Endpoint, line string) string {
	t.Helper()
	c, err := ssh.Dial(t.Context(), ep, ssh.Options{})
	require.NoError(t, err)
	defer c.Close()
	res, err := c.Run(t.Context(), run.Cmd{Argv: []string{"sh", "-c", line}})
	require.NoError(t, err)
	return string(res.Stdout)
}

func requireNothingLeft(t *testing.T, d provision.Driver) {
	t.Helper()
	left, err := d.Leftovers(t.Context())
	require.NoError(t, err)
	var names []string
	for _, l := range left {
		names = append(names, l.Kind+" "+l.Path+": "+l.Why)
	}
	require.Empty(t, strings.Join(names, "\n"))
}
