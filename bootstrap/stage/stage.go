// Package stage runs a visible list of named stages, tells a sink how each goes, and cleans up in reverse order.
package stage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind is what happened to a stage.
type Kind string

// The kinds of events.
const (
	Started  Kind = "started"
	Progress Kind = "progress" // Detail says what the stage is at
	Cached   Kind = "cached"   // the stage's result was there already
	Done     Kind = "done"
	Failed   Kind = "failed"
)

// Event is one thing that happened to one stage.
type Event struct {
	Kind   Kind
	Stage  string
	Detail string
	// Took is set on Cached, Done and Failed.
	Took time.Duration
	Err  error
}

// Sink receives events, one at a time. A nil Sink drops them.
type Sink func(Event)

// Send passes e on where there is somebody to pass it to.
func (s Sink) Send(e Event) {
	if s != nil {
		s(e)
	}
}

// Stage is one named unit of work on a state S.
type Stage[S any] struct {
	Name string
	// Run does the work. It returns ErrCached (wrapped or not) when there was nothing to do.
	Run func(ctx context.Context, state *S, progress func(detail string)) error
	// Cleanup undoes what Run left behind that must not stay; it runs in reverse order after all stages, or after the
	// first that failed, with a deadline of its own, also when ctx was cancelled. It may be nil.
	Cleanup func(ctx context.Context, state *S) error
}

// ErrCached says that a stage's result was there already.
var ErrCached = errors.New("nothing to do")

// cleanupTime bounds each stage's cleanup.
const cleanupTime = 30 * time.Second

// Error says which stage failed.
type Error struct {
	Stage string
	Err   error
}

func (e *Error) Error() string { return e.Stage + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Bare is err without its stage's name, for a command that has only that one.
func Bare(err error) error {
	var staged *Error
	if errors.As(err, &staged) {
		return staged.Err
	}
	return err
}

// One runs a single stage that has no state and nothing to clean up.
func One(ctx context.Context, sink Sink, name string, run func(ctx context.Context, detail func(string)) error) error {
	return Run(ctx, &struct{}{}, sink, Stage[struct{}]{Name: name, Run: func(ctx context.Context, _ *struct{}, detail func(string)) error { return run(ctx, detail) }})
}

// Run runs the stages in order until one fails, then the cleanups of those that were begun, newest first.
func Run[S any](ctx context.Context, state *S, sink Sink, stages ...Stage[S]) (err error) {
	begun := 0
	defer func() {
		for i := begun - 1; i >= 0; i-- {
			if stages[i].Cleanup == nil {
				continue
			}
			cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
			if cerr := stages[i].Cleanup(cleanCtx, state); cerr != nil {
				err = errors.Join(err, fmt.Errorf("clean up after %s: %w", stages[i].Name, cerr))
			}
			cancel()
		}
	}()
	for _, st := range stages {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begun++
		start := time.Now()
		sink.Send(Event{Kind: Started, Stage: st.Name})
		runErr := st.Run(ctx, state, func(detail string) {
			sink.Send(Event{Kind: Progress, Stage: st.Name, Detail: detail})
		})
		took := time.Since(start)
		switch {
		case runErr == nil:
			sink.Send(Event{Kind: Done, Stage: st.Name, Took: took})
		case errors.Is(runErr, ErrCached):
			sink.Send(Event{Kind: Cached, Stage: st.Name, Took: took})
		default:
			sink.Send(Event{Kind: Failed, Stage: st.Name, Took: took, Err: runErr})
			return &Error{Stage: st.Name, Err: runErr}
		}
	}
	return nil
}
