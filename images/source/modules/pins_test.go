package modules

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"

	"github.com/cgoa-labs/labctl/images/versions"
)

// TestPinsAgreeWithModules holds versions.yaml against the nested go.mod files, which are what is really built.
func TestPinsAgreeWithModules(t *testing.T) {
	pins, err := versions.Load()
	require.NoError(t, err)
	built := map[string]string{}
	files, err := filepath.Glob("../../modules/*/go.mod")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		parsed, err := modfile.Parse(file, data, nil)
		require.NoError(t, err)
		for _, req := range parsed.Require {
			built[req.Mod.Path] = req.Mod.Version
		}
	}
	for name, part := range pins.Modules.Parts {
		require.Equal(t, built[part.Module], part.Version, name)
	}
}

func TestPartsAreInOrder(t *testing.T) {
	pins, err := versions.Load()
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, part := range New("../../modules", "", pins, nil).Parts() {
		for _, need := range part.Needs {
			require.True(t, seen[need], "%s comes before %s, which it needs", part.Name, need)
		}
		seen[part.Name] = true
	}
}
