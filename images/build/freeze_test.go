package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// driver is a hypervisor of files: what a build asks of one.
type driver struct {
	home      layout.Home
	instances *[]provision.Status
	deleted   *[]string
	key       string
}

func (d driver) Info() provision.Info                                     { return provision.Info{} }
func (d driver) Preflight(context.Context, provision.Spec) []check.Result { return nil }
func (d driver) Create(context.Context, provision.Spec) error             { return nil }
func (d driver) Stop(context.Context, string) error                       { return nil }
func (d driver) List(context.Context) ([]provision.Status, error)         { return *d.instances, nil }
func (d driver) Endpoint(context.Context, string) (provision.Endpoint, error) {
	return provision.Endpoint{}, nil
}
func (d driver) ConsoleTail(string, int) string                            { return "" }
func (d driver) Leftovers(context.Context) ([]provision.Leftover, error)   { return nil, nil }
func (d driver) Sweep(context.Context, []provision.Leftover) error         { return nil }
func (d driver) FrozenKey(context.Context, provision.Spec) (string, error) { return d.key, nil }
func (d driver) Start(context.Context, string, func(string)) (provision.Endpoint, error) {
	return provision.Endpoint{}, errors.New("this driver boots nothing")
}

func (d driver) Status(_ context.Context, name string) (provision.Status, error) {
	if _, err := os.Stat(string(d.home.Instance(name))); err != nil {
		return provision.Status{Name: name, Power: provision.Absent}, nil
	}
	return provision.Status{Name: name, Power: provision.Running, PID: 4711}, nil
}

func (d driver) Delete(_ context.Context, name string) error {
	*d.deleted = append(*d.deleted, string(d.home.Instance(name)))
	return nil
}

func (d driver) Freeze(context.Context, string, layout.FrozenDir, func(string)) error { return nil }

// fixture is a build whose image is there.
type fixture struct {
	*state
	instances []provision.Status
	deleted   []string
	key       string
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	home := layout.Home{State: filepath.Join(dir, "s"), Cache: filepath.Join(dir, "c")}
	f := &fixture{key: strings.Repeat("ab", 16)}
	image := home.Image("lab")
	require.NoError(t, os.MkdirAll(string(image), 0o700))
	require.NoError(t, os.MkdirAll(home.Locks(), 0o700))
	require.NoError(t, os.WriteFile(image.Disk(), []byte("disk"), 0o600))
	require.NoError(t, store.Seal(t.Context(), image, images.Metadata{Name: "lab"}, []string{filepath.Base(image.Disk())}, nil))
	img, err := store.New(home).Get(t.Context(), "lab")
	require.NoError(t, err)
	opts := Options{
		Home: home, Name: "lab", Shape: Shape{2, 3072, 12}, Runner: run.Local{},
		NewDriver: func(home layout.Home) provision.Driver {
			return driver{home: home, instances: &f.instances, deleted: &f.deleted, key: f.key}
		},
	}
	f.state = &state{Options: opts, cache: opts.stages(), dirs: map[string]string{}, keys: map[string]cache.Key{}, seconds: map[string]float64{}, image: img}
	return f
}

// build runs the freezing stages with what a boot would leave, and returns the names of the stages that there were.
func (f *fixture) build(t *testing.T, frozenAt time.Time) []string {
	t.Helper()
	f.again = false
	stages, err := f.freezeStages(t.Context())
	require.NoError(t, err)
	var names []string
	for i := range stages {
		names = append(names, stages[i].Name)
		if stages[i].Name != stageFreeze {
			continue
		}
		stages[i] = cachedStage(stageFreeze, func(_ context.Context, _ *state, out string, _ func(string)) error {
			dir := layout.FrozenDir(out)
			for _, path := range []string{dir.Memory(), dir.Devices(), dir.Disk()} {
				if err := os.WriteFile(path, []byte(filepath.Base(path)+frozenAt.String()), 0o600); err != nil {
					return err
				}
			}
			return os.WriteFile(filepath.Join(out, frozenAtFile), []byte(frozenAt.UTC().Format(time.RFC3339)), 0o600)
		})
	}
	require.NoError(t, stage.Run(t.Context(), f.state, f.Sink, stages...))
	return names
}

func (f *fixture) frozen(t *testing.T) []string {
	t.Helper()
	all, err := images.FrozenGuests(f.image.Dir)
	require.NoError(t, err)
	var names []string
	for _, frozen := range all {
		require.NoError(t, store.CheckFrozen(f.image, frozen))
		names = append(names, frozen.Name)
	}
	entries, err := os.ReadDir(f.image.Dir.FrozenGuests())
	require.NoError(t, err)
	require.Len(t, entries, len(names), "nothing else is left there")
	return names
}

