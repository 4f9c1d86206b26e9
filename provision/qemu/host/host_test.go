package host

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	line := func(comm, state string) []byte {
		return []byte("42 (" + comm + ") " + state + " 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3\n")
	}
	for _, comm := range []string{"qemu", "a b", "x) R 1 (y", ")"} {
		ticks, state, err := parseStat(line(comm, "S"))
		require.NoError(t, err)
		require.EqualValues(t, 987654, ticks, comm)
		require.EqualValues(t, 'S', state)
	}
	for _, bad := range []string{"", "42 (x", "42 (x) S 1 2", "42 (x) S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 soon 1"} {
		_, _, err := parseStat([]byte(bad))
		require.Error(t, err, bad)
	}
}

func sleeper(t *testing.T, args ...string) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", append(args, "300")...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _, _ = cmd.Process.Wait() })
	p, err := Identify(cmd.Process.Pid)
	require.NoError(t, err)
	return cmd, p
}

func TestProcessLife(t *testing.T) {
	cmd, p := sleeper(t)
	require.True(t, p.Alive())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.WaitExit(ctx), context.DeadlineExceeded)
	resident, err := Resident(p.PID)
	require.NoError(t, err)
	require.Positive(t, resident)

	require.NoError(t, p.Signal(syscall.SIGKILL))
	require.NoError(t, p.WaitExit(t.Context()), "a process that nobody has reaped yet counts as ended")
	require.False(t, p.Alive())
	require.ErrorIs(t, p.Signal(syscall.SIGTERM), os.ErrProcessDone)
	_ = cmd.Wait()
	require.False(t, p.Alive())
	require.Error(t, p.Signal(syscall.SIGTERM))
	_, err = Identify(p.PID)
	require.Error(t, err)
}

// TestARecycledPIDIsLeftAlone: the same PID with another start time, or of another boot, is another process.
func TestARecycledPIDIsLeftAlone(t *testing.T) {
	_, p := sleeper(t)
	for _, other := range []Process{
		{PID: p.PID, StartTicks: p.StartTicks + 1, HostBoot: p.HostBoot},
		{PID: p.PID, StartTicks: p.StartTicks, HostBoot: "another boot"},
		{PID: 0, StartTicks: p.StartTicks, HostBoot: p.HostBoot},
		{PID: -1, HostBoot: p.HostBoot},
	} {
		require.False(t, other.Alive())
		require.Error(t, other.Signal(syscall.SIGKILL))
	}
	require.True(t, p.Alive())
}

func TestFind(t *testing.T) {
	mark := fmt.Sprintf("0.%d", time.Now().UnixNano())
	_, p := sleeper(t, mark)
	found, err := Find(func(argv []string) bool { return slices.Contains(argv, mark) })
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, p, found[0].Process)
	require.Equal(t, []string{"sleep", mark, "300"}, found[0].Argv)
	require.Nil(t, Argv(1<<30))
}

func TestPorts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.False(t, PortFree(port))
	owner := PortOwner(port)
	require.Contains(t, owner, fmt.Sprintf("(pid %d)", os.Getpid()))
	listener.Close()
	require.True(t, PortFree(port))
	require.Empty(t, PortOwner(port))

	wildcard, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer wildcard.Close()
	require.False(t, PortFree(wildcard.Addr().(*net.TCPAddr).Port))
}

// Those who ask at the same moment are not in each other's way, nor in that of who takes the port.
func TestManyAskForAPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	askers := func(ask func()) (wait func()) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 500 {
					ask()
				}
			})
		}
		return group.Wait
	}
	var taken atomic.Int32
	askers(func() {
		if !PortFree(port) {
			taken.Add(1)
		}
	})()
	require.Zero(t, taken.Load())
	wait := askers(func() { PortFree(port) })
	defer wait()
	for range 500 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err)
		l.Close()
	}
}

func TestListeners(t *testing.T) {
	table := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:56B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:56B8 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0
   2: 00000000:56B9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
`
	require.Equal(t, []string{"111"}, listeners(table, 22200))
	require.Equal(t, []string{"333"}, listeners(table, 22201))
	require.Empty(t, listeners(table, 1))
	require.Empty(t, listeners("nonsense", 1))
}

func TestResources(t *testing.T) {
	memory, err := MemoryAvailable()
	require.NoError(t, err)
	require.Greater(t, memory, int64(16<<20))
	dir := t.TempDir()
	free, err := DiskFree(filepath.Join(dir, "not", "yet"))
	require.NoError(t, err)
	require.Positive(t, free)
	require.Equal(t, dir, Existing(filepath.Join(dir, "not", "yet")))
	require.Equal(t, "/", Existing("/no-such-folder/x"))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	uid, known := Owner(info)
	require.True(t, known)
	require.Equal(t, os.Getuid(), uid)
}
