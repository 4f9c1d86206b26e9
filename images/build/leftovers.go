package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/provision"
)

func (o Options) stages() cache.Cache {
	return cache.Cache{Dir: o.Home.Stages(), Abandon: o.endBake}
}

// endBake ends the machine that a killed build may have left in a half-made folder: it outlives labctl, as every machine does.
func (o Options) endBake(ctx context.Context, half string) error {
	home := bakeHome(half)
	if _, err := os.Stat(string(home.Instance(bakeName))); err != nil {
		return nil
	}
	err := o.NewDriver(home).Delete(ctx, bakeName)
	if none := (*provision.NotFoundError)(nil); errors.As(err, &none) {
		return nil
	}
	return err
}

// newSuffix names a frozen guest on its way in.
const newSuffix = ".new"

// Leftovers names what killed builds left: half-made stages, with a machine that may still run in one, and half-published images.
func Leftovers(opts Options) ([]provision.Leftover, error) {
	halves, err := opts.stages().Halves()
	if err != nil {
		return nil, err
	}
	var left []provision.Leftover
	for _, half := range halves {
		l := provision.Leftover{Kind: "folder", Path: half, Why: "a build that was interrupted"}
		home := bakeHome(half)
		if st, err := opts.NewDriver(home).Status(context.Background(), bakeName); err == nil && st.PID != 0 {
			l.PID, l.Why = st.PID, "a build that was interrupted; its machine still runs"
		}
		left = append(left, l)
	}
	lock := opts.imageLock()
	if ok, err := lock.TryLock(); err != nil || !ok {
		return left, nil // a build is at it
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process
	for _, path := range []string{opts.Home.NewImage(opts.Name), opts.Home.OldImage(opts.Name), string(opts.Home.Image(opts.Name).Frozen(newSuffix))} {
		if _, err := os.Stat(path); err == nil {
			left = append(left, provision.Leftover{Kind: "folder", Path: path, Why: "an image whose publishing was interrupted"})
		}
	}
	return left, nil
}

// Sweep removes what Leftovers named.
func Sweep(ctx context.Context, opts Options, leftovers []provision.Leftover) error {
	var errs []error
	for _, l := range leftovers {
		if filepath.Dir(l.Path) == opts.Home.Stages() {
			errs = append(errs, opts.stages().Clear(ctx, l.Path))
			continue
		}
		lock := opts.imageLock()
		if ok, err := lock.TryLock(); err == nil && ok {
			errs = append(errs, cache.RemoveAll(l.Path), lock.Unlock())
		}
	}
	return errors.Join(errs...)
}

func (o Options) imageLock() *flock.Flock {
	return flock.New(o.Home.Lock("image", o.Name), flock.SetPermissions(0o600))
}
