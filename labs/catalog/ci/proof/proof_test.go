package proof_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/proof"
	"github.com/cgoa-labs/labctl/labs/check"
)

func TestEnoughAnswersAStep(t *testing.T) {
	wrong, right, seen := map[int]int{}, map[int]int{}, map[string]bool{}
	for _, c := range proof.Cases() {
		key := string(rune('0'+c.Step)) + c.Name
		require.False(t, seen[key], "step %d has %q twice", c.Step, c.Name)
		seen[key] = true
		if c.Want == check.Passed {
			require.Empty(t, c.WantCheck, c.Name)
			right[c.Step]++
		} else {
			require.NotEmpty(t, c.WantCheck, c.Name)
			wrong[c.Step]++
		}
	}
	for step := 1; step <= 8; step++ {
		require.GreaterOrEqual(t, wrong[step], 6, "wrong answers to step %d", step)
		require.GreaterOrEqual(t, right[step], 2, "right answers to step %d", step)
	}
	require.Len(t, proof.Undos(), 8)
	states := map[check.State]int{}
	for _, c := range proof.Sample() {
		states[c.Want]++
	}
	require.Equal(t, map[check.State]int{check.Failed: 8, check.Passed: 2}, states, "the sample has a mistake for each step")
}

func TestScriptsAreShell(t *testing.T) {
	var all []string
	for _, c := range proof.Cases() {
		all = append(all, c.Before(), c.After())
	}
	for _, u := range proof.Undos() {
		all = append(all, u.Before(), u.After())
	}
	for _, script := range all {
		cmd := exec.Command("sh", "-n")
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, script)
	}
}
