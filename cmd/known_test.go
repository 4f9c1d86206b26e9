package cmd_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/author"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/images/versions"
)

// The list of labs must be that of their folders, each with its program.
func TestKnownLabs(t *testing.T) {
	entries, err := os.ReadDir("../labs/catalog")
	require.NoError(t, err)
	var ids, known []string
	for _, e := range entries {
		if e.IsDir() {
			ids = append(ids, e.Name())
			require.FileExists(t, "lab-"+e.Name()+"/main.go")
		}
	}
	for _, lab := range labrun.All() {
		known = append(known, lab.ID)
		require.NotEmpty(t, lab.Title)
		require.NotZero(t, lab.Steps)
	}
	require.Equal(t, ids, known)
	have, err := os.ReadFile("../labs/catalog/catalog.go")
	require.NoError(t, err)
	require.Equal(t, string(author.Catalog(ids)), string(have))
}

// What labs name in their texts, checks and solutions must be among the images that every golden image has.
func TestEveryContainerImageThatALabNamesIsPinned(t *testing.T) {
	pins, err := versions.Load()
	require.NoError(t, err)
	named := regexp.MustCompile(`\bimage: *["']?([a-z0-9./-]+:[a-z0-9][a-z0-9.-]*[a-z0-9])|\b(nginx:[0-9][a-z0-9.-]*[a-z0-9])`)
	seen := 0
	require.NoError(t, filepath.WalkDir("../labs/catalog", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == "proof": // wrong answers name what they like
			return filepath.SkipDir
		case d.IsDir() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		for _, match := range named.FindAllStringSubmatch(string(data), -1) {
			seen++
			require.Contains(t, pins.Images.Lab, cmp.Or(match[1], match[2]), path)
		}
		return err
	}))
	require.NotZero(t, seen)
}
