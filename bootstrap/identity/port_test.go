//go:build linux

package identity

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFindPort(t *testing.T) {
	root := t.TempDir()
	_, err := findPort(root, PortName)
	require.ErrorContains(t, err, "dev/virtio-ports/"+PortName)

	// sysfs knows the port before udev has made its link.
	for dev, name := range map[string]string{"vport1p1": "org.other.0\n", "vport1p2": PortName + "\n"} {
		dir := filepath.Join(root, "sys/class/virtio-ports", dev)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte(name), 0o644))
	}
	_, err = findPort(root, PortName)
	require.ErrorIs(t, err, os.ErrNotExist, "known, but without its device yet")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "dev/vport1p2"), nil, 0o600))
	got, err := findPort(root, PortName)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(root, "dev/vport1p2"), got)

	link := filepath.Join(root, "dev/virtio-ports", PortName)
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(t, os.Symlink("../vport1p2", link))
	got, err = findPort(root, PortName)
	require.NoError(t, err)
	require.Equal(t, link, got)
}

func TestOpenPortWaitsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := OpenPort(ctx, t.TempDir(), PortName)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "is not there", "the last reason is kept")
}

// TestVirtioPort uses a named pipe for the device: it cannot hang up, but it is read, written and waited for the same way.
func TestVirtioPort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "port")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	port, err := openPort(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, port.Close()) }()

	buf := make([]byte, 16)
	_, err = port.Read(buf)
	require.ErrorIs(t, err, ErrNotReady)
	port.Wait(t.Context(), 0) // takes the edge of "writable"

	woke := make(chan time.Duration, 1)
	go func() {
		start := time.Now()
		port.Wait(context.Background(), time.Minute)
		woke <- time.Since(start)
	}()
	n, err := port.Write([]byte("hello"))
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.Less(t, <-woke, 30*time.Second)
	n, err = port.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "hello", string(buf[:n]))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	port.Wait(ctx, time.Hour) // returns with ctx
}
