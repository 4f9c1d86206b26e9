// Command labctl-testbed is the first process of a testbed. It says on standard output, a line each, what goes on, and `ready` when labs can be
// proved; what its processes print goes to standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/cgoa-labs/labctl/labs/testbed"
	outside "github.com/cgoa-labs/labctl/provision/testbed"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "labctl-testbed is started by `labctl lab test --testbed`; it takes an image's disk and an empty folder")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o := testbed.Options{Disk: os.Args[1], Dir: os.Args[2], Output: os.Stderr, Say: func(line string) { fmt.Println(line) }}
	if err := testbed.Run(ctx, o, func() { fmt.Println(outside.Ready) }); err != nil && ctx.Err() == nil {
		fmt.Println(outside.Failed + err.Error())
		os.Exit(1)
	}
}
