package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/cgoa-labs/labctl/provision"
)

// Lock is a lock held by this process. It ends with the process at the latest.
type Lock struct {
	file *flock.Flock
	path string
}

// The pauses between two tries for a lock.
const (
	firstPause = 20 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// Lock takes the lock file at path and waits for it until ctx ends; then it returns *provision.BusyError. what names the
// thing that is locked, in messages. waiting is told once who is waited for (0 where unknown); it may be nil.
func (s Store) Lock(ctx context.Context, path, what string, waiting func(pid int)) (*Lock, error) {
	pause := firstPause
	for {
		lock, err := s.TryLock(path)
		if err != nil || lock != nil {
			return lock, err
		}
		pid := holder(path)
		if waiting != nil {
			waiting(pid)
			waiting = nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, &provision.BusyError{Name: what, PID: pid, Err: context.Cause(ctx)}
		case <-timer.C:
		}
		pause = min(pause*2, mostPause)
	}
}

// TryLock takes the lock file at path, or returns nil when another holds it.
func (s Store) TryLock(path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of locks: %w", err)
	}
	for {
		file := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
		got, err := file.TryLock()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !got {
			return nil, file.Close()
		}
		same, err := isAt(file, path)
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if same {
			// For messages only: the lock itself is the kernel's.
			_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
			return &Lock{file: file, path: path}, nil
		}
		// Its holder removed the file while it was being opened. Locking that one would exclude nobody.
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
}

func isAt(file *flock.Flock, path string) (bool, error) {
	mine, err := file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

func holder(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// Release gives the lock up.
func (l *Lock) Release() error { return l.file.Close() }

// Remove gives the lock up and removes its file, because what it protected is gone.
func (l *Lock) Remove() error { return errors.Join(os.Remove(l.path), l.file.Close()) }
