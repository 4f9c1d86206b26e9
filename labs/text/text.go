// Package text is what a lab says to people, read from one file a language.
package text

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"

	"sigs.k8s.io/yaml"
)

// Text is a lab in one language.
type Text struct {
	Title      string   `json:"title"`
	Goal       string   `json:"goal"`
	Why        string   `json:"why"`
	Steps      []Step   `json:"steps"`
	References []string `json:"references"`
	// Foreign names the language of Title, Goal, Why and References where they are not there in the one that was asked for.
	Foreign string `json:"-"`
	// Checks are the checks' titles by their IDs; Hints are sentences by their keys.
	Checks map[string]string `json:"checks"`
	Hints  map[string]string `json:"hints"`
	// Phrases are what checks say, by the phrase in English, which is the program's own.
	Phrases map[string]string `json:"phrases"`
	// Language is what the text was asked for in.
	Language string `json:"-"`
}

// Step is one step's text.
type Step struct {
	Title string `json:"title"`
	Goal  string `json:"goal"`
	Note  string `json:"note"`
	// Hints lead to the step's solution, each nearer than the one before.
	Hints []string `json:"hints"`
	// Foreign names the language of the step where it is not there in the one that was asked for.
	Foreign string `json:"-"`
}

// Languages are those that labs are written in.
var Languages = []string{"en", "ja", "ko", "zh"}

// Source is the language that texts are written in first, and that stands in where another has nothing.
const Source = "ko"

// Native is the language in which checks say what they found, unless a text has other words for it.
const Native = "en"

// Parse reads a text; a key that it does not know is an error. lab and file say whose it is.
func Parse(lab, file string, data []byte) (Text, error) {
	var t Text
	if err := yaml.UnmarshalStrict(data, &t); err != nil {
		return Text{}, fmt.Errorf("lab %s, %s: %w", lab, file, err)
	}
	return t, nil
}

// Open reads a lab's text in a language, from LANGUAGE.yaml in files. What is not there in it comes from the source language, a step at a
// time, and is marked as foreign.
func Open(lab string, files fs.FS, language string) (Text, error) {
	read := func(language string) (Text, error) {
		file := language + ".yaml"
		data, err := fs.ReadFile(files, file)
		if err != nil {
			return Text{}, fmt.Errorf("lab %s: %w", lab, err)
		}
		return Parse(lab, file, data)
	}
	wanted, err := read(language)
	wanted.Language = language
	if language == Source || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wanted, err
	}
	source, err := read(Source)
	if errors.Is(err, fs.ErrNotExist) && wanted.Title != "" {
		return wanted, nil // a lab that has no source text is whole in what it has
	}
	return localize(wanted, source), err
}

// localize fills what wanted does not have from the source.
func localize(wanted, source Text) Text {
	if wanted.Title == "" || wanted.Goal == "" || wanted.Why == "" {
		wanted.Title, wanted.Goal, wanted.Why, wanted.References, wanted.Foreign = source.Title, source.Goal, source.Why, source.References, Source
	}
	for i, step := range source.Steps {
		switch {
		case i >= len(wanted.Steps):
			step.Foreign = Source
			wanted.Steps = append(wanted.Steps, step)
		case wanted.Steps[i].Title == "" || wanted.Steps[i].Goal == "" || len(wanted.Steps[i].Hints) < len(step.Hints):
			step.Foreign = Source
			wanted.Steps[i] = step
		}
	}
	wanted.Checks, wanted.Hints = filled(wanted.Checks, source.Checks), filled(wanted.Hints, source.Hints)
	return wanted
}

// filled is wanted with what only source has.
func filled(wanted, source map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, source)
	maps.Copy(all, wanted)
	return all
}
