// Command lab-rev is lab rev inside a guest.
package main

import (
	"context"
	"os"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labcmd"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/catalog/rev"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/proof"
	"github.com/cgoa-labs/labctl/provision/run"
)

func main() {
	places := ground.Guest()
	os.Exit(labcmd.Main(context.Background(), cli.OS(), os.Args[1:], labcmd.Program{
		ID: rev.ID, LockFile: places.Lock, Proof: proof.All,
		Make: func(language string) (labs.Lab, error) { return rev.Lab(places, run.Local{}, language) },
	}))
}
