package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap/guest"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// bakeRecipe changes when the first boot is done differently.
const bakeRecipe = "2"

// The first boot's machine.
const (
	bakeName      = "bake"
	bakeCPUs      = 2
	bakeMemoryMiB = 4096
	defaultReady  = 25 * time.Minute
)

// bakeHome is the state home of the first boot's machine, in the stage's folder.
func bakeHome(dir string) layout.Home {
	return layout.Home{State: filepath.Join(dir, "home"), Cache: filepath.Join(dir, "home", "cache")}
}

func bakeKey(s *state) (cache.Key, error) {
	return cache.NewHash(stageBake).Strings(bakeRecipe, string(s.keys[stageDisk]), kernelArgs, s.forget()).Key()
}

// forgetScript removes what must not be the same in every instance, and what only the first boot left. What it cannot remove while
// the guest runs, such as the host key in use, is not baked either: the agent replaces it before anyone can connect.
const forgetScript = `set -eu
rm -f /etc/ssh/ssh_host_* /root/.ssh/authorized_keys /root/.bash_history /var/lib/systemd/random-seed
: > /etc/machine-id
echo lab > /etc/hostname
rm -rf /tmp/* /var/tmp/* /var/log/journal /var/log/*.log /var/log/apt /var/cache/apt/*
sync
`

// forget is the script by which a guest forgets what must differ between instances.
func (s *state) forget() string {
	if s.Cloud {
		return forgetScript + "rm -rf /var/lib/cloud /var/log/cloud-init*\nsync\n"
	}
	return forgetScript
}

// bake boots the disk once, waits until the whole guest contract holds, lets the guest forget its identity and powers it off. What
// the first boot did (certificates, every object in the cluster, expanded caches) is then done for all instances.
func bake(ctx context.Context, s *state, out string, progress func(string)) (err error) {
	home := bakeHome(out)
	raw := home.Image(bakeName)
	if err := os.MkdirAll(string(raw), 0o700); err != nil {
		return err
	}
	// The driver boots images, so the unbooted disk is dressed up as one, by links: no second copy.
	var names []string
	disk := layout.ImageDir(s.dirs[stageDisk])
	for _, from := range []string{disk.Disk(), disk.Kernel(), disk.Initrd(), disk.Probe()} {
		name := filepath.Base(from)
		if err := os.Link(from, filepath.Join(string(raw), name)); err != nil {
			return err
		}
		names = append(names, name)
	}
	meta := images.Metadata{Name: bakeName, Created: time.Now().UTC(), Source: s.Source.Name(), Recipe: string(s.keys[stageDisk]), KernelArgs: kernelArgs}
	if err := store.Seal(ctx, raw, meta, names, nil); err != nil {
		return err
	}
	sealed, err := store.New(home).Get(ctx, bakeName)
	if err != nil {
		return err
	}
	driver := s.NewDriver(home)
	// The overlay keeps the disk's own size: what is flattened below must not grow.
	info, err := os.Stat(raw.Disk())
	if err != nil {
		return err
	}
	spec := provision.Spec{Name: bakeName, Image: raw, ImageDigest: sealed.Metadata.Digest, CPUs: bakeCPUs, MemoryMiB: bakeMemoryMiB, DiskGiB: int((info.Size() + 1<<30 - 1) >> 30)}
	defer func() {
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, driver.Delete(cleanCtx, bakeName), cache.RemoveAll(home.State))
	}()
	guest, err := s.bootReady(ctx, driver, spec, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guest.close()) }()
	progress("forget what must differ between instances")
	if _, err := guest.runner.Run(ctx, run.Cmd{Argv: []string{"sh", "-s"}, Stdin: strings.NewReader(s.forget())}); err != nil {
		return err
	}
	progress("power off")
	if err := driver.Stop(ctx, bakeName); err != nil {
		return err
	}
	progress("flatten the disk")
	img := layout.ImageDir(out)
	if _, err := s.Runner.Run(ctx, run.Cmd{Argv: []string{"qemu-img", "convert", "-f", "qcow2", "-O", "raw", "-S", "64k", home.Instance(bakeName).Disk(), img.Disk()}}); err != nil {
		return err
	}
	for _, name := range names {
		if name == filepath.Base(img.Disk()) {
			continue
		}
		if err := os.Link(filepath.Join(string(disk), name), filepath.Join(out, name)); err != nil {
			return err
		}
	}
	return nil
}

// bootedGuest is a connection to a guest whose platform is ready.
type bootedGuest struct {
	runner run.Runner
	close  func() error
}

// bootReady makes and boots an instance and waits until the whole guest contract holds.
func (s *state) bootReady(ctx context.Context, driver provision.Driver, spec provision.Spec, progress func(string)) (bootedGuest, error) {
	none := bootedGuest{}
	if err := driver.Create(ctx, spec); err != nil {
		return none, err
	}
	progress("boot")
	endpoint, err := driver.Start(ctx, spec.Name, func(st string) { progress("boot: " + st) })
	if err != nil {
		return none, err
	}
	guest := bootedGuest{}
	if guest.runner, guest.close, err = s.Connect(ctx, endpoint); err != nil {
		return none, err
	}
	alive := func() error {
		st, err := driver.Status(ctx, spec.Name)
		if err == nil && st.Power != provision.Running {
			err = errors.New("the machine has ended")
		}
		return err
	}
	if err := s.waitReady(ctx, guest.runner, alive, progress); err != nil {
		return none, errors.Join(fmt.Errorf("%w\n--- last lines of the guest's console ---\n%s", err, driver.ConsoleTail(spec.Name, 4000)), guest.close())
	}
	return guest, nil
}

// settle is how many times in a row the whole contract must hold before the image counts as ready.
const settle = 3

func (s *state) waitReady(ctx context.Context, runner run.Runner, alive func() error, progress func(string)) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	opts := guest.Options{Images: s.Pins.Images.Lab}
	timeout := s.ReadyTimeout
	if timeout == 0 {
		timeout = defaultReady
	}
	_, err := check.Wait{
		Timeout: timeout, Attempt: 3 * time.Minute, First: 2 * time.Second, Most: 10 * time.Second, Stable: settle,
		Observe: func(r check.Result) {
			switch r.State {
			case check.Passed:
				progress("platform ready")
			case check.Pending:
				progress("waiting for " + r.Got)
				if err := alive(); err != nil {
					give(err)
				}
			}
		},
	}.For(ctx, guest.Ready(runner, opts))
	if err != nil {
		return err
	}
	opts.Deep = true
	for _, c := range guest.Checks(runner, opts) {
		if r := c.Run(ctx); r.State != check.Passed {
			return fmt.Errorf("guest contract: %s: wanted %s, got %s", r.Title, r.Wanted, r.Got)
		}
	}
	return nil
}
