package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/cgoa-labs/labctl/config/layout"
)

// idle is what a machine takes of its host.
type idle struct {
	// PrivateMiB is the memory that it changed and shares with nobody, ShareMiB also its part of what it shares.
	PrivateMiB uint64 `json:"privateMiB"`
	ShareMiB   uint64 `json:"shareMiB"`
	// GuestMiB is the part of PrivateMiB that the guest changed of its own memory. The rest is QEMU's; under emulation most of that is code
	// that it has translated.
	GuestMiB uint64 `json:"guestMiB"`
	// Cores is the processor time that it took, divided by the time that passed.
	Cores float64 `json:"cores"`
}

// settleTime is how long nobody does anything before it is measured, and watchTime how long its processor time is watched.
const settleTime, watchTime = 2 * time.Minute, time.Minute

// rest measures the clone that nobody works in.
func (b *bench) rest(ctx context.Context) error {
	fmt.Fprintf(os.Stderr, "an idle clone: %s of rest, then %s of watching\n", settleTime, watchTime)
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	p, err := procfs.NewProc(b.pid)
	if err != nil {
		return err
	}
	before, err := p.Stat()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, watchTime); err != nil {
		return err
	}
	after, err := p.Stat()
	if err != nil {
		return err
	}
	memory, err := p.ProcSMapsRollup()
	if err != nil {
		return err
	}
	guest, err := guestDirty(b.pid)
	if err != nil {
		return err
	}
	b.doc.Idle = idle{
		PrivateMiB: memory.PrivateDirty >> 20, ShareMiB: memory.Pss >> 20, GuestMiB: guest >> 20,
		Cores: round((after.CPUTime() - before.CPUTime()) / time.Since(begin).Seconds()),
	}
	return nil
}

// guestDirty is how much of the frozen memory a machine has changed for itself, in bytes.
func guestDirty(pid int) (uint64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return dirtyOf(file, layout.FrozenDir("/").Memory())
}

// dirtyOf adds up, in bytes, the private changed pages of the mappings of a file, in the form of proc_pid_smaps(5).
func dirtyOf(smaps io.Reader, file string) (uint64, error) {
	var kib uint64
	inside := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		first, rest, _ := strings.Cut(line, " ")
		switch {
		case !strings.HasSuffix(first, ":"):
			inside = strings.HasSuffix(line, file)
		case inside && first == "Private_Dirty:":
			var n uint64
			if _, err := fmt.Sscan(rest, &n); err != nil {
				return 0, fmt.Errorf("read %q: %w", line, err)
			}
			kib += n
		}
	}
	return kib << 10, lines.Err()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// lastWords is why labctl refused something.
func lastWords(said string) string {
	for line := range strings.Lines(said) {
		if why, ok := strings.CutPrefix(line, "labctl: "); ok {
			return strings.TrimSpace(why)
		}
	}
	return "no reason given"
}
