// Package build makes a golden image: a source's parts and a guest's operating system become a disk, which is booted once so
// that the platform comes up, and is then put away read-only.
package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/debian"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Options say what to build and with what.
type Options struct {
	Home layout.Home
	// Name is the image's name.
	Name   string
	Source source.Source
	Pins   versions.Versions
	// GuestDir holds the guest's own programs, labctl-agent and labctl-probe, built for the guest.
	GuestDir string
	// Cloud makes a guest for other hypervisors; see Cloud. It is no image for this machine's instances.
	Cloud bool
	// Mirror is the Debian mirror, empty for the tools' default.
	Mirror string
	// Force builds again what the cache already has: the disk and the bake, not the parts.
	Force bool
	Sink  stage.Sink
	// Runner runs programs on this machine.
	Runner run.Runner
	// NewDriver makes a driver for the home in which the image is booted for the first time.
	NewDriver func(home layout.Home) provision.Driver
	// Connect returns a runner inside a running instance, and how to close it.
	Connect func(ctx context.Context, endpoint provision.Endpoint) (run.Runner, func() error, error)
	// Shape is that of the frozen guest beside the image; the zero value makes none.
	Shape Shape
	// Warm does in a guest, before it is frozen, what clones would all do first; nil for nothing. What it brings need not be the newest:
	// the frozen guest is not made anew for it.
	Warm func(ctx context.Context, guest run.Runner, progress func(string)) error
	// ReadyTimeout bounds the wait for the platform in the first boot.
	ReadyTimeout time.Duration
}

// state is what stages hand on.
type state struct {
	Options
	cache   cache.Cache
	dirs    map[string]string    // a part's folder
	keys    map[string]cache.Key // a part's key
	recipe  cache.Key
	seconds map[string]float64
	image   images.Image
	// again makes the frozen guest anew, because the one that is there cannot be used or is old.
	again bool
}

