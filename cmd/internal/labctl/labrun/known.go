// Package labrun runs lab programs in guests: which labs there are, getting a lab's program into the guest, and calling it
// in one round trip.
package labrun

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/config/strict"
	"github.com/cgoa-labs/labctl/labs/catalog"
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
	for _, entry := range catalog.All() {
		if entry.ID == k.ID {
			return entry.Text(language)
		}
	}
	return text.Text{}, fmt.Errorf("lab %s has no text", k.ID)
}

// All is every lab, in the order of their names. What is told of them here is English.
var All = sync.OnceValue(func() []Known {
	var all []Known
	for _, entry := range catalog.All() {
		said, err := entry.Text("en")
		if err != nil {
			panic(fmt.Sprintf("lab %s: its text is part of labctl and cannot be read: %v", entry.ID, err)) // its tests read it too
		}
		all = append(all, Known{ID: entry.ID, Title: said.Title, Steps: len(said.Steps)})
	}
	return all
})

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
