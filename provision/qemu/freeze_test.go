package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/provision"
)

// freeze puts a frozen guest beside the bench's image, as an image build does.
func (b *bench) freeze(t *testing.T, created time.Time) images.Frozen {
	t.Helper()
	spec := b.spec("golden")
	spec.Freezable = true
	require.NoError(t, b.Create(t.Context(), spec))
	_, err := b.Start(t.Context(), "golden", nil)
	require.NoError(t, err)
	key, err := b.FrozenKey(t.Context(), spec)
	require.NoError(t, err)
	frozen := images.Frozen{Schema: images.FrozenSchema, Name: "one", Key: key, Created: created, CPUs: spec.CPUs, MemoryMiB: spec.MemoryMiB, DiskGiB: spec.DiskGiB}
	dir := b.image.Frozen(frozen.Name)
	require.NoError(t, os.MkdirAll(string(dir), 0o700))
	require.NoError(t, b.Freeze(t.Context(), "golden", dir, func(string) {}))
	for _, path := range []string{dir.Memory(), dir.Devices(), dir.Disk()} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		frozen.Files = append(frozen.Files, images.File{Name: filepath.Base(path), Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])})
	}
	data, err := json.Marshal(frozen)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir.Metadata(), data, 0o600))
	return frozen
}

// start makes and starts an instance, and returns how it was powered on.
func (b *bench) start(t *testing.T, spec provision.Spec) string {
	t.Helper()
	require.NoError(t, b.Create(t.Context(), spec))
	how := ""
	_, err := b.Start(t.Context(), spec.Name, func(stage string) {
		if strings.HasPrefix(stage, "power on: ") {
			how = stage
		}
	})
	require.NoError(t, err)
	return how
}

func disk(t *testing.T, dir layout.InstanceDir) string {
	t.Helper()
	data, err := os.ReadFile(dir.Disk())
	require.NoError(t, err)
	return string(data)
}

func TestFreezeTakesTheInstance(t *testing.T) {
	b := newBench(t, "")
	frozen := b.freeze(t, time.Now())
	require.Equal(t, provision.Absent, b.power(t, "golden"))
	require.Zero(t, b.machines(t))
	b.requireNothingLeft(t)
	data, err := os.ReadFile(b.image.Frozen(frozen.Name).Devices())
	require.NoError(t, err)
	require.Equal(t, devices, string(data))
}

