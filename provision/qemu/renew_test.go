package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision"
)

func ready(context.Context, provision.Endpoint) error { return nil }

// worked is a bench with a running instance ada with work on its disk, and its machine id.
func worked(t *testing.T) (*bench, string) {
	t.Helper()
	b := newBench(t, "")
	b.start(t, b.spec("ada"))
	require.NoError(t, os.WriteFile(b.home.Instance("ada").Disk(), []byte("work"), 0o600))
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	return b, rec.MachineID
}

// requireOld wants the old instance in its place, off and whole.
func (b *bench) requireOld(t *testing.T, name, machineID string) {
	t.Helper()
	require.Equal(t, "work", disk(t, b.home.Instance(name)))
	require.Equal(t, provision.Stopped, b.power(t, name))
	rec, err := b.store.Load(name)
	require.NoError(t, err)
	require.Equal(t, machineID, rec.MachineID)
	b.requireNothingLeft(t)
	_, err = b.Start(t.Context(), name, nil)
	require.NoError(t, err)
	require.Equal(t, "work", disk(t, b.home.Instance(name)))
}

func TestRenew(t *testing.T) {
	b, id := worked(t)
	before, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	seen := false
	require.NoError(t, b.Renew(t.Context(), b.spec("ada"), "", func(ctx context.Context, ep provision.Endpoint) error {
		seen = true
		require.Equal(t, before.Spec.SSHPort, ep.Port, "the port stays")
		st, err := b.Status(ctx, "ada")
		require.NoError(t, err)
		require.Equal(t, provision.Running, st.Power)
		require.Empty(t, st.Reason, "somebody is at it")
		require.NotNil(t, st.Waiting)
		return nil
	}, nil))
	require.True(t, seen)
	require.Equal(t, 1, b.machines(t))
	require.NotEqual(t, "work", disk(t, b.home.Instance("ada")))
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	require.NotEqual(t, id, rec.MachineID, "a new machine")
	b.requireNothingLeft(t)
}

func TestRenewKeeps(t *testing.T) {
	b, id := worked(t)
	require.NoError(t, b.Renew(t.Context(), b.spec("ada"), "ada-old", ready, nil))
	require.NotEqual(t, "work", disk(t, b.home.Instance("ada")))
	st, err := b.Status(t.Context(), "ada-old")
	require.NoError(t, err)
	require.True(t, st.Suspended, "its memory is kept")
	b.requireOld(t, "ada-old", id)
	require.Equal(t, 2, b.machines(t), "each has a port of its own")
	require.NoError(t, b.Delete(t.Context(), "ada-old"))
	b.requireNothingLeft(t)
}

func TestRenewRefuses(t *testing.T) {
	b, id := worked(t)
	require.NoError(t, b.Create(t.Context(), b.spec("bob")))
	var conflict *provision.ConflictError
	require.ErrorAs(t, b.Renew(t.Context(), b.spec("ada"), "bob", ready, nil), &conflict, "the name is taken")
	var none *provision.NotFoundError
	require.ErrorAs(t, b.Renew(t.Context(), b.spec("eve"), "", ready, nil), &none)
	small := b.spec("ada")
	small.DiskGiB = 0
	var spec *provision.SpecError
	require.ErrorAs(t, b.Renew(t.Context(), small, "", ready, nil), &spec)
	require.Equal(t, provision.Running, b.power(t, "ada"), "a refusal changes nothing")
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	require.Equal(t, id, rec.MachineID)
	b.requireNothingLeft(t)
}

func TestAFailedRenewalPutsTheOldBack(t *testing.T) {
	failed := errors.New("the platform is not ready")
	for name, c := range map[string]struct {
		fault, keep string
		ready       func(context.Context, provision.Endpoint) error
	}{
		"not ready":              {ready: func(context.Context, provision.Endpoint) error { return failed }},
		"not ready, to be kept":  {keep: "ada-old", ready: func(context.Context, provision.Endpoint) error { return failed }},
		"no disk":                {fault: "no-space", ready: ready},
		"the machine ends early": {fault: "die", ready: ready},
	} {
		t.Run(name, func(t *testing.T) {
			b, id := worked(t)
			t.Setenv(misbehave, c.fault)
			err := b.Renew(t.Context(), b.spec("ada"), c.keep, c.ready, nil)
			var renew *provision.RenewError
			require.ErrorAs(t, err, &renew)
			t.Setenv(misbehave, "")
			require.Zero(t, b.machines(t))
			require.Equal(t, provision.Absent, b.power(t, "ada-old"))
			b.requireOld(t, "ada", id)
		})
	}
}

