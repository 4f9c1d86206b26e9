// Package labrun runs lab programs in guests: which labs there are, getting a lab's program into the guest, and calling it
// in one round trip.
package labrun

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/config/strict"
	ci "github.com/cgoa-labs/labctl/labs/catalog/ci/text"
	rev "github.com/cgoa-labs/labctl/labs/catalog/rev/text"
	"github.com/cgoa-labs/labctl/labs/text"
)

// Known is what labctl knows of a lab without asking a guest. Everything else is the lab's own to tell.
type Known struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Steps int    `json:"steps"`
}

// Text is what the lab says to people in a language. What was not translated is marked as foreign; see text.Open.
func (k Known) Text(language string) (text.Text, error) {
	read := map[string]func(string) (text.Text, error){"ci": ci.In, "rev": rev.In}[k.ID]
	if read == nil {
		return text.Text{}, fmt.Errorf("lab %s has no text", k.ID)
	}
	return read(language)
}

// All is every lab, in the order in which they are best done. A test keeps it the same as the labs themselves.
func All() []Known {
	return []Known{
		{ID: "ci", Title: "Git took it, Argo CD could not apply it", Steps: 8},
		{ID: "rev", Title: "Tag v1 was deployed, and v2 came out", Steps: 8},
	}
}

func ids() []string {
	var all []string
	for _, lab := range All() {
		all = append(all, lab.ID)
	}
	return all
}

// Find is the lab of this id; another is a *cli.UsageError.
func Find(id string) (Known, error) {
	for _, lab := range All() {
		if lab.ID == id {
			return lab, nil
		}
	}
	if id == "" {
		return Known{}, &cli.UsageError{Msg: "which lab?", Fix: "say it with --lab: " + strings.Join(ids(), ", ")}
	}
	fix := "the labs are: " + strings.Join(ids(), ", ")
	if near := strict.Nearest(id, ids()); near != "" {
		fix = "did you mean " + near + "?"
	}
	return Known{}, &cli.UsageError{Msg: fmt.Sprintf("there is no lab %q", id), Fix: fix}
}

// CheckStep refuses a step that the lab does not have. flag is how it was given.
func (k Known) CheckStep(flag string, step int) error {
	if step >= 1 && step <= k.Steps {
		return nil
	}
	return &cli.UsageError{Msg: fmt.Sprintf("--%s: lab %s has no step %s", flag, k.ID, strconv.Itoa(step)), Fix: fmt.Sprintf("its steps are 1 to %d", k.Steps)}
}
