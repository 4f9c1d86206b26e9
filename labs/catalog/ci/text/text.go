// Package text is what lab ci says to people, one file a language.
package text

import (
	"embed"

	"github.com/cgoa-labs/labctl/labs/text"
)

//go:embed en.yaml ja.yaml ko.yaml zh.yaml
var files embed.FS

// English is the lab's text in English.
func English() (text.Text, error) { return In("en") }

// In is the lab's text in a language; see text.Open.
func In(language string) (text.Text, error) { return text.Open("ci", files, language) }
