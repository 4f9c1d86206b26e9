package check

import (
	"context"
	"fmt"
	"time"
)

// Clock is what a wait needs of time; tests pass their own.
type Clock interface {
	Now() time.Time
	// After is time.After.
	After(d time.Duration) <-chan time.Time
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Wait bounds a wait. The zero value of each field but Timeout has a sensible default.
type Wait struct {
	// Timeout bounds the whole wait.
	Timeout time.Duration
	// Attempt bounds one try; by default a quarter of Timeout, at least 5 s.
	Attempt time.Duration
	// First and Most are the shortest and longest pause between tries (250 ms and 3 s); each pause is half longer than the one before.
	First, Most time.Duration
	// Stable is how many tries in a row must pass; by default 1.
	Stable int
	// Clock is the real one where nil.
	Clock Clock
	// Observe is called with each try's result, for progress.
	Observe func(Result)
}

// TimeoutError says that a wait gave up, with the last reason it saw.
type TimeoutError struct {
	Title string
	After time.Duration
	Last  Result
}

func (e *TimeoutError) Error() string {
	s := fmt.Sprintf("%s: gave up after %s, last seen: %s", e.Title, e.After.Round(time.Second), e.Last.State)
	if e.Last.Wanted != "" {
		s += ", wanted " + e.Last.Wanted
	}
	if e.Last.Got != "" {
		s += ", got " + e.Last.Got
	}
	return s
}

// For polls c until it passes Stable times in a row. It returns the last result; the error is *TimeoutError when the time ran
// out and ctx's cause when ctx ended first. Failed and Error are polled on as well: at boot both may heal.
func (w Wait) For(ctx context.Context, c Check) (Result, error) {
	clock := w.Clock
	if clock == nil {
		clock = realClock{}
	}
	attempt := w.Attempt
	if attempt == 0 {
		attempt = max(w.Timeout/4, 5*time.Second)
	}
	pause := w.First
	if pause == 0 {
		pause = 250 * time.Millisecond
	}
	most := w.Most
	if most == 0 {
		most = 3 * time.Second
	}
	start := clock.Now()
	passes := 0
	for {
		tryCtx, cancel := context.WithTimeoutCause(ctx, attempt, fmt.Errorf("no answer within %s", attempt))
		res := c.Run(tryCtx)
		cancel()
		if w.Observe != nil {
			w.Observe(res)
		}
		if ctx.Err() != nil && res.State != Passed {
			return res, context.Cause(ctx)
		}
		if res.State == Passed {
			passes++
			if passes >= max(w.Stable, 1) {
				return res, nil
			}
		} else {
			passes = 0
		}
		if spent := clock.Now().Sub(start); spent >= w.Timeout {
			return res, &TimeoutError{Title: c.Title, After: spent, Last: res}
		}
		select {
		case <-ctx.Done():
			return res, context.Cause(ctx)
		case <-clock.After(pause):
		}
		pause = min(pause*3/2, most)
	}
}
