package labs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

func step(n int, state check.State, checks ...check.State) labs.StepReport {
	s := labs.StepReport{Step: n, State: state}
	for _, c := range checks {
		s.Checks = append(s.Checks, check.Result{State: c})
	}
	return s
}

func TestRecount(t *testing.T) {
	for name, tc := range map[string]struct {
		state       check.State
		steps       []labs.StepReport
		want        check.State
		passed      int
		differences []string
	}{
		"as kept": {check.Failed, []labs.StepReport{step(1, check.Passed, check.Passed, check.Passed), step(2, check.Failed, check.Passed, check.Failed)}, check.Failed, 1, nil},
		"all":     {check.Passed, []labs.StepReport{step(1, check.Passed, check.Passed), step(2, check.Passed, check.Passed)}, check.Passed, 2, nil},
		"a better step than its checks": {check.Passed, []labs.StepReport{step(1, check.Passed, check.Passed), step(2, check.Passed, check.Failed)}, check.Failed, 1,
			[]string{"step 2 is kept as passed, but its checks say failed", "the lab is kept as passed, but its steps say failed"}},
		"a step without checks": {check.Passed, []labs.StepReport{step(1, check.Passed, check.Passed), step(2, check.Passed)}, check.Error, 1,
			[]string{"step 2 is kept as passed, but its checks say error", "the lab is kept as passed, but its steps say error"}},
		"a step less": {check.Passed, []labs.StepReport{step(1, check.Passed, check.Passed)}, check.Skipped, 1,
			[]string{"step 2 is missing", "the lab is kept as passed, but its steps say skipped"}},
		"a step twice": {check.Passed, []labs.StepReport{step(1, check.Passed, check.Passed), step(1, check.Passed, check.Passed), step(2, check.Passed, check.Passed)}, check.Passed, 2,
			[]string{"step 1 cannot be: the lab has steps 1 to 2, each once"}},
		"an unknown state": {check.Passed, []labs.StepReport{step(1, check.Passed, check.Passed), step(2, check.Passed, "great")}, check.Error, 1,
			[]string{"step 2 is kept as passed, but its checks say error", "the lab is kept as passed, but its steps say error"}},
	} {
		t.Run(name, func(t *testing.T) {
			again, differences := labs.Report{State: tc.state, Steps: tc.steps}.Recount(2)
			require.Equal(t, tc.want, again.State)
			require.Equal(t, tc.passed, again.Passed())
			require.Equal(t, tc.differences, differences)
			require.Len(t, again.Steps, 2)
		})
	}
}
