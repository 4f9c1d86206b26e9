package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/images"
)

// Ensure returns the image that the settings name, building it where it is missing.
func Ensure(ctx context.Context, f *factory.Factory, progress *ui.Progress) (images.Image, error) {
	name := f.Settings().Image.Name
	img, err := f.Images().Get(ctx, name)
	var missing *images.NotFoundError
	if err != nil && !errors.As(err, &missing) {
		return img, err
	}
	builder, builderErr := f.Builder()
	if builderErr != nil {
		if missing == nil {
			return img, nil // it is there; that it could not be built again does not matter now
		}
		return img, builderErr
	}
	if missing == nil {
		if why, err := builder.Outdated(ctx, img); err == nil && why != "" {
			progress.Note("image %s is not the newest (%s); `labctl image build` makes it so, instances keep theirs", name, why)
		}
		return img, nil
	}
	return Make(ctx, f, builder, factory.Build{}, progress)
}

// Make checks the host and builds the image that the settings name, as b says besides.
func Make(ctx context.Context, f *factory.Factory, builder factory.Builder, b factory.Build, progress *ui.Progress) (images.Image, error) {
	c := f.Settings()
	b.Name, b.Sink = c.Image.Name, progress.Sink("image")
	if err := factory.Preflight("build image "+b.Name, builder.Preflight(ctx, b)); err != nil {
		return images.Image{}, err
	}
	if _, err := f.Images().Get(ctx, b.Name); err != nil {
		progress.Note("image %s is not there yet and is built, once: most of an hour on a small machine, less by what was built before; an interrupted build goes on where it stopped", b.Name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeouts.Build, fmt.Errorf("not built within %s", c.Timeouts.Build))
	defer cancel()
	img, err := builder.Build(ctx, b)
	if err != nil {
		return img, fmt.Errorf("build image %s: %w", b.Name, err)
	}
	return img, nil
}

// Prove makes sure that the image is whole, as one stage; a damaged one is an *images.DamagedError. all reads also what was read
// before and has not changed since.
func Prove(ctx context.Context, f *factory.Factory, img images.Image, all bool, progress *ui.Progress) error {
	return stage.One(ctx, progress.Sink(""), "read image "+img.Metadata.Name, func(ctx context.Context, detail func(string)) error {
		if all {
			return f.Images().Verify(ctx, img, detail)
		}
		known, err := f.Images().Prove(ctx, img, detail)
		if err == nil && known {
			return stage.ErrCached
		}
		return err
	})
}
