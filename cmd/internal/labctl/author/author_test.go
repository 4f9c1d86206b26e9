package author

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/proof"
)

// Nothing but a proof that came to its end, without a wrong verdict, is called good.
func TestVerdict(t *testing.T) {
	wrong := &proof.Table{Misjudged: []proof.Misjudgement{{Step: 1}}}
	for want, tc := range map[string]tested{
		"judges as it must":                          {Tests: true, Table: &proof.Table{}},
		"2 verdicts are wrong":                       {Skipped: true, Testbed: wrong, Table: wrong},
		"its tests passed":                           {Tests: true},
		"its tests failed":                           {Table: &proof.Table{}},
		"1 verdicts are wrong":                       {Tests: true, Table: wrong},
		"not proved to the end: stopped by Ctrl-C":   {Tests: true, Table: &proof.Table{}, Error: "stopped by Ctrl-C"},
		"not proved to the end: the guest went away": {Tests: true, Error: "the guest went away"},
	} {
		require.Equal(t, want, tc.verdict())
		require.Equal(t, want == "judges as it must" || want == "its tests passed", tc.good(), want)
	}
}