func TestFreezeRefuses(t *testing.T) {
	b := newBench(t, "")
	into := layout.FrozenDir(t.TempDir())
	nothing := func(string) {}
	var none *provision.NotFoundError
	require.ErrorAs(t, b.Freeze(t.Context(), "ada", into, nothing), &none)
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	var off *provision.NotRunningError
	require.ErrorAs(t, b.Freeze(t.Context(), "ada", into, nothing), &off)
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	require.ErrorContains(t, b.Freeze(t.Context(), "ada", into, nothing), "was not made to be frozen")
	require.Equal(t, provision.Running, b.power(t, "ada"), "a refusal changes nothing")
	entries, err := os.ReadDir(string(into))
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestClones: what fits is a clone with an identity of its own, on a disk of its own; nothing in the frozen guest changes.
func TestClones(t *testing.T) {
	b := newBench(t, "")
	frozen := b.freeze(t, time.Now())
	for _, name := range []string{"ada", "bob"} {
		require.Contains(t, b.start(t, b.spec(name)), "a clone of the image's frozen guest")
		require.Contains(t, disk(t, b.home.Instance(name)), b.image.Frozen("one").Disk())
		st, err := b.Status(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, "one", st.Frozen)
		hostname, err := os.ReadFile(b.guestFile(name, "etc/hostname"))
		require.NoError(t, err)
		require.Equal(t, name+"\n", string(hostname))
	}
	for _, f := range frozen.Files {
		require.NoError(t, checkFile("golden", filepath.Join(string(b.image.Frozen("one")), f.Name), f))
	}
	// Stopped, it is an instance like any other: its disk is somebody's work and is booted.
	require.NoError(t, b.Stop(t.Context(), "ada"))
	work := b.home.Instance("ada").Disk()
	require.NoError(t, os.WriteFile(work, []byte("work"), 0o600))
	require.Contains(t, b.start(t, b.spec("ada")), "; boot")
	require.Equal(t, "work", disk(t, b.home.Instance("ada")))
	b.requireNothingLeft(t)
}

// TestBootedWhereNothingFits: each with its reason.
func TestBootedWhereNothingFits(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		age    time.Duration
		change func(t *testing.T, b *bench, spec *provision.Spec)
		want   string
	}{
		"asked for": {change: func(_ *testing.T, _ *bench, spec *provision.Spec) { spec.Cold = true }, want: "boot, as asked for"},
		"too old":   {age: 201 * day, want: "is 201 days old"},
		"another shape": {change: func(_ *testing.T, _ *bench, spec *provision.Spec) { spec.MemoryMiB = 1024 },
			want: "has 2 CPUs, 512 MiB of memory and 12 GiB of disk"},
		"another QEMU": {change: func(t *testing.T, b *bench, _ *provision.Spec) {
			// The same program by way of a script is another file.
			script := "#!/bin/sh\nexec " + b.opts.Binary + " \"$@\"\n"
			b.opts.Binary = filepath.Join(t.TempDir(), "qemu-system-x86_64")
			require.NoError(t, os.WriteFile(b.opts.Binary, []byte(script), 0o700))
			b.opts.BootTimeout = time.Second
		}, want: "another QEMU or processor"},
		"none": {change: func(t *testing.T, b *bench, _ *provision.Spec) {
			require.NoError(t, os.RemoveAll(b.image.FrozenGuests()))
		}, want: "has no frozen guest"},
		"damaged": {change: func(t *testing.T, b *bench, _ *provision.Spec) {
			require.NoError(t, os.WriteFile(b.image.Frozen("one").Devices(), []byte("changed"), 0o600))
		}, want: "devices.bin is 7 bytes long"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "")
			b.freeze(t, time.Now().Add(-c.age))
			spec := b.spec("ada")
			if c.change != nil {
				c.change(t, b, &spec)
			}
			require.NoError(t, b.Create(t.Context(), spec))
			rec, err := b.store.Load("ada")
			require.NoError(t, err)
			machine, err := b.machineType(t.Context(), "")
			require.NoError(t, err)
			how, err := b.stand(t.Context(), &rec, machine, "tcg")
			require.NoError(t, err)
			require.Contains(t, how, c.want)
			require.Empty(t, rec.Frozen)
			require.Contains(t, disk(t, b.home.Instance("ada")), b.image.Disk())
		})
	}
}

// TestAFrozenGuestThatCannotBeResumed is booted instead, from the image itself.
func TestAFrozenGuestThatCannotBeResumed(t *testing.T) {
	b := newBench(t, "")
	b.freeze(t, time.Now())
	t.Setenv(misbehave, "bad-devices")
	require.Contains(t, b.start(t, b.spec("ada")), "boot, as asked for")
	require.Contains(t, strings.Join(b.logged, "\n"), "could not be resumed")
	require.Contains(t, strings.Join(b.logged, "\n"), "Unknown section or instance")
	require.Contains(t, disk(t, b.home.Instance("ada")), b.image.Disk())
	require.Equal(t, 1, b.machines(t))
	b.requireNothingLeft(t)
}

func TestKilledInResume(t *testing.T) {
	for _, at := range []string{"start:launched", "start:loaded", "start:personalised"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, "")
			b.freeze(t, time.Now())
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			b.killed(t, "start", at)
			require.Equal(t, 1, b.machines(t))
			_, err := b.Start(t.Context(), "ada", nil)
			require.NoError(t, err)
			require.Equal(t, 1, b.machines(t))
			st, err := b.Status(t.Context(), "ada")
			require.NoError(t, err)
			require.Equal(t, "one", st.Frozen)
			require.Empty(t, st.Reason)
			b.requireNothingLeft(t)
		})
	}
}

// TestOldRecordsAreWork: an instance of a labctl from before frozen guests must keep its disk.
func TestOldRecordsAreWork(t *testing.T) {
	b := newBench(t, "")
	b.freeze(t, time.Now())
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	rec, err := b.store.Load("ada")
	require.NoError(t, err)
	rec.Fresh = false
	require.NoError(t, b.store.Save(rec))
	require.NoError(t, os.WriteFile(b.home.Instance("ada").Disk(), []byte("work"), 0o600))
	require.Contains(t, b.start(t, b.spec("ada")), "; boot")
	require.Equal(t, "work", disk(t, b.home.Instance("ada")))
}
