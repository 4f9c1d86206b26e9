package state_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/state"
)

func TestLockExcludes(t *testing.T) {
	s := store(t)
	path := s.Home.Lock("instance", "ada")
	lock, err := s.Lock(t.Context(), path, `instance "ada"`, nil)
	require.NoError(t, err)

	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	told := 0
	_, err = s.Lock(ctx, path, `instance "ada"`, func(pid int) {
		told++
		require.Equal(t, os.Getpid(), pid)
		time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	})
	var busy *provision.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, os.Getpid(), busy.PID)
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err, `instance "ada" is in use by another labctl (pid `)
	require.Equal(t, 1, told)

	other, err := s.TryLock(path)
	require.NoError(t, err)
	require.Nil(t, other)

	require.NoError(t, lock.Release())
	lock, err = s.Lock(t.Context(), path, "x", nil)
	require.NoError(t, err)
	require.NoError(t, lock.Remove())
	require.NoFileExists(t, path)
}

func TestLockIsHandedOver(t *testing.T) {
	s := store(t)
	path := s.Home.Lock("instance", "ada")
	lock, err := s.Lock(t.Context(), path, "x", nil)
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		second, err := s.Lock(t.Context(), path, "x", func(int) { _ = lock.Release() })
		if err == nil {
			err = second.Release()
		}
		got <- err
	}()
	require.NoError(t, <-got)
}

// TestRemovedLocksExclude: lock files come and go while many want them, and still only one has the lock.
func TestRemovedLocksExclude(t *testing.T) {
	s := store(t)
	path := s.Home.Lock("instance", "ada")
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 30 {
				lock, err := s.Lock(t.Context(), path, "x", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				inside.Add(-1)
				if i%2 == 0 {
					err = lock.Remove()
				} else {
					err = lock.Release()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, most.Load())
}

// TestLockEndsWithItsProcess kills a holder the hard way.
func TestLockEndsWithItsProcess(t *testing.T) {
	if path := os.Getenv("LABCTL_TEST_HOLD_LOCK"); path != "" {
		if _, err := (state.Store{}).Lock(context.Background(), path, "x", nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		select {}
	}
	path := filepath.Join(t.TempDir(), "locks", "a.lock")
	child := exec.Command(os.Args[0], "-test.run=^TestLockEndsWithItsProcess$")
	child.Env = append(os.Environ(), "LABCTL_TEST_HOLD_LOCK="+path)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	buf := make([]byte, 5)
	_, err = out.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "held\n", string(buf))

	_, err = (state.Store{}).Lock(t.Context(), path, "x", func(pid int) {
		require.Equal(t, child.Process.Pid, pid)
		require.NoError(t, child.Process.Kill())
	})
	require.NoError(t, err)
	_ = child.Wait()
}

func TestLockProblems(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := (state.Store{}).TryLock(filepath.Join(file, "a.lock"))
	require.ErrorContains(t, err, "folder of locks")
	_, err = (state.Store{}).Lock(t.Context(), filepath.Dir(file), "x", nil)
	require.ErrorContains(t, err, "lock ")
}
