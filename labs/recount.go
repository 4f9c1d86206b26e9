package labs

import (
	"fmt"

	"github.com/cgoa-labs/labctl/labs/check"
)

// Recount judges a kept report of a verify again, from what its checks found: a step is what its checks say, the lab is what its steps say, and
// a step of the lab's that the report is silent about is skipped. differences says, in words, where the kept report says otherwise.
func (r Report) Recount(steps int) (again Report, differences []string) {
	again = r
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	kept := map[int]StepReport{}
	for _, s := range r.Steps {
		if _, twice := kept[s.Step]; twice || s.Step < 1 || s.Step > steps {
			differ("step %d cannot be: the lab has steps 1 to %d, each once", s.Step, steps)
			continue
		}
		kept[s.Step] = s
	}
	again.Steps = make([]StepReport, 0, steps)
	var results []check.Result
	for n := 1; n <= steps; n++ {
		s, ok := kept[n]
		if !ok {
			s = StepReport{Step: n, State: check.Skipped}
			differ("step %d is missing", n)
		} else if state := stepState(s); state != s.State {
			differ("step %d is kept as %s, but its checks say %s", n, s.State, state)
			s.State = state
		}
		again.Steps = append(again.Steps, s)
		results = append(results, check.Result{State: s.State})
	}
	again.State = check.Sum(results)
	if again.State != r.State {
		differ("the lab is kept as %s, but its steps say %s", r.State, again.State)
	}
	return again, differences
}

// stepState is what a step's checks say. Without any nothing is known of it.
func stepState(s StepReport) check.State {
	if len(s.Checks) == 0 {
		return check.Error
	}
	for _, c := range s.Checks {
		if !c.State.Known() {
			return check.Error
		}
	}
	return check.Sum(s.Checks)
}
