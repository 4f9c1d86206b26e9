package proof_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/proof"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/labtest"
)

func TestTheProofIsComplete(t *testing.T) {
	labtest.Proof{Cases: proof.Cases(), Undos: proof.Undos()}.Complete(t, 8)
}

func TestTheSampleIsInTheCatalogue(t *testing.T) {
	states := map[check.State]int{}
	for _, c := range proof.Sample() {
		states[c.Want]++
	}
	require.Equal(t, map[check.State]int{check.Failed: 5, check.Passed: 1}, states)
}
