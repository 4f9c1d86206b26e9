// Command labctl-agent runs in the guest and takes on the identity that labctl sends.
package main

import (
	"os"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
)

func main() { os.Exit(identity.Main()) }
