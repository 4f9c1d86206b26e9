package limits_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/limits"
	"github.com/cgoa-labs/labctl/config/layout"
)

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		l          limits.Limits
		ran, idled time.Duration
		kind       limits.Kind
		left       time.Duration
	}{
		"none":           {limits.Limits{}, time.Hour, time.Hour, "", 0},
		"time left":      {limits.Of(time.Hour, 0), 40 * time.Minute, 40 * time.Minute, limits.TTL, 20 * time.Minute},
		"over":           {limits.Of(time.Hour, 0), 2 * time.Hour, 0, limits.TTL, -time.Hour},
		"idle":           {limits.Of(0, time.Hour), 5 * time.Hour, 10 * time.Minute, limits.Idle, 50 * time.Minute},
		"idle comes up":  {limits.Of(4*time.Hour, 30*time.Minute), time.Hour, 20 * time.Minute, limits.Idle, 10 * time.Minute},
		"time comes up":  {limits.Of(4*time.Hour, 30*time.Minute), 239 * time.Minute, 0, limits.TTL, time.Minute},
		"both are close": {limits.Of(time.Hour, time.Hour), time.Hour, time.Hour, limits.TTL, 0},
	} {
		t.Run(name, func(t *testing.T) {
			kind, left := tc.l.Next(tc.ran, tc.idled)
			require.Equal(t, tc.kind, kind)
			require.Equal(t, tc.left, left)
		})
	}
}

func TestKept(t *testing.T) {
	dir := layout.InstanceDir(t.TempDir())
	l, err := limits.Load(dir)
	require.NoError(t, err)
	require.True(t, l.None())
	want := limits.Of(4*time.Hour, 30*time.Minute)
	want.Warned, want.WarnedOf = time.Unix(1700000000, 0).UTC(), limits.Idle
	require.NoError(t, want.Save(dir))
	l, err = limits.Load(dir)
	require.NoError(t, err)
	l.Schema = ""
	require.Equal(t, want, l)
	info, err := os.Stat(dir.Limits())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.NoError(t, limits.Limits{}.Save(dir))
	require.NoFileExists(t, dir.Limits())
	require.NoError(t, os.WriteFile(dir.Limits(), []byte("{"), 0o600))
	_, err = limits.Load(dir)
	require.ErrorContains(t, err, "is not what labctl writes")
}
