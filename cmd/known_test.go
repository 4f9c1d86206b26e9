package cmd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	citext "github.com/cgoa-labs/labctl/labs/catalog/ci/text"
	revtext "github.com/cgoa-labs/labctl/labs/catalog/rev/text"
)

// What labctl knows of the labs without asking a guest must be what they say of themselves.
func TestKnownLabs(t *testing.T) {
	ci, err := citext.English()
	require.NoError(t, err)
	rev, err := revtext.English()
	require.NoError(t, err)
	require.Equal(t, []labrun.Known{
		{ID: "ci", Title: ci.Title, Steps: len(ci.Steps)},
		{ID: "rev", Title: rev.Title, Steps: len(rev.Steps)},
	}, labrun.All())
}