func TestAnInterruptedRenewalPutsTheOldBack(t *testing.T) {
	b, id := worked(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Renew(ctx, b.spec("ada"), "", func(ctx context.Context, _ provision.Endpoint) error {
		cancel()
		return ctx.Err()
	}, nil)
	require.ErrorIs(t, err, context.Canceled)
	b.requireOld(t, "ada", id)
}

// sweepLocks sweeps the locks of names that nothing has any more, and wants that many.
func (b *bench) sweepLocks(t *testing.T, want int) {
	t.Helper()
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	locks := slices.DeleteFunc(left, func(l provision.Leftover) bool { return filepath.Dir(l.Path) != b.home.Locks() })
	require.Len(t, locks, want)
	require.NoError(t, b.Sweep(t.Context(), locks))
}

// TestKilledInRenew: whatever is done next finds the old instance, or the new one once that is settled.
func TestKilledInRenew(t *testing.T) {
	for _, at := range []string{
		"renew:aside", "create:folder", "create:record", "create:keys", "create:disk", "start:recorded", "start:launched", "start:personalised", "renew:started", "renew:renamed",
	} {
		do := "renew"
		if at == "renew:renamed" {
			do = "renew and keep"
		}
		for then, how := range map[string]func(t *testing.T, b *bench, id string){
			"it is looked at": func(t *testing.T, b *bench, _ string) {
				st, err := b.Status(t.Context(), "ada")
				require.NoError(t, err)
				require.NotEqual(t, provision.Absent, st.Power)
				list, err := b.List(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1)
				left, err := b.Leftovers(t.Context())
				require.NoError(t, err)
				require.NotEmpty(t, left)
				var unsettled *provision.UnsettledError
				_, err = b.Endpoint(t.Context(), "ada")
				require.ErrorAs(t, err, &unsettled, "nobody works on what will be discarded")
				require.NoError(t, b.Delete(t.Context(), "ada"))
			},
			"it is started": func(t *testing.T, b *bench, id string) {
				_, err := b.Start(t.Context(), "ada", nil)
				require.NoError(t, err)
				require.NoError(t, b.Stop(t.Context(), "ada"))
				b.requireOld(t, "ada", id)
			},
			"it is swept": func(t *testing.T, b *bench, id string) {
				left, err := b.Leftovers(t.Context())
				require.NoError(t, err)
				require.NoError(t, b.Sweep(t.Context(), left))
				b.requireOld(t, "ada", id)
			},
			"it is made anew": func(t *testing.T, b *bench, _ string) {
				require.NoError(t, b.Renew(t.Context(), b.spec("ada"), "", ready, nil))
				require.NotEqual(t, "work", disk(t, b.home.Instance("ada")))
				require.NoError(t, b.Delete(t.Context(), "ada"))
			},
		} {
			t.Run(at+", then "+then, func(t *testing.T) {
				b, id := worked(t)
				b.killed(t, do, at)
				if do != "renew" {
					b.sweepLocks(t, 1)
				}
				how(t, b, id)
				require.NoError(t, b.Delete(t.Context(), "ada"))
				require.Zero(t, b.machines(t))
				b.requireNothingLeft(t)
				list, err := b.List(t.Context())
				require.NoError(t, err)
				require.Empty(t, list)
			})
		}
	}
}

func TestKilledAfterRenew(t *testing.T) {
	b, id := worked(t)
	b.killed(t, "renew", "renew:settled")
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	require.NotEqual(t, id, rec.MachineID)
	require.Equal(t, provision.Running, b.power(t, "ada"))
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 1, "what was there before")
	require.NoError(t, b.Sweep(t.Context(), left))
	b.requireNothingLeft(t)
}
