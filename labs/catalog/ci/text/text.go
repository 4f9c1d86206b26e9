// Package text is what lab ci says to people, one file a language.
package text

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Text is the lab in one language.
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
}

//go:embed en.yaml
var english []byte

// English is the lab's text in English.
func English() (Text, error) {
	var t Text
	if err := yaml.UnmarshalStrict(english, &t); err != nil {
		return Text{}, fmt.Errorf("lab ci, en.yaml: %w", err)
	}
	return t, nil
}