// Build makes the image, or finds that the one that is there was made from the same recipe. Two builds at once wait for each other.
func Build(ctx context.Context, opts Options) (images.Image, error) {
	if err := layout.CheckName("image", opts.Name); err != nil {
		return images.Image{}, err
	}
	if err := opts.begin(); err != nil {
		return images.Image{}, err
	}
	lock := opts.imageLock()
	if ok, err := lock.TryLock(); err != nil {
		return images.Image{}, err
	} else if !ok {
		err := stage.Run(ctx, &opts, opts.Sink, stage.Stage[Options]{Name: "wait", Run: func(ctx context.Context, _ *Options, progress func(string)) error {
			progress("another labctl builds this image")
			_, err := lock.TryLockContext(ctx, 250*time.Millisecond)
			return err
		}})
		if err != nil {
			return images.Image{}, fmt.Errorf("wait for the other build of image %s: %w", opts.Name, err)
		}
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process

	s, err := newState(opts)
	if err != nil {
		return images.Image{}, err
	}
	if s.isThere(ctx) {
		opts.Sink.Send(stage.Event{Kind: stage.Cached, Stage: "image", Detail: "made from the same recipe already"})
	} else if err := stage.Run(ctx, s, opts.Sink, s.imageStages()...); err != nil {
		return images.Image{}, err
	}
	stages, err := s.freezeStages(ctx)
	if err != nil {
		return images.Image{}, err
	}
	return s.image, stage.Run(ctx, s, opts.Sink, stages...)
}

// begin makes the folders that every build works in.
func (o Options) begin() error {
	for _, dir := range []string{o.Home.State, o.Home.Images(), o.Home.Locks(), o.Home.Cache, o.Home.Stages()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// isThere finds the image that was made from the same recipe, unless it is to be made anew.
func (s *state) isThere(ctx context.Context) bool {
	if s.Force {
		return false
	}
	images := store.New(s.Home)
	img, err := images.Get(ctx, s.Name)
	if err != nil || img.Metadata.Recipe != string(s.recipe) || images.Check(img) != nil {
		return false
	}
	s.image = img
	return true
}

func (s *state) imageStages() []stage.Stage[state] {
	var stages []stage.Stage[state]
	for _, part := range s.Source.Parts() {
		stages = append(stages, partStage(part))
	}
	return append(stages, cachedStage(stageGuestOS, buildGuestOS), cachedStage(stageDisk, buildDisk), cachedStage(stageBake, bake), stage.Stage[state]{Name: "publish", Run: publish})
}

// Status says whether the named image is there and made from today's recipe.
func Status(ctx context.Context, opts Options) (img images.Image, current bool, err error) {
	s, err := newState(opts)
	if err != nil {
		return images.Image{}, false, err
	}
	img, err = store.New(opts.Home).Get(ctx, opts.Name)
	return img, err == nil && img.Metadata.Recipe == string(s.recipe), err
}

// newState is a build that has done nothing yet but to compute its stages' keys.
func newState(opts Options) (*state, error) {
	s := &state{Options: opts, cache: opts.stages(), dirs: map[string]string{}, keys: map[string]cache.Key{}, seconds: map[string]float64{}}
	return s, s.computeKeys()
}

// computeKeys digests the inputs of every stage, so that what is current is known before any work.
func (s *state) computeKeys() error {
	for _, part := range s.Source.Parts() {
		key, err := part.Key(s.keys)
		if err != nil {
			return fmt.Errorf("inputs of %s: %w", part.Name, err)
		}
		s.keys[part.Name] = key
	}
	for _, own := range []struct {
		name string
		key  func(*state) (cache.Key, error)
	}{{stageGuestOS, guestOSKey}, {stageDisk, diskKey}, {stageBake, bakeKey}} {
		key, err := own.key(s)
		if err != nil {
			return fmt.Errorf("inputs of %s: %w", own.name, err)
		}
		s.keys[own.name] = key
	}
	s.recipe = s.keys[stageBake]
	return nil
}

func partStage(part source.Part) stage.Stage[state] {
	return cachedStage(part.Name, func(ctx context.Context, s *state, out string, progress func(string)) error {
		needs := map[string]string{}
		for _, need := range part.Needs {
			needs[need] = s.dirs[need]
		}
		return part.Build(ctx, needs, out, progress)
	})
}

// cachedStage runs build into a cache entry unless it is there.
func cachedStage(name string, build func(ctx context.Context, s *state, out string, progress func(string)) error) stage.Stage[state] {
	return stage.Stage[state]{Name: name, Run: func(ctx context.Context, s *state, progress func(string)) error {
		if s.Force && slices.Contains([]string{stageDisk, stageBake, stageFreeze}, name) || s.again && name == stageFreeze {
			if dir, ok := s.cache.Lookup(name, s.keys[name]); ok {
				if err := cache.RemoveAll(dir); err != nil {
					return err
				}
			}
		}
		start := time.Now()
		dir, fresh, err := s.cache.Get(ctx, name, s.keys[name], func() { progress("another build is at it; waiting") }, func(ctx context.Context, out string) error {
			if err := build(ctx, s, out, progress); err != nil {
				return err
			}
			s.seconds[name] = time.Since(start).Seconds()
			return os.WriteFile(filepath.Join(out, secondsFile), fmt.Appendf(nil, "%.1f\n", s.seconds[name]), 0o600)
		})
		if err != nil {
			return err
		}
		s.dirs[name] = dir
		if !fresh {
			if data, err := os.ReadFile(filepath.Join(dir, secondsFile)); err == nil {
				var seconds float64
				if _, err := fmt.Sscan(string(data), &seconds); err == nil {
					s.seconds[name] = seconds
				}
			}
			return stage.ErrCached
		}
		return nil
	}}
}

// secondsFile in a result's folder remembers how long it took to make.
const secondsFile = "seconds"

// publish moves the baked files into the image's folder and seals them. The image that was there stays whole until the last
// moment; instances keep their own copy of nothing, so callers do not build an image that an instance stands on.
func publish(ctx context.Context, s *state, progress func(string)) (err error) {
	dir := s.Home.Image(s.Name)
	tmp := layout.ImageDir(s.Home.NewImage(s.Name))
	if err := os.RemoveAll(string(tmp)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(string(tmp))) }()
	if err := os.MkdirAll(string(tmp), 0o700); err != nil {
		return err
	}
	var names []string
	for _, to := range []string{tmp.Disk(), tmp.Kernel(), tmp.Initrd(), tmp.Probe()} {
		name := filepath.Base(to)
		progress(name)
		if _, err := s.Runner.Run(ctx, run.Cmd{Argv: []string{"cp", "--sparse=always", "--reflink=auto", filepath.Join(s.dirs[stageBake], name), to}}); err != nil {
			return err
		}
		names = append(names, name)
	}
	standIns := s.Source.StandIns()
	containers, err := container.Digests(filepath.Join(s.dirs[source.Containers], source.Archive))
	if err != nil {
		return err
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return err
	}
	meta := images.Metadata{
		Name: s.Name, Created: time.Now().UTC().Truncate(time.Second), Source: s.Source.Name(), Recipe: string(s.recipe), Versions: versions, StandIns: standIns, Containers: containers,
		KernelArgs: kernelArgs, MinMemoryMiB: minMemoryMiB, MinDiskGiB: minDiskGiB, BuildSeconds: s.seconds,
	}
	if err := store.Seal(ctx, tmp, meta, names, func(file string) { progress("digest of " + file) }); err != nil {
		return err
	}
	old := s.Home.OldImage(s.Name)
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(string(dir), old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(string(tmp), string(dir)); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	img, err := store.New(s.Home).Get(ctx, s.Name)
	s.image = img
	return err
}

// versions are those of every part, as pinned or else as found in what was made.
func (s *state) versions(ctx context.Context) (map[string]string, error) {
	all := s.Source.Versions()
	inside, err := s.Source.Inside(s.dirs)
	if err != nil {
		return nil, err
	}
	packages, err := debian.OnDisk(ctx, layout.ImageDir(s.dirs[stageBake]).Disk())
	if err != nil {
		return nil, err
	}
	inside["linux"] = packages["linux-image-cloud-amd64"]
	if s.standIn() {
		inside["runc"] = packages["runc"] // k3s brings its own
	}
	for name, version := range inside {
		if version != "" {
			all[name] = version
		}
	}
	return all, nil
}

// containerImages are the names that the guest must hold.
func (s *state) containerImages() bootstrap.Images {
	return bootstrap.Images{Pause: s.Pins.Images.Pause, CoreDNS: s.Pins.Images.CoreDNS, Gitd: s.Pins.Images.Gitd, Lab: s.Pins.Images.Lab}
}
