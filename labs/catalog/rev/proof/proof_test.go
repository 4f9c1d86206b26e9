package proof_test

import (
	"testing"

	"github.com/cgoa-labs/labctl/labs/catalog/rev/proof"
	"github.com/cgoa-labs/labctl/labs/labtest"
)

func TestProofIsComplete(t *testing.T) {
	labtest.Proof{Cases: proof.Cases(), Undos: proof.Undos()}.Complete(t, 8)
}
