// Package text is what lab ci says to people, one file a language.
package text

import (
	_ "embed"

	"github.com/cgoa-labs/labctl/labs/text"
)

//go:embed en.yaml
var english []byte

// English is the lab's text in English.
func English() (text.Text, error) { return text.Parse("ci", "en.yaml", english) }
