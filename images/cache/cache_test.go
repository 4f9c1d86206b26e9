package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func key(t *testing.T, h *Hash) Key {
	t.Helper()
	k, err := h.Key()
	require.NoError(t, err)
	return k
}

func TestKeyFollowsContentNotTime(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		write(t, filepath.Join(dir, "x/one"), "1")
		write(t, filepath.Join(dir, "two"), "2")
	}
	tree := func(dir string) Key { return key(t, NewHash("s").Tree(dir)) }
	require.Equal(t, tree(a), tree(b))
	write(t, filepath.Join(b, "two"), "3")
	require.NotEqual(t, tree(a), tree(b))
	write(t, filepath.Join(b, "two"), "2")
	require.NoError(t, os.Chmod(filepath.Join(b, "two"), 0o700))
	require.NotEqual(t, tree(a), tree(b), "the executable bit is part of a program")
	require.NotEqual(t, key(t, NewHash("s").Strings("ab", "c")), key(t, NewHash("s").Strings("a", "bc")))
	_, err := NewHash("s").File(filepath.Join(a, "absent")).Key()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFailedStageLeavesNothing(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	k := key(t, NewHash("s"))
	broken := errors.New("no")
	_, _, err := c.Get(t.Context(), "s", k, nil, func(_ context.Context, dir string) error {
		write(t, filepath.Join(dir, "half"), "")
		return broken
	})
	require.ErrorIs(t, err, broken)
	left, err := filepath.Glob(filepath.Join(c.Dir, "s*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(c.Dir, "s.lock")}, left)
}

func TestKilledBuildIsSweptAndRunAgain(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	half := filepath.Join(c.Dir, "s.tmp-123")
	write(t, filepath.Join(half, "ro/file"), "half")
	require.NoError(t, os.Chmod(filepath.Join(half, "ro"), 0o500))
	dir, fresh, err := c.Get(t.Context(), "s", key(t, NewHash("s")), nil, func(context.Context, string) error { return nil })
	require.NoError(t, err)
	require.True(t, fresh)
	require.DirExists(t, dir)
	require.NoDirExists(t, half)
}

func TestTwoBuildsOfOneStageRunOnce(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	k := key(t, NewHash("s"))
	var runs atomic.Int32
	entered, release := make(chan struct{}), make(chan struct{})
	var waited sync.WaitGroup
	waited.Add(1)
	results := make(chan bool, 2)
	go func() {
		_, fresh, err := c.Get(t.Context(), "s", k, nil, func(context.Context, string) error {
			runs.Add(1)
			close(entered)
			<-release
			return nil
		})
		results <- fresh && err == nil
	}()
	<-entered
	go func() {
		_, fresh, err := c.Get(t.Context(), "s", k, func() { waited.Done() }, func(context.Context, string) error { runs.Add(1); return nil })
		results <- !fresh && err == nil
	}()
	waited.Wait()
	close(release)
	require.True(t, <-results)
	require.True(t, <-results)
	require.Equal(t, int32(1), runs.Load())
}

func TestOldResultsArePruned(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	make := func(stage, input string) string {
		dir, _, err := c.Get(t.Context(), stage, key(t, NewHash(stage).Strings(input)), nil, func(context.Context, string) error { return nil })
		require.NoError(t, err)
		return dir
	}
	other := make("s-x", "1")
	for _, input := range []string{"1", "2", "3"} {
		make("s", input)
	}
	newest := make("s", "4")
	found, err := filepath.Glob(filepath.Join(c.Dir, "s-????????????????"))
	require.NoError(t, err)
	require.Len(t, found, keep)
	require.DirExists(t, newest)
	require.DirExists(t, other, "a stage whose name begins alike is another stage")
}

func TestWhatAKilledStageLeftIsFoundAndAbandonedFirst(t *testing.T) {
	var abandoned []string
	c := Cache{Dir: t.TempDir(), Abandon: func(_ context.Context, half string) error {
		require.DirExists(t, half, "it is still there for whoever ends what runs in it")
		abandoned = append(abandoned, filepath.Base(half))
		return nil
	}}
	half := filepath.Join(c.Dir, "bake.tmp-123")
	require.NoError(t, os.MkdirAll(filepath.Join(half, "home"), 0o700))
	halves, err := c.Halves()
	require.NoError(t, err)
	require.Equal(t, []string{half}, halves)

	// A build that works on the stage clears it by itself, and its own folder is no leftover.
	_, fresh, err := c.Get(t.Context(), "bake", Key("0123456789abcdef0123"), nil, func(_ context.Context, dir string) error {
		require.NoDirExists(t, half)
		halves, err := c.Halves()
		require.NoError(t, err)
		require.Empty(t, halves)
		return c.Clear(t.Context(), dir)
	})
	require.NoError(t, err)
	require.True(t, fresh)
	require.Equal(t, []string{"bake.tmp-123"}, abandoned)

	require.NoError(t, os.MkdirAll(half, 0o700))
	require.NoError(t, c.Clear(t.Context(), half))
	require.NoDirExists(t, half)
	require.Len(t, abandoned, 2)
}
