package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// idle is what a machine takes of its host.
type idle struct {
	// PrivateMiB is the memory that it changed and shares with nobody, ShareMiB also its part of what it shares.
	PrivateMiB uint64 `json:"privateMiB"`
	ShareMiB   uint64 `json:"shareMiB"`
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
	b.doc.Idle = idle{
		PrivateMiB: memory.PrivateDirty >> 20, ShareMiB: memory.Pss >> 20,
		Cores: round((after.CPUTime() - before.CPUTime()) / time.Since(begin).Seconds()),
	}
	return nil
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
