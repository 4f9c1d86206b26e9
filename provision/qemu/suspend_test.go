package qemu

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision"
)

func nothing(string) {}

// suspended is a bench with an instance ada that was suspended; work is on its disk.
func suspended(t *testing.T, clone bool) *bench {
	t.Helper()
	b := newBench(t, "")
	if clone {
		b.freeze(t, time.Now())
	}
	b.start(t, b.spec("ada"))
	require.NoError(t, os.WriteFile(b.home.Instance("ada").Disk(), []byte("work"), 0o600))
	require.NoError(t, b.Suspend(t.Context(), "ada", nothing))
	return b
}

func TestSuspendAndResume(t *testing.T) {
	for name, clone := range map[string]bool{"a booted instance": false, "a clone": true} {
		t.Run(name, func(t *testing.T) {
			b := suspended(t, clone)
			st, err := b.Status(t.Context(), "ada")
			require.NoError(t, err)
			require.Equal(t, provision.Stopped, st.Power)
			require.True(t, st.Suspended)
			require.Zero(t, b.machines(t))
			b.requireNothingLeft(t)
			require.NoError(t, b.Suspend(t.Context(), "ada", nothing), "it is stopped already")
			require.NoError(t, b.Stop(t.Context(), "ada"))

			require.Contains(t, b.start(t, b.spec("ada")), "go on where it was stopped")
			st, err = b.Status(t.Context(), "ada")
			require.NoError(t, err)
			require.Equal(t, provision.Running, st.Power)
			require.False(t, st.Suspended)
			require.NoFileExists(t, b.home.Instance("ada").Suspended(), "memory and disk are not of one moment any more")
			require.Equal(t, "work", disk(t, b.home.Instance("ada")))
			b.requireNothingLeft(t)
			require.NoError(t, b.Stop(t.Context(), "ada"))
			require.Contains(t, b.start(t, b.spec("ada")), "; boot")
		})
	}
}

func TestKilledInSuspend(t *testing.T) {
	for _, at := range []string{"suspend:saved", "suspend:kept"} {
		for then, how := range map[string]func(t *testing.T, b *bench){
			"suspended again": func(t *testing.T, b *bench) {
				require.NoError(t, b.Suspend(t.Context(), "ada", nothing))
				require.Zero(t, b.machines(t))
				require.Contains(t, b.start(t, b.spec("ada")), "go on where it was stopped")
			},
			"started": func(t *testing.T, b *bench) {
				b.start(t, b.spec("ada"))
				status, err := b.machineStatus(t.Context(), "ada", time.Second)
				require.NoError(t, err)
				require.Equal(t, "running", status, "the guest does not stand still")
				require.Equal(t, 1, b.machines(t))
			},
			"stopped": func(t *testing.T, b *bench) {
				require.NoError(t, b.Stop(t.Context(), "ada"))
				require.Zero(t, b.machines(t))
			},
			"deleted": func(t *testing.T, b *bench) {
				require.NoError(t, b.Delete(t.Context(), "ada"))
				require.Zero(t, b.machines(t))
			},
		} {
			t.Run(at+", then "+then, func(t *testing.T) {
				b := newBench(t, "")
				b.start(t, b.spec("ada"))
				b.killed(t, "suspend", at)
				require.Equal(t, 1, b.machines(t))
				how(t, b)
				b.requireNothingLeft(t)
			})
		}
	}
}

func TestKilledInResumeOfASuspended(t *testing.T) {
	for _, at := range []string{"start:launched", "start:loaded", "start:personalised"} {
		t.Run(at, func(t *testing.T) {
			b := suspended(t, false)
			b.killed(t, "start", at)
			b.start(t, b.spec("ada"))
			require.Equal(t, 1, b.machines(t))
			require.Equal(t, "work", disk(t, b.home.Instance("ada")))
			b.requireNothingLeft(t)
		})
	}
}

// TestWhatCannotGoOnIsBooted: the memory is lost, the disk never is.
func TestWhatCannotGoOnIsBooted(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, b *bench){
		"its memory cannot be loaded": func(t *testing.T, _ *bench) { t.Setenv(misbehave, "bad-devices") },
		"another QEMU": func(t *testing.T, b *bench) {
			rec, err := b.store.Load("ada")
			require.NoError(t, err)
			rec.Suspended.Key = "another"
			require.NoError(t, b.store.Save(rec))
		},
		"its memory is gone": func(t *testing.T, b *bench) {
			require.NoError(t, os.Remove(b.home.Instance("ada").Suspended()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := suspended(t, false)
			spoil(t, b)
			require.Contains(t, b.start(t, b.spec("ada")), "; boot")
			require.Equal(t, "work", disk(t, b.home.Instance("ada")))
			require.NoFileExists(t, b.home.Instance("ada").Suspended())
			require.Equal(t, 1, b.machines(t))
			b.requireNothingLeft(t)
		})
	}
}

// TestAFailedSuspendLeavesTheGuestRunning: nothing of its work is lost.
func TestAFailedSuspendLeavesTheGuestRunning(t *testing.T) {
	b := newBench(t, "")
	t.Setenv(misbehave, "save-fails")
	b.start(t, b.spec("ada"))
	require.ErrorContains(t, b.Suspend(t.Context(), "ada", nothing), "suspend instance")
	status, err := b.machineStatus(t.Context(), "ada", time.Second)
	require.NoError(t, err)
	require.Equal(t, "running", status)
	require.Equal(t, provision.Running, b.power(t, "ada"))
	b.requireNothingLeft(t)
}

// TestSuspendOfAnUnrecordedMachine powers it off: a start that was killed before it could record the machine has not handed it out.
func TestSuspendOfAnUnrecordedMachine(t *testing.T) {
	b := newBench(t, "")
	b.start(t, b.spec("ada"))
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	rec.Run = nil
	require.NoError(t, b.store.Save(rec))
	require.NoError(t, b.Suspend(t.Context(), "ada", nothing))
	require.Zero(t, b.machines(t))
	st, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	require.False(t, st.Suspended)
	b.requireNothingLeft(t)
}

// TestSuspendAfterAKilledSave: the socket of a save that was cut short is in nobody's way.
func TestSuspendAfterAKilledSave(t *testing.T) {
	b := newBench(t, "")
	b.start(t, b.spec("ada"))
	stale, err := net.Listen("unix", b.home.Instance("ada").Transfer())
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	require.NoError(t, b.Suspend(t.Context(), "ada", func(string) {}))
	st, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	require.True(t, st.Suspended)
	b.requireNothingLeft(t)
}
