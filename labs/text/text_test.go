package text_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/text"
)

const korean = `title: 제목
goal: 목표
why: 이유
references: [참고]
steps:
  - {title: 하나, goal: 첫째, note: 메모, hints: [가, 나]}
  - {title: 둘, goal: 둘째, note: 메모, hints: [다, 라]}
  - {title: 셋, goal: 셋째, note: 메모, hints: [마, 바]}
checks: {a: 가, b: 나}
hints: {h: 하}
`

func TestStale(t *testing.T) {
	source := text.Text{Title: "a", Steps: []text.Step{{Title: "one"}, {Title: "two"}}, Hints: map[string]string{"k": "v"}}
	file, err := text.Translated(source)
	require.NoError(t, err)
	stale, err := text.Stale(source, file)
	require.NoError(t, err)
	require.Empty(t, stale)
	source.Steps[1].Note = "new"
	source.Hints["k"] = "w"
	stale, err = text.Stale(source, file)
	require.NoError(t, err)
	require.Equal(t, []string{"en: hints", "en: step 2", "ja: hints", "ja: step 2", "zh: hints", "zh: step 2"}, stale)
	_, err = text.Stale(source, []byte("en: 1"))
	require.Error(t, err)
}

func TestOpen(t *testing.T) {
	files := fstest.MapFS{
		"ko.yaml": {Data: []byte(korean)},
		"ja.yaml": {Data: []byte("title: 題\ngoal: 目標\nwhy: 理由\nsteps:\n  - {title: 一, goal: 一番, hints: [あ, い]}\n  - {title: 二, goal: 二番, hints: [う]}\nchecks: {a: あ}\n")},
		"zh.yaml": {Data: []byte("title: [\n")},
	}
	ko, err := text.Open("x", files, "ko")
	require.NoError(t, err)
	require.Empty(t, ko.Foreign)

	ja, err := text.Open("x", files, "ja")
	require.NoError(t, err)
	require.Equal(t, "題", ja.Title)
	require.Empty(t, ja.Foreign)
	require.Equal(t, "一", ja.Steps[0].Title)
	require.Empty(t, ja.Steps[0].Foreign)
	require.Equal(t, "둘", ja.Steps[1].Title, "a step is in one language, or in another")
	require.Equal(t, "ko", ja.Steps[1].Foreign)
	require.Equal(t, "ko", ja.Steps[2].Foreign)
	require.Equal(t, map[string]string{"a": "あ", "b": "나"}, ja.Checks)

	en, err := text.Open("x", files, "en")
	require.NoError(t, err)
	require.Equal(t, "ko", en.Foreign)
	require.Len(t, en.Steps, 3)

	_, err = text.Open("x", files, "zh")
	require.ErrorContains(t, err, "zh.yaml")
	delete(files, "ko.yaml")
	ja, err = text.Open("x", files, "ja")
	require.NoError(t, err)
	require.Len(t, ja.Steps, 2)
	_, err = text.Open("x", files, "en")
	require.Error(t, err)
}