var bothStages = []string{stageFreeze, "publish frozen"}

func TestAFrozenGuestIsMadeOnce(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	require.Equal(t, bothStages, f.build(t, now))
	first := f.frozen(t)
	require.Len(t, first, 1)
	require.Empty(t, f.build(t, now.Add(time.Hour)))
	require.Equal(t, first, f.frozen(t))
	require.NoError(t, store.New(f.Home).Verify(t.Context(), f.image, nil))
	info, err := os.Stat(f.image.Dir.Frozen(first[0]).Memory())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestTheCacheSavesTheFreezing: another image of the same files needs no new boot.
func TestTheCacheSavesTheFreezing(t *testing.T) {
	f := newFixture(t)
	now := time.Now().Add(-time.Hour)
	f.build(t, now)
	first := f.frozen(t)
	require.NoError(t, os.RemoveAll(f.image.Dir.FrozenGuests()))
	require.Equal(t, bothStages, f.build(t, time.Now()))
	require.Equal(t, first, f.frozen(t), "it is the one of an hour ago")
}

func TestAFrozenGuestIsMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f *fixture){
		"old":          func(*testing.T, *fixture) {},
		"forced":       func(_ *testing.T, f *fixture) { f.Force = true },
		"another QEMU": func(_ *testing.T, f *fixture) { f.key = strings.Repeat("cd", 16) },
		"damaged": func(t *testing.T, f *fixture) {
			require.NoError(t, os.WriteFile(f.image.Dir.Frozen(f.frozen(t)[0]).Memory(), nil, 0o600))
		},
	} {
		for _, used := range []bool{false, true} {
			if used {
				name += ", in use"
			}
			t.Run(name, func(t *testing.T) {
				f := newFixture(t)
				age := time.Hour
				if strings.HasPrefix(name, "old") {
					age = freezeAgain + time.Hour
				}
				f.build(t, time.Now().Add(-age))
				old := f.frozen(t)
				if used {
					f.instances = []provision.Status{{Name: "ada", Frozen: old[0], Spec: provision.Spec{Image: f.image.Dir}}}
				}
				spoil(t, f)
				require.Equal(t, bothStages, f.build(t, time.Now()))
				all, err := images.FrozenGuests(f.image.Dir)
				require.NoError(t, err)
				require.Equal(t, used, slices.ContainsFunc(all, func(g images.Frozen) bool { return g.Name == old[0] }), "an instance's disk stands on it")
				newest, err := images.FindFrozen(f.image.Dir, f.key)
				require.NoError(t, err)
				require.NotEqual(t, old[0], newest.Name)
				require.NoError(t, store.CheckFrozen(f.image, newest))
			})
		}
	}
}

func TestNoFrozenGuestWithoutAShape(t *testing.T) {
	f := newFixture(t)
	f.Shape = Shape{}
	require.Empty(t, f.build(t, time.Now()))
}

// TestLeftovers: what killed builds leave is named, and removed with the machine in it.
func TestLeftovers(t *testing.T) {
	f := newFixture(t)
	left, err := Leftovers(f.Options)
	require.NoError(t, err)
	require.Empty(t, left)
	half := filepath.Join(f.Home.Stages(), "bake.tmp-1")
	instance := string(bakeHome(half).Instance(bakeName))
	publishing := f.Home.NewImage("lab")
	freezing := string(f.image.Dir.Frozen(newSuffix))
	for _, dir := range []string{instance, publishing, freezing} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
	}
	left, err = Leftovers(f.Options)
	require.NoError(t, err)
	var paths []string
	for _, l := range left {
		paths = append(paths, l.Path)
		if l.Path == half {
			require.Equal(t, 4711, l.PID, "the machine in it is named")
		}
	}
	require.ElementsMatch(t, []string{half, publishing, freezing}, paths)

	// While a build is at it, nothing is left over.
	lock := f.imageLock()
	ok, err := lock.TryLock()
	require.NoError(t, err)
	require.True(t, ok)
	busy, err := Leftovers(f.Options)
	require.NoError(t, err)
	require.Len(t, busy, 1, "only the stage that nobody works on")
	require.NoError(t, Sweep(t.Context(), f.Options, left[1:]))
	require.DirExists(t, publishing)
	require.NoError(t, lock.Unlock())

	require.NoError(t, Sweep(t.Context(), f.Options, left))
	require.Equal(t, []string{instance}, f.deleted)
	left, err = Leftovers(f.Options)
	require.NoError(t, err)
	require.Empty(t, left)
}
