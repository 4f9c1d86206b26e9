// Command lab-ci is lab ci inside a guest.
package main

import (
	"context"
	"os"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labcmd"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/catalog/ci"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/proof"
	"github.com/cgoa-labs/labctl/provision/run"
)

func main() {
	places := ground.Guest()
	os.Exit(labcmd.Main(context.Background(), cli.OS(), os.Args[1:], labcmd.Program{
		ID: ci.ID, LockFile: places.Lock, Proof: proof.All,
		Make: func(language string) (labs.Lab, error) { return ci.Lab(places, run.Local{}, language) },
	}))
}
