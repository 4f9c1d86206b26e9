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
	// Disturbances are the same for all labs.
	Disturbances []Disturbance `json:"disturbances,omitempty"`
}

// Disturbance is something that befalls a guest where all steps pass. Work that is right must not be called wrong because of it.
type Disturbance struct {
	Name string `json:"name"`
	// Before brings it about and After ends it; both are scripts for root.
	Before string `json:"before"`
	After  string `json:"after"`
	// Looks is how often the steps are judged meanwhile.
	Looks int `json:"looks"`
}

// disturbances are what befalls real guests.
var disturbances = []Disturbance{
	{Name: "the API server is gone", Looks: 1, Before: "systemctl stop k3s\n", After: "systemctl start k3s\n"},
	{Name: "Argo CD restarts", Looks: 2, Before: "kubectl -n argocd delete pod --all --wait=false >/dev/null\n"},
	{Name: "all processors are busy", Looks: 1,
		Before: "for n in 1 2 3 4; do (timeout 300 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $! >> /run/labctl-busy); done\n",
		After:  "while read -r pid; do kill \"$pid\" 2>/dev/null || :; done < /run/labctl-busy; rm -f /run/labctl-busy\n"},
	{Name: "a sync is under way", Looks: 2,
		Before: "for app in $(kubectl -n argocd get app -o name); do kubectl -n argocd annotate \"$app\" argocd.argoproj.io/refresh=hard --overwrite >/dev/null; done\n"},
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
	d := Document{Schema: Schema, Lab: lab, Steps: steps, Disturbances: disturbances}
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
