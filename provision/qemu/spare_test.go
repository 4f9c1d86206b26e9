package qemu

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
)

// spare makes one, with a mark on its disk by which it is known again.
func (b *bench) spare(t *testing.T, name string) provision.Status {
	t.Helper()
	require.NoError(t, b.MakeSpare(t.Context(), b.spec(name), ready, nil))
	require.NoError(t, os.WriteFile(b.home.Instance(name).Disk(), []byte("spare"), 0o600))
	st, err := b.Status(t.Context(), name)
	require.NoError(t, err)
	return st
}

func (b *bench) spareNames(t *testing.T) (names []string) {
	t.Helper()
	list, err := b.Spares(t.Context())
	require.NoError(t, err)
	for _, st := range list {
		names = append(names, st.Name)
	}
	return names
}

func TestASpareIsTaken(t *testing.T) {
	b := newBench(t, "")
	spare := b.spare(t, "spare-1")
	require.Equal(t, []string{"spare-1"}, b.spareNames(t))
	list, err := b.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, list, "it is nobody's instance")
	b.requireNothingLeft(t)

	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	require.Empty(t, b.spareNames(t))
	b.requireNothingLeft(t)
	var stages []string
	ep, err := b.Start(t.Context(), "ada", func(stage string) { stages = append(stages, stage) })
	require.NoError(t, err)
	require.Contains(t, stages, "a spare that stood ready")
	require.Equal(t, spare.Spec.SSHPort, ep.Port)
	st, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, spare.PID, st.PID)
	require.True(t, st.Started.After(spare.Started), "how long it may run is counted from when it was taken")
	require.False(t, st.Spec.Spare)
	require.Empty(t, st.Reason)
	name, err := os.ReadFile(b.guestFile("ada", "etc/hostname"))
	require.NoError(t, err)
	require.Equal(t, "ada\n", string(name), "the guest has its new name")
	b.requireNothingLeft(t)

	// It is an instance as any other: its work is kept, its machine is found by the folder that it was started in, and it goes on.
	require.NoError(t, b.Suspend(t.Context(), "ada", func(string) {}))
	b.requireNothingLeft(t)
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	require.Equal(t, "spare", disk(t, b.home.Instance("ada")))
	require.Equal(t, 1, b.machines(t))
	require.NoError(t, b.Delete(t.Context(), "ada"))
	require.Zero(t, b.machines(t))
}

func TestATakenSpareCanBeDeleted(t *testing.T) {
	b := newBench(t, "")
	b.spare(t, "spare-1")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	require.NoError(t, b.Stop(t.Context(), "ada"))
	require.Zero(t, b.machines(t))
	b.requireNothingLeft(t)
	b.spare(t, "spare-2")
	require.NoError(t, b.Create(t.Context(), b.spec("bob")))
	require.NoError(t, b.Delete(t.Context(), "bob"))
	require.NoError(t, b.Delete(t.Context(), "ada"))
	require.Zero(t, b.machines(t))
	b.requireNothingLeft(t)
}

func TestASpareThatDoesNotFitIsLeft(t *testing.T) {
	b := newBench(t, "")
	spare := b.spare(t, "spare-1")
	large, cold := b.spec("ada"), b.spec("bob")
	large.MemoryMiB *= 2
	cold.Cold = true
	for _, spec := range []provision.Spec{large, cold} {
		require.NoError(t, b.Create(t.Context(), spec))
	}
	require.Equal(t, []string{"spare-1"}, b.spareNames(t))
	require.NoError(t, b.Delete(t.Context(), "spare-1"))
	require.NoError(t, b.Delete(t.Context(), "ada"))
	require.NoError(t, b.Delete(t.Context(), "bob"))
	require.NotZero(t, spare.PID)
	require.Zero(t, b.machines(t))
	b.requireNothingLeft(t)
}

func TestASpareTakesThePort(t *testing.T) {
	b, id := worked(t)
	before, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	spare := b.spare(t, "spare-1")
	require.NotEqual(t, before.Spec.SSHPort, spare.Spec.SSHPort)
	require.NoError(t, b.Renew(t.Context(), b.spec("ada"), "", ready, nil))
	st, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	require.Equal(t, spare.PID, st.PID)
	require.Equal(t, before.Spec.SSHPort, st.Spec.SSHPort, "what people have written down leads there")
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	require.NotEqual(t, id, rec.MachineID)
	require.True(t, rec.PortChosen)
	require.Equal(t, 1, b.machines(t))
	b.requireNothingLeft(t)
	// Once it was off, it is started with its own command line.
	require.NoError(t, b.Stop(t.Context(), "ada"))
	ep, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	require.Equal(t, before.Spec.SSHPort, ep.Port)
}

