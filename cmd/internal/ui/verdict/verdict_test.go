package verdict_test

import (
	"bytes"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/ui/verdict"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

func TestReport(t *testing.T) {
	steps := []labs.StepReport{
		{Step: 1, Title: "Build a delivery pipeline", State: check.Passed, Millis: 420, Checks: []check.Result{{ID: "bare", State: check.Passed}}},
		{Step: 2, Title: "Break it", State: check.Failed, Millis: 1300, Checks: []check.Result{
			{ID: "app", Title: "the Application exists", State: check.Passed},
			{ID: "broken", Title: "broken.json", State: check.Failed, Wanted: "phase Running", Got: "phase Succeeded\nsync Synced", Hint: "read the operation, not the sync status"},
		}},
		{Step: 3, Title: "Roll back", State: check.Skipped},
	}
	tests := []struct {
		name   string
		report labs.Report
		want   string
	}{
		{"some passed", labs.Report{Lab: "ci", Action: "verify", State: check.Failed, Steps: steps, Millis: 2000}, `   1  passed     0.4s  Build a delivery pipeline
   2  failed     1.3s  Break it
        · broken.json
          wanted phase Running
          got    phase Succeeded
                 sync Synced
          hint   read the operation, not the sync status
   3  skipped          Roll back
lab ci: 1 of 3 steps passed (2.0s); next: step 2
`},
		{"all passed", labs.Report{Lab: "ci", Action: "verify", State: check.Passed, Steps: []labs.StepReport{steps[0], steps[0]}}, `   1  passed     0.4s  Build a delivery pipeline
   1  passed     0.4s  Build a delivery pipeline
lab ci: 2 of 2 steps passed (0.0s)
`},
		{"one step", labs.Report{Lab: "ci", Action: "verify", State: check.Passed, Steps: steps[:1], Millis: 420}, `   1  passed     0.4s  Build a delivery pipeline
lab ci, step 1: passed (0.4s)
`},
		{"could not ask", labs.Report{Lab: "ci", Action: "verify", State: check.Error, Steps: []labs.StepReport{steps[0],
			{Step: 2, Title: "Break it", State: check.Error, Checks: []check.Result{{ID: "app", Title: "the Application", State: check.Error, Got: "the API server is away"}}}}},
			`   1  passed     0.4s  Build a delivery pipeline
   2  error      0.0s  Break it
        · the Application
          error  the API server is away
lab ci: 1 of 2 steps passed (0.0s); step 2 could not be checked, which says nothing about the work
`},
		{"not asked at all", labs.Report{Lab: "ci", Action: "verify", State: check.Error, Error: "no space left on device"},
			"error: no space left on device\nlab ci: error (0.0s)\n"},
		{"reset", labs.Report{Lab: "ci", Action: "reset", State: check.Passed, Millis: 8000}, "lab ci is back at its start (8.0s)\n"},
		{"reset that left something", labs.Report{Lab: "ci", Action: "reset", State: check.Failed, Left: []check.Result{
			{ID: "ns", Title: "namespace shop-dev", State: check.Failed, Wanted: "gone", Got: "Terminating", Hint: "look at its finalizers"}}},
			`still there after the reset:
  failed   namespace shop-dev
           wanted gone
           got    Terminating
           hint   look at its finalizers
lab ci is not back at its start: failed (0.0s)
`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			verdict.Report(&b, false, verdict.In("en"), tc.report)
			require.Equal(t, tc.want, b.String())
		})
	}
}

func TestChecks(t *testing.T) {
	var b bytes.Buffer
	verdict.Checks(&b, false, verdict.In("en"), []check.Result{
		{ID: "kvm", Title: "accelerator", State: check.Passed, Got: "tcg"},
		{ID: "memory", State: check.Failed, Wanted: "3 GiB free", Got: "1 GiB free", Hint: "stop an instance"},
		{ID: "disk", Title: "disk", State: check.Passed},
		{ID: "node", Title: "node", State: check.Skipped, Got: "no guest"},
	})
	require.Equal(t, `  passed   accelerator: tcg
  failed   memory
           wanted 3 GiB free
           got    1 GiB free
           hint   stop an instance
  passed   disk
  skipped  node
           why    no guest
`, b.String())
}

func TestCode(t *testing.T) {
	for state, want := range map[check.State]int{check.Passed: 0, check.Failed: 1, check.Pending: 1, check.Skipped: 1, check.Error: 3} {
		require.Equal(t, want, verdict.Code(state), state)
	}
}

// Every language says everything, and puts into its sentences what English does.
func TestLanguages(t *testing.T) {
	steps := []labs.StepReport{{Step: 1, State: check.Passed}, {Step: 2, State: check.Failed, Checks: []check.Result{{Title: "x", State: check.Failed, Wanted: "w", Got: "g", Hint: "h"}}}}
	reports := map[string]labs.Report{
		"verify":  {Lab: "ci", Action: "verify", State: check.Failed, Steps: steps, Millis: 4200},
		"one":     {Lab: "ci", Action: "verify", State: check.Failed, Steps: steps[1:], Millis: 4200},
		"error":   {Lab: "ci", Action: "verify", State: check.Error, Steps: []labs.StepReport{steps[0], {Step: 2, State: check.Error}}, Millis: 4200},
		"nothing": {Lab: "ci", Action: "verify", State: check.Error, Error: "no space", Millis: 4200},
		"reset":   {Lab: "ci", Action: "reset", State: check.Passed, Millis: 4200},
		"left":    {Lab: "ci", Action: "reset", State: check.Failed, Left: []check.Result{{Title: "ns", State: check.Failed}}, Millis: 4200},
	}
	for _, language := range []string{"ja", "ko", "zh"} {
		for name, r := range reports {
			var said, english bytes.Buffer
			verdict.Report(&said, false, verdict.In(language), r)
			verdict.Report(&english, false, verdict.In("en"), r)
			require.NotContains(t, said.String(), "%!", "%s, %s", language, name)
			for _, fact := range []string{"ci", "4.2s"} {
				require.Contains(t, said.String(), fact, "%s, %s", language, name)
			}
			require.Equal(t, numbers(english.String()), numbers(said.String()), "%s, %s: %s", language, name, said.String())
			for _, word := range []string{"passed", "failed", "step", "wanted", "hint", "lab "} {
				require.NotContains(t, said.String(), word, "%s, %s", language, name)
			}
		}
		for _, s := range []check.State{check.Passed, check.Failed, check.Pending, check.Skipped, check.Error} {
			require.NotEqual(t, string(s), verdict.In(language).State(s))
		}
		w := verdict.In(language)
		require.NotContains(t, []string{w.Wanted, w.Got, w.Trouble, w.Why, w.Hint, w.Done, w.NotDone, w.Unasked}, "")
		require.Contains(t, w.Progress(3, 8), "3")
		require.Contains(t, w.Progress(3, 8), "8")
	}
	require.Equal(t, verdict.In("en"), verdict.In("tlh"))
}

// numbers are a text's, sorted: languages put them in another order.
func numbers(text string) []string {
	all := regexp.MustCompile(`[0-9]+`).FindAllString(text, -1)
	slices.Sort(all)
	return all
}
