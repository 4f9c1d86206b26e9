package store

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
)

func seal(t *testing.T, home layout.Home, name string) images.Image {
	t.Helper()
	dir := home.Image(name)
	require.NoError(t, os.MkdirAll(string(dir), 0o700))
	require.NoError(t, os.WriteFile(dir.Disk(), []byte("disk"), 0o600))
	require.NoError(t, os.WriteFile(dir.Kernel(), []byte("kernel"), 0o600))
	require.NoError(t, Seal(t.Context(), dir, images.Metadata{Name: name}, []string{filepath.Base(dir.Disk()), filepath.Base(dir.Kernel())}, nil))
	img, err := New(home).Get(t.Context(), name)
	require.NoError(t, err)
	return img
}

func TestSealedImageVerifies(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	s, img := New(home), seal(t, home, "lab")
	require.NoError(t, s.Check(img))
	var read []string
	require.NoError(t, s.Verify(t.Context(), img, func(f string) { read = append(read, f) }))
	require.Equal(t, []string{"disk.raw", "vmlinuz"}, read)
	info, err := os.Stat(img.Dir.Disk())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), info.Mode().Perm())
	require.Equal(t, img.Metadata.Digest, seal(t, layout.Home{State: t.TempDir()}, "other").Metadata.Digest, "equal content, equal identity")
}

func TestDamageIsNamed(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	s, img := New(home), seal(t, home, "lab")
	damage := func(change func(path string)) *images.DamagedError {
		change(img.Dir.Disk())
		var damaged *images.DamagedError
		require.ErrorAs(t, s.Verify(t.Context(), img, nil), &damaged)
		require.Equal(t, "disk.raw", damaged.File)
		return damaged
	}
	rewrite := func(text string) func(string) {
		return func(path string) {
			require.NoError(t, os.Chmod(path, 0o600))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
	}
	require.Contains(t, damage(rewrite("dusk")).Error(), "sha256")
	require.NoError(t, s.Check(img), "a start looks at sizes only")
	require.Contains(t, damage(rewrite("disk!")).Error(), "4 bytes long")
	require.Error(t, s.Check(img))
	require.Contains(t, damage(func(path string) { require.NoError(t, os.Remove(path)) }).Error(), "missing")
}

func TestVerifyCanBeCancelled(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	img := seal(t, home, "lab")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, New(home).Verify(ctx, img, nil), context.Canceled)
}

func TestListSkipsScratchAndReportsBroken(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	s := New(home)
	list, errs := s.List(t.Context())
	require.Empty(t, list)
	require.Empty(t, errs)
	seal(t, home, "b")
	seal(t, home, "a")
	require.NoError(t, os.MkdirAll(filepath.Join(home.Images(), ".a.new"), 0o700))
	require.NoError(t, os.MkdirAll(string(home.Image("half")), 0o700))
	list, errs = s.List(t.Context())
	require.Len(t, list, 2)
	require.Equal(t, "a", list[0].Metadata.Name)
	require.Len(t, errs, 1)
	var missing *images.NotFoundError
	require.ErrorAs(t, errs[0], &missing)
}

func TestRemove(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	s, img := New(home), seal(t, home, "lab")
	require.NoError(t, s.Remove(t.Context(), "lab"))
	require.NoDirExists(t, string(img.Dir))
	var missing *images.NotFoundError
	require.ErrorAs(t, s.Remove(t.Context(), "lab"), &missing)
	var name *layout.NameError
	require.ErrorAs(t, s.Remove(t.Context(), "../instances"), &name)
}

// TestProveReadsOnlyWhatChanged: a file that looks the same is not read again, one that was written is.
func TestProveReadsOnlyWhatChanged(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	img := seal(t, home, "golden")
	frozen := img.Dir.Frozen("one")
	require.NoError(t, os.MkdirAll(string(frozen), 0o700))
	for _, path := range []string{frozen.Memory(), frozen.Devices(), frozen.Disk()} {
		require.NoError(t, os.WriteFile(path, []byte("frozen"), 0o600))
	}
	require.NoError(t, SealFrozen(t.Context(), frozen, images.Frozen{Name: "one"}, nil))
	prove := func() (int, bool, error) {
		read := 0
		known, err := New(home).Prove(t.Context(), img, func(string) { read++ })
		return read, known, err
	}
	read, known, err := prove()
	require.NoError(t, err)
	require.False(t, known)
	require.Equal(t, 5, read)
	read, known, err = prove()
	require.NoError(t, err)
	require.True(t, known)
	require.Zero(t, read)

	for _, path := range []string{img.Dir.Disk(), frozen.Memory()} {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		changed := append([]byte("X"), before[1:]...)
		require.NoError(t, os.Chmod(path, 0o600))
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		// Not even a file's time put back hides it.
		require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
		var damaged *images.DamagedError
		_, _, err = prove()
		require.ErrorAs(t, err, &damaged)
		require.Equal(t, filepath.Base(path), damaged.File)
		_, _, err = prove()
		require.Error(t, err, "it stays damaged")
		require.NoError(t, os.WriteFile(path, before, 0o600))
		_, known, err = prove()
		require.NoError(t, err)
		require.False(t, known)
	}
	require.NoError(t, os.Remove(frozen.Disk()))
	_, _, err = prove()
	require.ErrorContains(t, err, "missing")
}
