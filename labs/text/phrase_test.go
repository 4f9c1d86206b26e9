package text_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/text"
)

func TestPhrase(t *testing.T) {
	found := text.Say("%s in %s", text.Say("a file %s", "x.yaml"), text.Names(nil))
	require.Equal(t, "a file x.yaml in none", found.String())
	ja := map[string]string{"%s in %s": "%[2]sにある%[1]s", "a file %s": "ファイル%s"}
	require.Equal(t, "noneにあるファイルx.yaml", found.In(ja), "what has no translation stays English")
	require.Equal(t, "100% %s", text.Verbatim("100% %s").In(ja), "what a program said is no format")
	require.Equal(t, "a, ファイルb", text.List(text.Verbatim("a"), text.Say("a file %s", "b")).In(ja))
	require.Equal(t, "", text.List().String())
	require.True(t, text.Phrase{}.Empty())
	require.Equal(t, "no commit", text.Commit("").String())
	require.Equal(t, "1234567", text.Commit("1234567890").String())
	require.Equal(t, "a, b", text.Names([]string{"a", "b"}).String())
}
