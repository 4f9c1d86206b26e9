// Package host asks the Linux host that labctl runs on about processes, ports, memory and disk.
package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Process is one process, told from a later one with the same PID by its start time and the host's boot.
type Process struct {
	PID int
	// StartTicks is when it started, in clock ticks since the host's boot.
	StartTicks uint64
	// HostBoot is the id of that boot.
	HostBoot string
}

// BootID changes with each boot of this host.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the host's boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// Identify describes the process that has this PID now.
func Identify(pid int) (Process, error) {
	ticks, _, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := BootID()
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, StartTicks: ticks, HostBoot: boot}, nil
}

// Alive says whether the process still runs. One that ended and was not reaped yet does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	ticks, state, err := readStat(p.PID)
	if err != nil || ticks != p.StartTicks || state == 'Z' || state == 'X' {
		return false
	}
	boot, err := BootID()
	return err == nil && boot == p.HostBoot
}

// Signal sends a signal to this process and never to another that took its PID. It returns os.ErrProcessDone when it has ended.
func (p Process) Signal(sig syscall.Signal) error {
	// Where the kernel has pidfds, the handle stays with the process it was opened for. Looking again after opening it
	// therefore leaves no gap.
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !p.Alive() {
		return os.ErrProcessDone
	}
	return handle.Signal(sig)
}

// exitPoll is how often WaitExit looks.
const exitPoll = 20 * time.Millisecond

// WaitExit returns when the process has ended, or with ctx's cause.
func (p Process) WaitExit(ctx context.Context) error {
	tick := time.NewTicker(exitPoll)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// readStat reads the start time and the state of a process from /proc/PID/stat.
func readStat(pid int) (ticks uint64, state byte, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(data)
}

// parseStat skips the program's name, which may hold spaces and parentheses: what follows the last ')' is fields 3 and on.
func parseStat(data []byte) (ticks uint64, state byte, err error) {
	end := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[end+1:]))
	const stateAt, startAt = 0, 22 - 3
	if end < 0 || len(fields) <= startAt || len(fields[stateAt]) != 1 {
		return 0, 0, fmt.Errorf("unexpected process status %q", data)
	}
	ticks, err = strconv.ParseUint(fields[startAt], 10, 64)
	return ticks, fields[stateAt][0], err
}

// Found is a running process and its arguments.
type Found struct {
	Process
	Argv []string
}

// Find looks for running processes by their arguments. Processes that this user may not look at are left out.
func Find(match func(argv []string) bool) ([]Found, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, path := range dirs {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		argv := Argv(pid)
		if len(argv) == 0 || !match(argv) {
			continue
		}
		p, err := Identify(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		found = append(found, Found{Process: p, Argv: argv})
	}
	return found, nil
}

// Argv is a running process's arguments; nil where it ended or may not be looked at.
func Argv(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// Share is how much memory a process takes, in bytes: pages that it shares count for each of their users in part.
func Share(pid int) (int64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	memory, err := p.ProcSMapsRollup()
	return int64(memory.Pss), err
}

// Resident is how much memory a process holds, in bytes.
func Resident(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, errors.New("unexpected /proc/PID/statm")
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
