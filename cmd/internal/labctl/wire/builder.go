package wire

import (
	"context"
	"errors"
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
	lock             *release.Lock
	// locks says that a lock is set.
	locks bool
	// lockErr says why the lock that is set cannot be read.
	lockErr error
	// chosen is set by the first that needs it: a command chooses once.
	chosen source.Source
	say    func(line string)
}

func newBuilder(c config.Loaded, say func(string)) (factory.Builder, error) {
	pins, err := versions.Load()
	if err != nil {
		return nil, err
	}
	driver := driverOptions(c, say)
	if _, err := qemu.New(c.Home(), driver); err != nil {
		return nil, err
	}
	local := run.Local{}
	lock, lockErr := lockOf(c)
	return &builder{say: say, asked: images.SourceName(c.Image.Source), release: newRelease(c, pins, lock), lock: lock, locks: c.Image.Lock != "", lockErr: lockErr, modules: newModules(c, pins), options: build.Options{
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
			// A first boot may have to start over.
			client, err := ssh.DialLasting(ctx, ep, ssh.Options{})
			if err != nil {
				return nil, nil, err
			}
			return client, client.Close, nil
		},
	}}, nil
}

func newModules(c config.Loaded, pins versions.Versions) *modules.Source {
	return modules.New(c.Image.ModulesDir, c.Image.AptMirror, pins, run.Local{})
}

// lockOf is the lock that is set, nil for none.
func lockOf(c config.Loaded) (*release.Lock, error) {
	if c.Image.Lock == "" {
		return nil, nil
	}
	return release.ReadLock(c.Image.Lock)
}

func newRelease(c config.Loaded, pins versions.Versions, lock *release.Lock) *release.Source {
	registries, err := c.Image.Mirrors()
	if err != nil {
		panic(err) // settings are checked when they are loaded
	}
	return release.New(release.Options{
		Pins: pins, Lock: lock, Mirrors: release.Mirrors{Releases: c.Image.ReleaseMirror, Registries: registries}, Downloads: c.Home().Downloads(),
		Unpacker: newModules(c, pins).Unpacker(), Client: http.DefaultClient,
	})
}

// newUpstream is the release source without a lock: what upstream has is what is asked for.
func newUpstream(c config.Loaded) (factory.Upstream, error) {
	pins, err := versions.Load()
	if err != nil {
		return nil, err
	}
	return newRelease(c, pins, nil), nil
}

// with chooses the source and says which and why.
func (b *builder) with(ctx context.Context, o factory.Build) (build.Options, error) {
	options := b.options
	options.Name, options.Force, options.Sink = o.Name, o.Force, o.Sink
	if o.NoFreeze {
		options.Shape = build.Shape{}
	}
	if b.chosen == nil {
		asked := b.asked
		if b.locks {
			// Whoever names a lock wants what is in it, and nothing else.
			if asked == images.Modules {
				return options, &release.UnlockedError{What: "the modules source, which builds what a lock does not know"}
			}
			asked = images.Release
		}
		chosen, why, err := source.Choose(ctx, asked, b.release, b.modules)
		if err != nil {
			return options, err
		}
		if b.chosen = chosen; asked == images.Auto {
			b.say(fmt.Sprintf("image: source %s, because %s", chosen.Name(), why))
		}
	}
	options.Source = b.chosen
	if b.chosen == b.release {
		return b.locked(options)
	}
	return options, nil
}

// locked are the options of a build from releases: where there is a lock, Debian's packages come from where it says.
func (b *builder) locked(options build.Options) (build.Options, error) {
	switch {
	case b.lockErr != nil:
		return options, b.lockErr
	case b.lock == nil:
		return options, nil
	}
	if err := b.lock.Fits(options.Pins); err != nil {
		return options, err
	}
	if options.Mirror == "" {
		options.Mirror = b.lock.Debian.Mirror
	}
	if options.Mirror != b.lock.Debian.Mirror {
		return options, &release.UnlockedError{What: "the Debian mirror " + options.Mirror}
	}
	return options, nil
}

// Preflight implements factory.Builder.
func (b *builder) Preflight(ctx context.Context, o factory.Build) []check.Result {
	options, err := b.with(ctx, o)
	if err != nil {
		r := check.Result{ID: "source", Title: "image source", State: check.Failed, Got: err.Error()}
		if hinted := (interface{ Hint() string })(nil); errors.As(err, &hinted) {
			r.Hint = hinted.Hint()
		}
		return []check.Result{r}
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

// Current implements factory.Builder.
func (b *builder) Current(ctx context.Context, o factory.Build) (bool, error) {
	options, err := b.with(ctx, o)
	if err != nil {
		return false, err
	}
	_, current, err := build.Status(ctx, options)
	return current, err
}

// Cloud implements factory.Builder.
func (b *builder) Cloud(ctx context.Context, o factory.Build, dir string) ([]images.File, error) {
	options, err := b.with(ctx, o)
	if err != nil {
		return nil, err
	}
	return build.Cloud(ctx, options, dir)
}

// Outdated implements factory.Builder. It asks no network: an image is compared with what its own source would make now.
func (b *builder) Outdated(ctx context.Context, img images.Image) (string, error) {
	options := b.options
	options.Name, options.Source = img.Metadata.Name, b.modules
	if img.Metadata.Source == images.Release {
		var err error
		if options, err = b.locked(options); err != nil {
			return "", err
		}
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
