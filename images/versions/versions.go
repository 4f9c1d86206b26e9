// Package versions holds the one file of pinned versions.
package versions

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed versions.yaml
var file []byte

// Part is one pinned part.
type Part struct {
	Version string `json:"version"`
	// Module is the Go module that the part is built from, empty where it is not.
	Module string `json:"module,omitempty"`
}

// Versions is the content of versions.yaml.
type Versions struct {
	Modules struct {
		// Go is the toolchain that builds the parts.
		Go          string          `json:"go"`
		DebianSuite string          `json:"debianSuite"`
		Parts       map[string]Part `json:"parts"`
	} `json:"modules"`
	Release struct {
		Parts map[string]Part `json:"parts"`
	} `json:"release"`
	Images struct {
		Pause   string   `json:"pause"`
		CoreDNS string   `json:"coredns"`
		Gitd    string   `json:"gitd"`
		Lab     []string `json:"lab"`
	} `json:"images"`
}

// Load decodes the file, strictly.
func Load() (Versions, error) {
	var v Versions
	if err := yaml.UnmarshalStrict(file, &v); err != nil {
		return v, fmt.Errorf("images/versions/versions.yaml: %w", err)
	}
	return v, nil
}
