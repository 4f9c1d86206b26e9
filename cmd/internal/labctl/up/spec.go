package up

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// shape is the shape that the settings give an instance.
func shape(f *factory.Factory, name string, cold bool) provision.Spec {
	c := f.Settings()
	return provision.Spec{
		Name: name, Image: c.Home().Image(c.Image.Name),
		CPUs: c.Instance.CPUs, MemoryMiB: c.Instance.Memory.MiB(), DiskGiB: c.Instance.Disk.GiB(), SSHPort: c.Instance.Port,
		Cold: cold, Isolate: c.Instance.Isolate,
	}
}

// newSpec is the shape that the settings give an instance, cloned from an image that is built first where it is missing.
// The host is checked for it first.
func newSpec(ctx context.Context, f *factory.Factory, name string, cold bool, progress *ui.Progress) (provision.Spec, error) {
	c := f.Settings()
	spec := shape(f, name, cold)
	driver, err := f.Driver()
	if err != nil {
		return spec, err
	}
	img, err := f.Images().Get(ctx, c.Image.Name)
	var missing *images.NotFoundError
	switch {
	case errors.As(err, &missing):
		// It will be built.
	case err != nil:
		return spec, err
	default:
		spec.ImageDigest = img.Metadata.Digest
		if err := bigEnough(spec, img.Metadata); err != nil {
			return spec, err
		}
	}
	// Also before an image is built: an hour's work must not end with what could be known at its start.
	results := driver.Preflight(ctx, spec)
	if missing != nil {
		results = slices.DeleteFunc(results, func(r check.Result) bool { return r.ID == "image" })
	}
	if err := factory.Preflight("make instance "+name, results); err != nil {
		return spec, err
	}
	if img, err = image.Ensure(ctx, f, progress); err != nil {
		return spec, err
	}
	spec.Image, spec.ImageDigest = img.Dir, img.Metadata.Digest
	if err := bigEnough(spec, img.Metadata); err != nil {
		return spec, err
	}
	// A clone of a damaged image would fail in some strange way, much later.
	return spec, image.Prove(ctx, f, img, false, progress)
}

// reshaped is an existing instance's shape with what the given flags say in its place.
func reshaped(f *factory.Factory, spec provision.Spec, given []string) provision.Spec {
	c := f.Settings()
	for _, flag := range given {
		switch flag {
		case "cpus":
			spec.CPUs = c.Instance.CPUs
		case "memory":
			spec.MemoryMiB = c.Instance.Memory.MiB()
		case "disk":
			spec.DiskGiB = c.Instance.Disk.GiB()
		case "port":
			spec.SSHPort = c.Instance.Port
		case "isolate":
			spec.Isolate = c.Instance.Isolate
		case "image":
			spec.Image = c.Home().Image(c.Image.Name)
		}
	}
	return spec
}

// bigEnough refuses a guest that is too small for the image.
func bigEnough(spec provision.Spec, m images.Metadata) error {
	for _, least := range []struct {
		what, unit string
		have, need int
	}{{"memory", "MiB", spec.MemoryMiB, m.MinMemoryMiB}, {"disk", "GiB", spec.DiskGiB, m.MinDiskGiB}} {
		if least.have < least.need {
			return &cli.UsageError{
				Msg: fmt.Sprintf("image %s needs at least %d %s of %s, not %d", m.Name, least.need, least.unit, least.what, least.have),
				Fix: fmt.Sprintf("use --%s %d%s or more", least.what, least.need, least.unit),
			}
		}
	}
	return nil
}
