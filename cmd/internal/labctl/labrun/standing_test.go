package labrun_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

func TestStanding(t *testing.T) {
	dir := layout.InstanceDir(t.TempDir())
	note := func(action string, steps ...labs.StepReport) labrun.Standing {
		require.NoError(t, labrun.Note(dir, labs.Report{Lab: "ci", Action: action, Steps: steps}))
		s, err := labrun.Recall(dir, "ci")
		require.NoError(t, err)
		return s
	}
	s, err := labrun.Recall(dir, "ci")
	require.NoError(t, err)
	require.Zero(t, s.Passed())
	require.Empty(t, labrun.Standings(dir))

	s = note("verify", labs.StepReport{Step: 1, State: check.Passed}, labs.StepReport{Step: 2, State: check.Failed})
	require.Equal(t, 1, s.Passed())
	require.Equal(t, 2, note("verify", labs.StepReport{Step: 2, State: check.Passed}).Passed(), "one step leaves the others")
	require.Equal(t, 2, note("verify", labs.StepReport{Step: 1, State: check.Error}).Passed(), "what could not be asked says nothing")
	require.Equal(t, 1, note("verify", labs.StepReport{Step: 1, State: check.Failed}).Passed())
	require.Len(t, labrun.Standings(dir), 1)
	require.NoError(t, os.WriteFile(dir.Standing("ci"), []byte("{"), 0o600))
	require.Empty(t, labrun.Standings(dir))
	require.Equal(t, 1, note("verify", labs.StepReport{Step: 1, State: check.Passed}).Passed(), "what cannot be read is begun anew")
	require.Zero(t, note("reset").Passed())
	require.NoFileExists(t, dir.Standing("ci"))
	require.Zero(t, note("reset").Passed())
}
