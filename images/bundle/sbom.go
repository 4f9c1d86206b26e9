package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/debian"
)

type spdxPackage struct {
	ID       string `json:"SPDXID"`
	Name     string `json:"name"`
	Version  string `json:"versionInfo,omitempty"`
	Location string `json:"downloadLocation"`
	Comment  string `json:"comment,omitempty"`
	Licence  string `json:"licenseConcluded"`
	Declared string `json:"licenseDeclared"`
	Analyzed bool   `json:"filesAnalyzed"`
	Refs     []spdx `json:"externalRefs,omitempty"`
}

type spdx struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const unknown = "NOASSERTION"

// SBOM lists, as SPDX 2.3, the parts that an image was made from, and the Debian packages of its guest, which are read from its disk.
func SBOM(ctx context.Context, img images.Image, created time.Time) ([]byte, error) {
	m := img.Metadata
	packages, err := debian.OnDisk(ctx, img.Dir.Disk())
	if err != nil {
		return nil, err
	}
	doc := struct {
		Version   string         `json:"spdxVersion"`
		Licence   string         `json:"dataLicense"`
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Namespace string         `json:"documentNamespace"`
		Creation  map[string]any `json:"creationInfo"`
		Packages  []spdxPackage  `json:"packages"`
		Relations []relation     `json:"relationships"`
	}{
		Version: "SPDX-2.3", Licence: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "labctl golden image " + m.Name,
		Namespace: "urn:labctl:image:" + m.Digest,
		Creation:  map[string]any{"created": created.Format(time.RFC3339), "creators": []string{"Tool: labctl"}},
	}
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		p := spdxPackage{ID: "SPDXRef-part-" + identifier(name), Name: name, Version: m.Versions[name], Location: unknown, Licence: unknown, Declared: unknown}
		if other := m.StandIns[name]; other != "" {
			p.Comment = "stand-in: " + other
		}
		doc.Packages = append(doc.Packages, p)
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		doc.Packages = append(doc.Packages, spdxPackage{
			ID: "SPDXRef-deb-" + identifier(name), Name: name, Version: packages[name], Location: unknown, Licence: unknown, Declared: unknown,
			Refs: []spdx{{"PACKAGE-MANAGER", "purl", fmt.Sprintf("pkg:deb/debian/%s@%s", name, packages[name])}},
		})
	}
	for _, p := range doc.Packages {
		doc.Relations = append(doc.Relations, relation{doc.ID, "DESCRIBES", p.ID})
	}
	return json.MarshalIndent(doc, "", "  ")
}

var strange = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// identifier is a name in the letters that SPDX takes.
func identifier(name string) string { return strange.ReplaceAllString(name, "-") }
