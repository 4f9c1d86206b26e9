package stack

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServerTouchesOnlyItsInstances(t *testing.T) {
	var made []string
	p := &server{ctx: t.Context(), names: []string{"alice", "bob"}, done: map[string]error{}, up: func(_ context.Context, name string) error {
		made = append(made, name)
		return nil
	}}
	require.NoError(t, p.work(t.Context(), "alice", p.up))
	require.ErrorContains(t, p.work(t.Context(), "eve", p.up), "not to be touched")
	require.ErrorContains(t, p.work(t.Context(), "alice", p.down), "not to be touched", "a run that makes removes nothing")
	require.Equal(t, []string{"alice"}, made)

	outcomes, told := p.outcomes(p.names)
	require.False(t, told)
	require.Equal(t, map[string]error{"alice": nil, "bob": ErrNotReached}, outcomes)
	require.True(t, noneFailed(map[string]error{"alice": nil}))
	require.False(t, noneFailed(outcomes))
}

func TestWorkEndsWithLabctl(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by Ctrl-C")
	p := &server{ctx: ctx, names: []string{"alice"}, done: map[string]error{}}
	require.ErrorIs(t, p.work(t.Context(), "alice", func(ctx context.Context, _ string) error {
		cancel(stopped)
		<-ctx.Done()
		return context.Cause(ctx)
	}), stopped)
}

func TestLines(t *testing.T) {
	var said []string
	l := (&Stack{Log: func(line string) { said = append(said, line) }}).log()
	for _, part := range []string{"one\ntw", "o\n\n  \nthr", "ee"} {
		_, err := l.Write([]byte(part))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"pulumi: one", "pulumi: two"}, said)
}
