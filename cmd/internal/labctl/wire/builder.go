package wire

import (
	"context"
	"fmt"
	"net/http"

	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/config"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/build"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/source/modules"
	"github.com/cgoa-labs/labctl/images/source/release"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/ssh"
)

// builder is the image build with labctl's settings.
type builder struct {
	options          build.Options
	asked            images.SourceName
	release, modules source.Source
	// chosen is set by the first that needs it: a command chooses once.
	chosen source.Source
	say    func(line string)
}

func newBuilder(c config.Loaded, say func(string)) (factory.Builder, error) {
	pins, err := versions.Load()
	if err != nil {
		return nil, err
	}
	local := run.Local{}
	driver := driverOptions(c, say)
	if _, err := qemu.New(c.Home(), driver); err != nil {
		return nil, err
	}
	return &builder{say: say, asked: images.SourceName(c.Image.Source), release: release.New(release.Upstream, pins, http.DefaultClient), modules: modules.New(c.Image.ModulesDir, c.Image.AptMirror, pins, local), options: build.Options{
		Home: c.Home(), Pins: pins,
		Shape:    build.Shape{CPUs: c.Instance.CPUs, MemoryMiB: c.Instance.Memory.MiB(), DiskGiB: c.Instance.Disk.GiB()},
		GuestDir: c.GuestDir, Mirror: c.Image.AptMirror, Runner: local,
		NewDriver: func(home layout.Home) provision.Driver {
			d, err := qemu.New(home, driver)
			if err != nil {
				panic(err) // the same options were good above
			}
			return d
		},
		Connect: func(ctx context.Context, ep provision.Endpoint) (run.Runner, func() error, error) {
			client, err := ssh.Dial(ctx, ep, ssh.Options{})
			if err != nil {
				return nil, nil, err
			}
			return client, client.Close, nil
		},
	}}, nil
}

// with chooses the source and says which and why.
func (b *builder) with(ctx context.Context, o factory.Build) (build.Options, error) {
	options := b.options
	options.Name, options.Force, options.Sink = o.Name, o.Force, o.Sink
	if b.chosen == nil {
		chosen, why, err := source.Choose(ctx, b.asked, b.release, b.modules)
		if err != nil {
			return options, err
		}
		if b.chosen = chosen; b.asked == images.Auto {
			b.say(fmt.Sprintf("image: source %s, because %s", chosen.Name(), why))
		}
	}
	options.Source = b.chosen
	return options, nil
}

// Preflight implements factory.Builder.
func (b *builder) Preflight(ctx context.Context, o factory.Build) []check.Result {
	options, err := b.with(ctx, o)
	if err != nil {
		return []check.Result{{ID: "source", Title: "image source", State: check.Failed, Got: err.Error()}}
	}
	return build.Preflight(ctx, options)
}

// Build implements factory.Builder.
func (b *builder) Build(ctx context.Context, o factory.Build) (images.Image, error) {
	options, err := b.with(ctx, o)
	if err != nil {
		return images.Image{}, err
	}
	return build.Build(ctx, options)
}

// Outdated implements factory.Builder. It asks no network: an image is compared with what its own source would make now.
func (b *builder) Outdated(ctx context.Context, img images.Image) (string, error) {
	options := b.options
	options.Name, options.Source = img.Metadata.Name, b.modules
	if img.Metadata.Source == images.Release {
		options.Source = b.release
	}
	_, current, err := build.Status(ctx, options)
	if err != nil || current {
		return "", err
	}
	return "what it is made from has changed", nil
}

// Leftovers implements factory.Builder.
func (b *builder) Leftovers(o factory.Build) ([]provision.Leftover, error) {
	options := b.options
	options.Name = o.Name
	return build.Leftovers(options)
}

// Sweep implements factory.Builder.
func (b *builder) Sweep(ctx context.Context, o factory.Build, leftovers []provision.Leftover) error {
	options := b.options
	options.Name = o.Name
	return build.Sweep(ctx, options, leftovers)
}
