package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.html")
	require.NoError(t, writePage(path, document{
		Figures: []figure{{"cold boot", 100, 1}, {"clone <b>", 4, 0.04}}, Idle: idle{PrivateMiB: 321, Cores: 0.25},
		Skipped: []string{"up of 8: too little memory"}, Versions: map[string]string{"argocd": "v3.5.2"},
	}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, want := range []string{"width: 100%", "width: 4%", "clone &lt;b&gt;", "321 MiB", "0.25 of a core", "up of 8: too little memory", "v3.5.2"} {
		require.Contains(t, string(text), want)
	}
}

func TestDirtyOf(t *testing.T) {
	const smaps = "7f00-7f10 rw-p 00000000 fe:00 12 /state/frozen/memory.raw\nRss: 900 kB\nPrivate_Dirty:       700 kB\nVmFlags: rd wr\n" +
		"7f10-7f20 rwxp 00000000 00:00 0\nPrivate_Dirty:  50 kB\n7f20-7f30 rw-p 00010000 fe:00 12 /state/frozen/memory.raw\nPrivate_Dirty: 24 kB\n"
	bytes, err := dirtyOf(strings.NewReader(smaps), "/memory.raw")
	require.NoError(t, err)
	require.EqualValues(t, 724<<10, bytes)
}

func TestLastWords(t *testing.T) {
	require.Equal(t, "too little memory: 9 MiB needed", lastWords("read image ...\nlabctl: too little memory: 9 MiB needed\n  hint: wait\n"))
}
