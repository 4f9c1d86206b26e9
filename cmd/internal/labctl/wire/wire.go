// Package wire chooses labctl's real parts: QEMU, SSH, the image store and the image build.
package wire

import (
	"context"

	"github.com/cgoa-labs/labctl/bootstrap/guest"
	"github.com/cgoa-labs/labctl/bootstrap/k3s"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/config"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
	"github.com/cgoa-labs/labctl/provision/stack"
	"github.com/cgoa-labs/labctl/provision/stack/command"
)

// Main is the program labctl.
func Main(ctx context.Context, s cli.Streams, args []string) int {
	return labctl.Run(ctx, s, args, Parts())
}

// Parts are the real parts.
func Parts() factory.Parts {
	return factory.Parts{
		Driver: func(c config.Loaded, say func(string)) (provision.Driver, error) {
			return qemu.New(c.Home(), driverOptions(c, say))
		},
		Images:   func(c config.Config) factory.Images { return store.New(c.Home()) },
		Builder:  newBuilder,
		Upstream: newUpstream,
		Dial: func(ctx context.Context, ep provision.Endpoint) (factory.Guest, error) {
			return ssh.Dial(ctx, ep, ssh.Options{})
		},
		Fleet:       newFleet,
		OpenSSH:     ssh.OpenSSH,
		GuestChecks: guestChecks,
		Isolate:     k3s.Isolate, HalfIsolated: k3s.HalfIsolated,
	}
}

func newFleet(ctx context.Context, c config.Loaded, parallel int, say, note, log func(string)) (factory.Fleet, error) {
	pins, err := versions.Load()
	if err != nil {
		return nil, err
	}
	finder := command.Finder{Modules: c.Image.ModulesDir, Cache: cache.Cache{Dir: c.Home().Stages()}, Go: pins.Modules.Go, Runner: run.Local{}}
	path, err := finder.Find(ctx, say)
	if err != nil {
		return nil, err
	}
	return &stack.Stack{Home: c.Home(), CLI: path, Parallel: parallel, Log: log, Note: note}, nil
}

func driverOptions(c config.Loaded, say func(string)) qemu.Options {
	o := qemu.Options{Accelerator: c.Accelerator, Log: say}
	if c.Given("timeouts.boot") {
		// Else the driver's own limit, which is shorter where KVM works.
		o.BootTimeout = c.Timeouts.Boot
	}
	return o
}

func guestChecks(runner run.Runner, deep bool) []check.Check {
	pins, err := versions.Load()
	if err != nil {
		// The file is part of this program; its own test reads it.
		panic(err)
	}
	return guest.Checks(runner, guest.Options{Images: pins.Images.Lab, Deep: deep})
}
