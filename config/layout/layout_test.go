package layout_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "learner", "a1", "a-b", strings.Repeat("a", 32)} {
		require.NoError(t, layout.CheckName("instance", name), name)
	}
	for _, name := range []string{"", "A", "1a", "-a", "a-", "a_b", "a.b", "a/b", "..", ".", "a b", "a\n", "é", strings.Repeat("a", 33)} {
		err := layout.CheckName("instance", name)
		var bad *layout.NameError
		require.ErrorAs(t, err, &bad, "%q", name)
		require.Equal(t, layout.NameError{Kind: "instance", Name: name}, *bad)
		require.Contains(t, err.Error(), "instance name")
	}
}

func TestDefault(t *testing.T) {
	t.Setenv("HOME", "/home/ada")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	home, err := layout.Default()
	require.NoError(t, err)
	require.Equal(t, layout.Home{State: "/home/ada/.local/share/labctl", Cache: "/home/ada/.cache/labctl"}, home)

	t.Setenv("XDG_DATA_HOME", "/data")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	home, err = layout.Default()
	require.NoError(t, err)
	require.Equal(t, layout.Home{State: "/data/labctl", Cache: "/cache/labctl"}, home)

	t.Setenv("HOME", "")
	_, err = layout.Default()
	require.Error(t, err)
}

// TestPathsAreDistinct guards against two things in one place, and against anything outside the state home and the cache.
func TestPathsAreDistinct(t *testing.T) {
	home := layout.Home{State: "/s", Cache: "/c"}
	image, instance := home.Image("golden"), home.Instance("ada")
	frozen := image.Frozen("7f")
	paths := []string{
		home.Images(), home.Instances(), home.Stages(), home.Locks(), home.HostFacts(), home.Log(),
		home.Lock("instance", "ada"), home.Lock("image", "ada"), home.Lock("instance", "bob"),
		string(image), image.Metadata(), image.Disk(), image.Kernel(), image.Initrd(), image.Probe(),
		image.Proven(), image.FrozenGuests(), string(frozen), frozen.Metadata(), frozen.Memory(), frozen.Devices(), frozen.Disk(),
		string(instance), instance.Record(), instance.Disk(), instance.Console(), instance.QEMULog(), instance.QMP(),
		instance.Agent(), instance.Transfer(), instance.Memory(), instance.Suspended(), instance.UserKey(), instance.HostKey(), instance.KnownHosts(),
		home.Removed("ada", "1"), home.Removed("ada", "2"),
	}
	seen := map[string]bool{}
	for _, path := range paths {
		require.False(t, seen[path], "%s is used twice", path)
		seen[path] = true
		require.True(t, strings.HasPrefix(path, "/s/") || strings.HasPrefix(path, "/c/"), path)
		require.Equal(t, filepath.Clean(path), path)
	}
}

func TestLocksAreOutsideWhatTheyProtect(t *testing.T) {
	home := layout.Home{State: "/s", Cache: "/c"}
	require.False(t, strings.HasPrefix(home.Lock("instance", "ada"), string(home.Instance("ada"))))
}

// TestRemovedIsNoInstance: a folder on its way out must never be taken for an instance, and the move must stay on one file system.
func TestRemovedIsNoInstance(t *testing.T) {
	home := layout.Home{State: "/s", Cache: "/c"}
	removed := home.Removed("ada", "7f")
	require.Equal(t, home.Instances(), filepath.Dir(removed))
	require.Error(t, layout.CheckName("instance", filepath.Base(removed)))
	require.True(t, layout.IsRemoved(filepath.Base(removed)))
	require.False(t, layout.IsRemoved("ada"))
}

// TestSocketsFit: the default home leaves room for the longest name.
func TestSocketsFit(t *testing.T) {
	home := layout.Home{State: "/home/" + strings.Repeat("u", 24) + "/.local/share/labctl"}
	dir := home.Instance(strings.Repeat("n", 32))
	require.LessOrEqual(t, max(len(dir.QMP()), len(dir.Agent())), layout.SocketPathLimit)
}
