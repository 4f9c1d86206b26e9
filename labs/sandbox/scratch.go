// Package sandbox runs a learner's programs where nothing that they do lasts: they see the guest's real files, and what
// they write goes to a scratch folder.
package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Scratch is the folder of one pass of verification. Its name carries the owner's pid and start time, so that a later run
// can tell that the owner is gone.
type Scratch struct{ Dir string }

// marker is the environment variable by which the programs of a scratch folder are found again.
const marker = "LABCTL_SCRATCH"

// Room is how much space a pass needs.
const Room = 16 << 20

// SpaceError says that there is no room for scratch work.
type SpaceError struct {
	Dir string
	Err error
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("no room for scratch work in %s (%d MiB are needed): %v", e.Dir, Room>>20, e.Err)
}
func (e *SpaceError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *SpaceError) Hint() string {
	return "make room on the guest's disk; `df -h` and `du -xh / | sort -h | tail` show where it went"
}

// New makes a scratch folder in root, after sweeping what runs that are gone left there. prefix tells labs apart.
func New(root, prefix string) (*Scratch, error) {
	if _, err := Sweep(root, prefix); err != nil {
		return nil, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("find this process's start time: %w", err)
	}
	dir, err := os.MkdirTemp(root, fmt.Sprintf("%s.%d.%s.", prefix, os.Getpid(), start))
	if err != nil {
		return nil, spaceError(root, err)
	}
	s := &Scratch{Dir: dir}
	if err := s.Probe(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Probe returns *SpaceError where Room bytes cannot be had.
func (s *Scratch) Probe() error {
	path := filepath.Join(s.Dir, "room")
	file, err := os.Create(path)
	if err != nil {
		return spaceError(s.Dir, err)
	}
	defer func() { _ = file.Close(); _ = os.Remove(path) }()
	err = unix.Fallocate(int(file.Fd()), 0, 0, Room)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = file.Write(make([]byte, Room))
	}
	if err != nil {
		return spaceError(s.Dir, err)
	}
	return nil
}

func spaceError(dir string, err error) error {
	for _, no := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		if errors.Is(err, no) {
			return &SpaceError{Dir: dir, Err: no}
		}
	}
	return fmt.Errorf("make a scratch folder: %w", err)
}

// Close ends the programs that still run in the scratch folder and removes it.
func (s *Scratch) Close() error { return clear(s.Dir) }

func clear(dir string) error {
	killMarked(dir)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove scratch folder: %w", err)
	}
	return nil
}

// Left lists the scratch folders in root whose owners are gone.
func Left(root, prefix string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for scratch folders: %w", err)
	}
	var left []string
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), prefix+".")
		if !ok || !entry.IsDir() {
			continue
		}
		words := strings.SplitN(rest, ".", 3)
		if len(words) != 3 {
			continue
		}
		pid, err := strconv.Atoi(words[0])
		if err != nil {
			continue
		}
		if start, err := startTime(pid); err == nil && start == words[1] {
			continue
		}
		left = append(left, filepath.Join(root, entry.Name()))
	}
	return left, nil
}

// Sweep removes the scratch folders whose owners are gone, with the programs that still run in them, and returns them.
func Sweep(root, prefix string) ([]string, error) {
	left, err := Left(root, prefix)
	for _, dir := range left {
		err = errors.Join(err, clear(dir))
	}
	return left, err
}

// startTime is when a process started, in clock ticks since boot, as /proc tells it.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the name in parentheses, which may hold anything.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return "", fmt.Errorf("process %d: cannot read its status", pid)
	}
	return fields[19], nil
}

// killMarked ends the processes that were started for a scratch folder, also those that left their process group.
func killMarked(dir string) {
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	want := "\x00" + marker + "=" + dir + "\x00"
	for _, path := range procs {
		env, err := os.ReadFile(path)
		if err != nil || !strings.Contains("\x00"+string(env), want) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
