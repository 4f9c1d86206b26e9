package image

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/images"
)

// Parts are where an image's parts come from, and their versions.
type Parts struct {
	Name     string            `json:"name"`
	Digest   string            `json:"digest"`
	Source   string            `json:"source"`
	Versions map[string]string `json:"versions"`
	StandIns map[string]string `json:"standIns,omitempty"`
}

// PartsOf are those of an image.
func PartsOf(img images.Image) Parts {
	m := img.Metadata
	return Parts{m.Name, m.Digest, string(m.Source), m.Versions, m.StandIns}
}

// Print shows every part with its version, and what stands in for it.
func (p Parts) Print(u *ui.UI) {
	u.Print("image %s, from %s:", p.Name, p.Source)
	table := ui.Table{Indent: "  "}
	for _, name := range slices.Sorted(maps.Keys(p.Versions)) {
		standIn := ""
		if other := p.StandIns[name]; other != "" {
			standIn = fmt.Sprintf("(stand-in: %s)", other)
		}
		table.Row(name, p.Versions[name], standIn)
	}
	for _, name := range slices.Sorted(maps.Keys(p.StandIns)) {
		if _, told := p.Versions[name]; !told {
			table.Row(name, "", fmt.Sprintf("(stand-in: %s)", p.StandIns[name]))
		}
	}
	table.Write(u.Out)
}
