package labrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Standing is how far a learner was in a lab when it was last asked. It is kept on the host, for lists; the verdict itself is the guest's.
type Standing struct {
	Schema string              `json:"schema"`
	Lab    string              `json:"lab"`
	Time   time.Time           `json:"time"`
	Steps  map[int]check.State `json:"steps"`
	// Hints is how many hints were taken, by step.
	Hints map[int]int `json:"hints,omitempty"`
}

const standingSchema = "labctl.dev/standing/v1"

// Passed counts the steps that were passed.
func (s Standing) Passed() (n int) {
	for _, state := range s.Steps {
		if state == check.Passed {
			n++
		}
	}
	return n
}

// Note keeps what a report says of the steps that it is about, and forgets all after a reset. What could not be checked changes nothing.
func Note(dir layout.InstanceDir, report labs.Report) error {
	if report.Action == "reset" {
		if err := os.Remove(dir.Standing(report.Lab)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the standing: %w", err)
		}
		return nil
	}
	standing, _ := Recall(dir, report.Lab) // one that cannot be read is begun anew
	if standing.Steps == nil {
		standing.Steps = map[int]check.State{}
	}
	for _, step := range report.Steps {
		if step.State != check.Error {
			standing.Steps[step.Step] = step.State
		}
	}
	standing.Time = time.Now().UTC()
	return standing.save(dir, report.Lab)
}

// TakeHint counts one hint more for a step, up to most, and returns how many were taken.
func TakeHint(dir layout.InstanceDir, lab string, step, most int) (int, error) {
	standing, _ := Recall(dir, lab)
	if standing.Hints == nil {
		standing.Hints = map[int]int{}
	}
	standing.Hints[step] = min(standing.Hints[step]+1, most)
	return standing.Hints[step], standing.save(dir, lab)
}

func (s Standing) save(dir layout.InstanceDir, lab string) error {
	s.Schema, s.Lab = standingSchema, lab
	path := dir.Standing(lab)
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := layout.Write(path, append(data, '\n')); err != nil {
		return fmt.Errorf("keep the standing: %w", err)
	}
	return nil
}

// Recall reads the standing in a lab; the zero one where nobody has asked yet.
func Recall(dir layout.InstanceDir, lab string) (Standing, error) {
	var s Standing
	data, err := os.ReadFile(dir.Standing(lab))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read the standing: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Schema != standingSchema {
		return Standing{}, fmt.Errorf("read the standing: %s is not what labctl writes", dir.Standing(lab))
	}
	return s, nil
}

// Standings are those of all labs that were asked for in an instance, in the labs' order.
func Standings(dir layout.InstanceDir) []Standing {
	var all []Standing
	for _, lab := range All() {
		if s, err := Recall(dir, lab.ID); err == nil && len(s.Steps) > 0 {
			all = append(all, s)
		}
	}
	return slices.Clip(all)
}
