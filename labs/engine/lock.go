package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

type mode int

const (
	shared mode = iota
	exclusive
)

// BusyError says that another run has the lab.
type BusyError struct {
	Lab string
	// Who is what the other run is, such as "reset (pid 12)", empty where it did not say.
	Who   string
	After time.Duration
}

func (e *BusyError) Error() string {
	who := e.Who
	if who == "" {
		who = "another run"
	}
	return fmt.Sprintf("lab %s is in use by %s, still after %s", e.Lab, who, e.After)
}

// Hint is the next action.
func (e *BusyError) Hint() string { return "try again when it has ended" }

// lock takes the lab's lock: verifies share it, solve and reset have it alone. A run that dies gives it back.
func (e *Engine) lock(ctx context.Context, m mode, action string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(e.LockFile), 0o755); err != nil {
		return nil, fmt.Errorf("lock lab %s: %w", e.Lab.ID, err)
	}
	l := flock.New(e.LockFile, flock.SetPermissions(0o644))
	limit := e.Limits.or(defaults).Lock
	lockCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	try, now := l.TryRLockContext, l.TryRLock
	if m == exclusive {
		try, now = l.TryLockContext, l.TryLock
	}
	got, err := now()
	if err == nil && !got {
		e.log("waiting for %s to end", e.holder())
		got, err = try(lockCtx, 100*time.Millisecond)
	}
	switch {
	case err == nil && got:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded) || err == nil:
		return nil, &BusyError{Lab: e.Lab.ID, Who: e.holder(), After: limit}
	default:
		return nil, fmt.Errorf("lock lab %s: %w", e.Lab.ID, err)
	}
	// Only for the other run's message: a lock file that cannot be written is as good a lock. What a solve that was killed
	// wrote there is outdated, since the lock is ours.
	var who []byte
	if m == exclusive {
		who = fmt.Appendf(nil, "%s (pid %d)\n", action, os.Getpid())
	}
	_ = os.WriteFile(e.LockFile, who, 0o644)
	return func() {
		if m == exclusive {
			_ = os.Truncate(e.LockFile, 0)
		}
		_ = l.Unlock()
	}, nil
}

func (e *Engine) holder() string {
	text, err := os.ReadFile(e.LockFile)
	who := strings.TrimSpace(string(text))
	if err != nil || who == "" {
		return "another verify"
	}
	return who
}
