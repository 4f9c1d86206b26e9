package cmd_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/author"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
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
