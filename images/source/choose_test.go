package source

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
)

type named struct {
	Source
	name    images.SourceName
	results []check.Result
}

func (n named) Name() images.SourceName                  { return n.name }
func (n named) Preflight(context.Context) []check.Result { return n.results }

func TestChoose(t *testing.T) {
	modules := named{name: images.Modules}
	up := named{name: images.Release, results: []check.Result{{State: check.Passed}}}
	down := named{name: images.Release, results: []check.Result{{State: check.Passed}, {State: check.Failed, Got: "no route"}}}
	for _, c := range []struct {
		asked   images.SourceName
		release named
		want    images.SourceName
		why     string
	}{
		{images.Auto, up, images.Release, "upstream answers"},
		{images.Auto, down, images.Modules, "no route"},
		{images.Release, down, images.Release, "as asked"},
		{images.Modules, up, images.Modules, "as asked"},
	} {
		got, why, err := Choose(t.Context(), c.asked, c.release, modules)
		require.NoError(t, err)
		require.Equal(t, c.want, got.Name())
		require.Equal(t, c.why, why)
	}
	_, _, err := Choose(t.Context(), "mirror", up, modules)
	var unknown *UnknownError
	require.ErrorAs(t, err, &unknown)
}
