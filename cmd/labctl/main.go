// Command labctl gives each learner a lab VM.
package main

import (
	"context"
	"os"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/wire"
)

func main() { os.Exit(wire.Main(context.Background(), cli.OS(), os.Args[1:])) }
