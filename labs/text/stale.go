package text

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// TranslatedFile, beside the texts, says for each language which words of the source it was translated from: the digest of each block.
const TranslatedFile = "translated.yaml"

// Blocks are the digests of a text's blocks: what is translated together.
func (t Text) Blocks() map[string]string {
	blocks := map[string]string{
		"lab":    digest(t.Title, t.Goal, t.Why, t.References),
		"checks": digest(t.Checks),
		"hints":  digest(t.Hints),
	}
	for i, step := range t.Steps {
		blocks[fmt.Sprintf("step %d", i+1)] = digest(step.Title, step.Goal, step.Note, step.Hints)
	}
	return blocks
}

func digest(words ...any) string {
	data, err := json.Marshal(words) // maps in the order of their keys
	if err != nil {
		panic(err) // strings and lists of them
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// Translated is the file TranslatedFile for texts that are all translated from this source.
func Translated(source Text) ([]byte, error) {
	all := map[string]map[string]string{}
	for _, language := range Languages {
		if language != Source {
			all[language] = source.Blocks()
		}
	}
	return yaml.Marshal(all)
}

// Stale names the blocks, such as "ja: step 3", that were translated from other words than source has now. file is a TranslatedFile.
func Stale(source Text, file []byte) ([]string, error) {
	var from map[string]map[string]string
	if err := yaml.UnmarshalStrict(file, &from); err != nil {
		return nil, fmt.Errorf("%s: %w", TranslatedFile, err)
	}
	var stale []string
	blocks := source.Blocks()
	for _, language := range Languages {
		if language == Source {
			continue
		}
		for _, block := range slices.Sorted(maps.Keys(blocks)) {
			if from[language][block] != blocks[block] {
				stale = append(stale, language+": "+block)
			}
		}
	}
	return stale, nil
}
