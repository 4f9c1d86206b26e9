package session

import (
	"context"
	"fmt"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/provision"
)

// newSpec is the shape that the settings give an instance, cloned from an image that is built first where it is missing.
// A new instance has the host checked for it.
func newSpec(ctx context.Context, f *factory.Factory, name string, isNew bool, progress *ui.Progress) (provision.Spec, error) {
	c := f.Settings()
	spec := provision.Spec{
		Name: name, Image: c.Home().Image(c.Image.Name),
		CPUs: c.Instance.CPUs, MemoryMiB: c.Instance.Memory.MiB(), DiskGiB: c.Instance.Disk.GiB(), SSHPort: c.Instance.Port,
	}
	driver, err := f.Driver()
	if err != nil {
		return spec, err
	}
	if isNew {
		// Also before an image is built: an hour's work must not end with what could be known at its start.
		if err := factory.Preflight("make instance "+name, driver.Preflight(ctx, spec)); err != nil {
			return spec, err
		}
	}
	img, err := image.Ensure(ctx, f, progress)
	if err != nil {
		return spec, err
	}
	spec.Image, spec.ImageDigest = img.Dir, img.Metadata.Digest
	if isNew {
		// A clone of a damaged image would fail in some strange way, much later.
		if err := image.Prove(ctx, f, img, progress); err != nil {
			return spec, err
		}
	}
	for _, least := range []struct {
		what, unit string
		have, need int
	}{{"memory", "MiB", spec.MemoryMiB, img.Metadata.MinMemoryMiB}, {"disk", "GiB", spec.DiskGiB, img.Metadata.MinDiskGiB}} {
		if least.have < least.need {
			return spec, &cli.UsageError{
				Msg: fmt.Sprintf("image %s needs at least %d %s of %s, not %d", img.Metadata.Name, least.need, least.unit, least.what, least.have),
				Fix: fmt.Sprintf("use --%s %d%s or more", least.what, least.need, least.unit),
			}
		}
	}
	return spec, nil
}
