// Package phrases has what the checks of all labs say in other languages than English, one file a language.
package phrases

import (
	"embed"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/labs/text"
)

//go:embed ja.yaml ko.yaml zh.yaml
var files embed.FS

// In are the phrases in a language by what they are in English; none for English itself.
func In(language string) (map[string]string, error) {
	if language == text.Native {
		return nil, nil
	}
	file := language + ".yaml"
	data, err := files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("phrases of all labs: %w", err)
	}
	var phrases map[string]string
	if err := yaml.UnmarshalStrict(data, &phrases); err != nil {
		return nil, fmt.Errorf("phrases of all labs, %s: %w", file, err)
	}
	return phrases, nil
}
