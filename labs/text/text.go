// Package text is what a lab says to people, read from one file a language.
package text

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// Text is a lab in one language.
type Text struct {
	Title      string   `json:"title"`
	Goal       string   `json:"goal"`
	Why        string   `json:"why"`
	Steps      []Step   `json:"steps"`
	References []string `json:"references"`
	// Checks are the checks' titles by their IDs; Hints are sentences by their keys.
	Checks map[string]string `json:"checks"`
	Hints  map[string]string `json:"hints"`
}

// Step is one step's text.
type Step struct {
	Title string `json:"title"`
	Goal  string `json:"goal"`
	Note  string `json:"note"`
	// Hints lead to the step's solution, each nearer than the one before.
	Hints []string `json:"hints"`
}

// Parse reads a text; a key that it does not know is an error. lab and file say whose it is.
func Parse(lab, file string, data []byte) (Text, error) {
	var t Text
	if err := yaml.UnmarshalStrict(data, &t); err != nil {
		return Text{}, fmt.Errorf("lab %s, %s: %w", lab, file, err)
	}
	return t, nil
}