// TestASpareThatFails: whatever is wrong with a spare, the instance is made, by a machine of its own.
func TestASpareThatFails(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, b *bench, spare provision.Status){
		"its machine has ended": func(t *testing.T, b *bench, spare provision.Status) {
			b.killSpare(t, spare)
		},
		"its guest does not stand still": func(t *testing.T, b *bench, spare provision.Status) {
			require.NoError(t, b.monitor(t.Context(), spare.Name, "cont", nil))
		},
		"its machine ends once it was taken": func(t *testing.T, b *bench, spare provision.Status) {
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			b.killSpare(t, spare)
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, "")
			spare := b.spare(t, "spare-1")
			spoil(t, b, spare)
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			_, err := b.Start(t.Context(), "ada", nil)
			require.NoError(t, err)
			require.NotEqual(t, "spare", disk(t, b.home.Instance("ada")), "nobody's work was on it")
			left, err := b.Leftovers(t.Context())
			require.NoError(t, err)
			require.NoError(t, b.Sweep(t.Context(), left))
			require.Equal(t, 1, b.machines(t))
			require.Empty(t, b.spareNames(t))
			b.requireNothingLeft(t)
		})
	}
}

func TestASpareThatIsNotReadyIsGone(t *testing.T) {
	b := newBench(t, "")
	failed := errors.New("the platform is not ready")
	require.ErrorIs(t, b.MakeSpare(t.Context(), b.spec("spare-1"), func(context.Context, provision.Endpoint) error { return failed }, nil), failed)
	require.Zero(t, b.machines(t))
	require.Equal(t, provision.Absent, b.power(t, "spare-1"))
	b.requireNothingLeft(t)
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	var conflict *provision.ConflictError
	require.ErrorAs(t, b.MakeSpare(t.Context(), b.spec("ada"), ready, nil), &conflict)
	require.Equal(t, provision.Stopped, b.power(t, "ada"), "an instance is left alone")
}

func TestKilledAtASpare(t *testing.T) {
	for _, at := range []string{"create:folder", "create:disk", "start:launched", "spare:started"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, "")
			b.killed(t, "spare", at)
			require.Empty(t, b.spareNames(t))
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			require.Equal(t, provision.Stopped, b.power(t, "ada"), "half a spare is not taken")
			left, err := b.Leftovers(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, left)
			require.NoError(t, b.Sweep(t.Context(), left))
			require.Zero(t, b.machines(t))
			require.NoDirExists(t, string(b.home.Instance("spare-1")))
			b.requireNothingLeft(t)
		})
	}
	for _, at := range []string{"take:recorded", "take:renamed"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, "")
			b.spare(t, "spare-1")
			b.killed(t, "create", at)
			require.Empty(t, b.spareNames(t))
			list, err := b.List(t.Context())
			require.NoError(t, err)
			for _, st := range list {
				require.Equal(t, "ada", st.Name)
			}
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			_, err = b.Start(t.Context(), "ada", nil)
			require.NoError(t, err)
			left, err := b.Leftovers(t.Context())
			require.NoError(t, err)
			require.NoError(t, b.Sweep(t.Context(), left))
			require.Equal(t, 1, b.machines(t))
			require.Equal(t, provision.Running, b.power(t, "ada"))
			b.requireNothingLeft(t)
		})
	}
}

func TestARefusalTakesNoSpare(t *testing.T) {
	b, _ := worked(t)
	b.spare(t, "spare-1")
	ada, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	spec := b.spec("bob")
	spec.SSHPort = ada.Spec.SSHPort
	var port *provision.PortError
	require.ErrorAs(t, b.Create(t.Context(), spec), &port)
	require.Equal(t, []string{"spare-1"}, b.spareNames(t))
}

func TestSparesCountAsRoom(t *testing.T) {
	b := newBench(t, "")
	b.spare(t, "spare-1")
	b.freeMemory = func() (int64, error) { return 0, nil }
	require.NoError(t, b.Fits(t.Context(), []provision.Spec{b.spec("ada")}))
	var short *provision.ResourceError
	require.ErrorAs(t, b.Fits(t.Context(), []provision.Spec{b.spec("ada"), b.spec("bob")}), &short)
	for _, r := range b.Preflight(t.Context(), b.spec("ada")) {
		require.Equal(t, "passed", string(r.State), "%s: %s", r.Title, r.Got)
	}
}

func (b *bench) killSpare(t *testing.T, spare provision.Status) {
	t.Helper()
	p, err := host.Identify(spare.PID)
	require.NoError(t, err)
	require.NoError(t, b.kill(spare.Name, p))
}
