package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// answers asks everything and gives the results by id.
func (b *bench) answers(t *testing.T, spec provision.Spec) map[string]check.Result {
	t.Helper()
	byID := map[string]check.Result{}
	for _, res := range b.Preflight(t.Context(), spec) {
		require.NotContains(t, byID, res.ID)
		require.NotEmpty(t, res.Title)
		if res.State == check.Failed {
			require.NotEmpty(t, res.Got)
			require.NotEmpty(t, res.Hint, "%s: a failed check says what to do", res.ID)
		}
		byID[res.ID] = res
	}
	return byID
}

func TestPreflightPasses(t *testing.T) {
	b := newBench(t, "")
	got := b.answers(t, provision.Spec{})
	require.Len(t, got, 7, "the host alone")
	require.Equal(t, "7.2.22 (fake)", got["qemu"].Got)
	require.Contains(t, got["accelerator"].Got, "no /no/such/kvm")
	require.Contains(t, got["memory"].Got, "MiB")
	require.Contains(t, got["disk"].Got, "GiB")
	got = b.answers(t, b.spec("ada"))
	require.Len(t, got, 11)
	for id, res := range got {
		require.Equal(t, check.Passed, res.State, "%s: %s", id, res.Got)
	}
	require.NoDirExists(t, b.home.Instances(), "nothing was made")
	require.NoDirExists(t, b.home.Locks())
}

func TestPreflightFails(t *testing.T) {
	for id, c := range map[string]struct {
		want  string
		spoil func(t *testing.T, b *bench, s *provision.Spec)
	}{
		"qemu":        {"qemu-system-x86_64 is not installed", func(_ *testing.T, b *bench, _ *provision.Spec) { b.opts.Binary = "/no/such/qemu" }},
		"qemu-img":    {"qemu-img is not installed", func(_ *testing.T, b *bench, _ *provision.Spec) { b.opts.ImgBinary = "/no/such/qemu-img" }},
		"accelerator": {"KVM was asked for", func(_ *testing.T, b *bench, _ *provision.Spec) { b.opts.Accelerator = "kvm" }},
		"state-folder": {"can be looked into by others (mode 755)", func(t *testing.T, b *bench, _ *provision.Spec) {
			require.NoError(t, os.Chmod(b.home.State, 0o755))
			t.Cleanup(func() { _ = os.Chmod(b.home.State, 0o700) })
		}},
		"memory": {"too little memory: 4736 MiB (4096 for the guest, 640 for QEMU) needed, 1000 MiB free", func(_ *testing.T, b *bench, s *provision.Spec) {
			s.MemoryMiB, b.freeMemory = 4096, func() (int64, error) { return 1000 << 20, nil }
		}},
		"name":     {`instance name "../ada" is not allowed`, func(_ *testing.T, _ *bench, s *provision.Spec) { s.Name = "../ada" }},
		"ssh-port": {"taken by", func(t *testing.T, b *bench, s *provision.Spec) { s.SSHPort = b.takenPort(t) }},
		"image": {"there is no image", func(_ *testing.T, b *bench, s *provision.Spec) {
			s.Image = b.home.Image("none")
		}},
	} {
		t.Run(id, func(t *testing.T) {
			b := newBench(t, "")
			spec := b.spec("ada")
			c.spoil(t, b, &spec)
			res := b.answers(t, spec)[id]
			require.Equal(t, check.Failed, res.State, res.Got)
			require.Contains(t, res.Got, c.want)
		})
	}
}

// takenPort is that of another instance.
func (b *bench) takenPort(t *testing.T) int {
	t.Helper()
	require.NoError(t, b.Create(t.Context(), b.spec("bob")))
	s, err := b.Status(t.Context(), "bob")
	require.NoError(t, err)
	return s.Spec.SSHPort
}

func TestPreflightTellsAQuestionThatCannotBeAsked(t *testing.T) {
	b := newBench(t, "")
	b.freeMemory = func() (int64, error) { return 0, errors.New("no /proc") }
	res := b.answers(t, provision.Spec{})["memory"]
	require.Equal(t, check.Error, res.State)
	require.Equal(t, "no /proc", res.Got)
}

func TestPreflightOfARunningInstance(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	res := b.answers(t, s.Spec)["ssh-port"]
	require.Equal(t, check.Passed, res.State, "its port is in use, by itself")
	require.Contains(t, res.Got, "by the instance itself")
}

func TestSocketPathsAreLimited(t *testing.T) {
	b := newBench(t, "")
	long := filepath.Join(b.home.State, strings.Repeat("x", 60))
	d, err := New(layout.Home{State: long, Cache: b.home.Cache}, b.opts)
	require.NoError(t, err)
	var wrong *provision.HostError
	require.ErrorAs(t, d.Create(t.Context(), b.spec("a"+strings.Repeat("b", 31))), &wrong)
	require.Contains(t, wrong.Problem, "more than Linux allows")
	require.NoDirExists(t, long+"/instances")
}

func TestStateFolders(t *testing.T) {
	b := newBench(t, "")
	file := filepath.Join(b.home.State, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	b.home.State = file
	_, err := b.checkHome()
	require.ErrorContains(t, err, "is not a folder")
	b.home.State = filepath.Join(filepath.Dir(file), "new")
	got, err := b.checkHome()
	require.NoError(t, err)
	require.Contains(t, got, "which will be made")
	b.home.State = filepath.Dir(file)
}

func TestInterruptedWritesAreTidied(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	dir := string(b.home.Instance("ada"))
	stray := []string{filepath.Join(dir, ".instance.json123"), filepath.Join(dir, "disk.qcow2.tmp")}
	litter := func() {
		for _, path := range stray {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}
	}
	litter()
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 2)
	require.NoError(t, b.Sweep(t.Context(), left))
	b.requireNothingLeft(t)
	litter()
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	b.requireNothingLeft(t)
	litter()
	require.NoError(t, b.Stop(t.Context(), "ada"))
	b.requireNothingLeft(t)
	require.FileExists(t, b.home.Instance("ada").Disk())
}

func TestFits(t *testing.T) {
	b := newBench(t, "")
	ada, bob := b.spec("ada"), b.spec("bob")
	require.NoError(t, b.Fits(t.Context(), nil))
	require.NoError(t, b.Fits(t.Context(), []provision.Spec{ada, bob}))
	ada.MemoryMiB = 100 << 20
	var short *provision.ResourceError
	require.ErrorAs(t, b.Fits(t.Context(), []provision.Spec{ada, bob}), &short)
	require.Contains(t, short.Error(), "for 2 instances")
	require.Contains(t, short.Error(), "enough for 0 of them")

	// Whoever runs has its memory.
	b.start(t, b.spec("ada"))
	require.NoError(t, b.Fits(t.Context(), []provision.Spec{ada, bob}))
	st, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	used, err := b.Used(st)
	require.NoError(t, err)
	require.Positive(t, used)
}
