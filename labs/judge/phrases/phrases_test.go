package phrases_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/judge/phrases"
	"github.com/cgoa-labs/labctl/labs/labtest"
	"github.com/cgoa-labs/labctl/labs/text"
)

// TestEveryPhraseInEveryLanguage: what all labs share must be there, and what only the shared file has must be said by some lab.
func TestEveryPhraseInEveryLanguage(t *testing.T) {
	shared := labtest.Phrases(t, labtest.SharedPhrases("../..")...)
	anywhere := labtest.Phrases(t, append(labtest.SharedPhrases("../.."), "../../catalog/*", "../../catalog/*/ground", "../../catalog/*/solution")...)
	for _, language := range text.Languages {
		words, err := phrases.In(language)
		require.NoError(t, err)
		if language == text.Native {
			require.Empty(t, words)
			continue
		}
		labtest.Translated(t, language, shared, words)
		for phrase := range words {
			require.NotEmpty(t, anywhere[phrase], "%s: words for %q, which nothing says", language, phrase)
		}
	}
}
