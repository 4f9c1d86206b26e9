package proof

import (
	"slices"

	"github.com/cgoa-labs/labctl/labs/check"
)

// Schema is the version of the document in which a lab's program tells its proof.
const Schema = "labctl.dev/proof/v1"

// Catalogue is a lab's proof: all answers, and how each step is undone.
type Catalogue struct {
	Cases []Case
	Undos []Undo
}

// Document is a catalogue as JSON.
type Document struct {
	Schema string  `json:"schema"`
	Lab    string  `json:"lab"`
	Steps  int     `json:"steps"`
	Trials []Trial `json:"trials"`
}

// Kind is what a trial tries.
type Kind string

// The kinds of trials.
const (
	Wrong  Kind = "wrong"  // an answer that must be refused
	Right  Kind = "right"  // another answer that must be taken
	Undone Kind = "undone" // a step's work is taken away
)

// Trial is one thing to try in a guest where all steps pass: Before is run, the steps are judged, and After puts the guest back.
type Trial struct {
	Kind   Kind   `json:"kind"`
	Step   int    `json:"step"`
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Check is the one that must decide a wrong answer.
	Check string `json:"check,omitempty"`
	// Skipped are the steps that must be skipped because the step is undone.
	Skipped []int `json:"skipped,omitempty"`
}

// Document is the catalogue for a lab with so many steps.
func (c Catalogue) Document(lab string, steps int) Document {
	d := Document{Schema: Schema, Lab: lab, Steps: steps}
	for _, u := range c.Undos {
		d.Trials = append(d.Trials, Trial{Kind: Undone, Step: u.Step, Name: "its work is taken away", Before: u.Before(), After: u.After(), Skipped: u.Then})
	}
	for _, one := range c.Cases {
		t := Trial{Kind: Wrong, Step: one.Step, Name: one.Name, Before: one.Before(), After: one.After(), Check: one.WantCheck}
		if one.Want == check.Passed {
			t.Kind = Right
		}
		d.Trials = append(d.Trials, t)
	}
	return d
}

// Sample is one trial of each kind for each step: the first ones.
func Sample(trials []Trial) []Trial {
	type key struct {
		kind Kind
		step int
	}
	seen := map[key]bool{}
	return slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool {
		k := key{t.Kind, t.Step}
		had := seen[k]
		seen[k] = true
		return had
	})
}
