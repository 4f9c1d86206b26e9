package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

const stageFreeze = "freeze"

// freezeRecipe changes when the guest is made ready for freezing differently.
const freezeRecipe = "2"

// Shape is what a frozen guest is made with; only instances of the same shape can be its clones.
type Shape struct{ CPUs, MemoryMiB, DiskGiB int }

// warmScript does what learners do first, so that clones find it in memory: programs, and what kubectl remembers of the API. Then
// nothing is left to be written.
const warmScript = `set -eu
export KUBECONFIG=/etc/rancher/k3s/k3s.yaml
kubectl get namespaces >/dev/null
kubectl api-resources >/dev/null
argocd version --client >/dev/null
git --version >/dev/null
curl --version >/dev/null
jq --version >/dev/null
: > /root/.bash_history
sync
`

// freezeStages put a frozen guest beside the image, unless it is there. An image that is there already gets one as well: what a
// frozen guest depends on beyond the image is the hypervisor of this host.
func (s *state) freezeStages(ctx context.Context) ([]stage.Stage[state], error) {
	freezer, ok := s.NewDriver(s.Home).(provision.Freezer)
	if !ok || s.Shape == (Shape{}) {
		return nil, nil
	}
	key, err := freezer.FrozenKey(ctx, s.frozenSpec(bakeName))
	if err != nil {
		return nil, fmt.Errorf("inputs of %s: %w", stageFreeze, err)
	}
	frozen, err := images.FindFrozen(s.image.Dir, key)
	var none *images.NoFrozenError
	switch {
	case err != nil && !errors.As(err, &none):
		return nil, err
	case err == nil && !s.Force && store.CheckFrozen(s.image, frozen) == nil && time.Since(frozen.Created) < freezeAgain:
		return nil, nil
	case err == nil:
		s.again = true
	}
	if s.keys[stageFreeze], err = cache.NewHash(stageFreeze).Strings(freezeRecipe, key, warmScript).Key(); err != nil {
		return nil, err
	}
	return []stage.Stage[state]{
		cachedStage(stageFreeze, freeze),
		{Name: "publish frozen", Run: func(ctx context.Context, s *state, progress func(string)) error {
			return publishFrozen(ctx, s, key, progress)
		}},
	}, nil
}

// freezeAgain is the age from which a build makes the frozen guest anew.
const freezeAgain = 30 * 24 * time.Hour

func (s *state) frozenSpec(name string) provision.Spec {
	return provision.Spec{
		Name: name, Image: s.image.Dir, ImageDigest: s.image.Metadata.Digest, Freezable: true,
		CPUs: s.Shape.CPUs, MemoryMiB: s.Shape.MemoryMiB, DiskGiB: s.Shape.DiskGiB,
	}
}

// freeze boots an instance of the image, waits until the platform is ready and has come to rest, and saves it as it is.
func freeze(ctx context.Context, s *state, out string, progress func(string)) (err error) {
	home := bakeHome(out)
	driver, ok := s.NewDriver(home).(provision.Freezer)
	if !ok {
		return errors.New("this driver cannot freeze guests")
	}
	defer func() {
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, driver.Delete(cleanCtx, bakeName), cache.RemoveAll(home.State))
	}()
	guest, err := s.bootReady(ctx, driver, s.frozenSpec(bakeName), progress)
	if err != nil {
		return err
	}
	progress("warm up")
	if s.Warm != nil {
		if err := s.Warm(ctx, guest.runner, progress); err != nil {
			return errors.Join(err, guest.close())
		}
	}
	_, err = guest.runner.Run(ctx, run.Cmd{Argv: []string{"sh", "-s"}, Stdin: strings.NewReader(warmScript)})
	// The connection must not be in the frozen guest.
	if err := errors.Join(err, guest.close()); err != nil {
		return err
	}
	if err := driver.Freeze(ctx, bakeName, layout.FrozenDir(out), progress); err != nil {
		return err
	}
	// Not the folder's own time, which the cache changes at each use.
	return os.WriteFile(filepath.Join(out, frozenAtFile), []byte(time.Now().UTC().Format(time.RFC3339)), 0o600)
}

// frozenAtFile in the stage's folder says when the guest was frozen.
const frozenAtFile = "frozen-at"

// publishFrozen puts the frozen guest beside the image's files, under a name of its own, and removes those that nobody needs.
func publishFrozen(ctx context.Context, s *state, key string, progress func(string)) (err error) {
	from := layout.FrozenDir(s.dirs[stageFreeze])
	at, err := os.ReadFile(filepath.Join(string(from), frozenAtFile))
	if err != nil {
		return err
	}
	frozen := images.Frozen{Key: key, CPUs: s.Shape.CPUs, MemoryMiB: s.Shape.MemoryMiB, DiskGiB: s.Shape.DiskGiB}
	if frozen.Created, err = time.Parse(time.RFC3339, string(at)); err != nil {
		return err
	}
	frozen.Name = fmt.Sprintf("%s-%d", key[:8], frozen.Created.Unix())
	dir, tmp := s.image.Dir.Frozen(frozen.Name), s.image.Dir.Frozen(newSuffix)
	if err := os.RemoveAll(string(tmp)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(string(tmp))) }()
	if err := os.MkdirAll(string(tmp), 0o700); err != nil {
		return err
	}
	for _, file := range [][2]string{{from.Memory(), tmp.Memory()}, {from.Devices(), tmp.Devices()}, {from.Disk(), tmp.Disk()}} {
		progress(filepath.Base(file[0]))
		if _, err := s.Runner.Run(ctx, run.Cmd{Argv: []string{"cp", "--sparse=always", "--reflink=auto", file[0], file[1]}}); err != nil {
			return err
		}
	}
	if err := store.SealFrozen(ctx, tmp, frozen, func(file string) { progress("digest of " + file) }); err != nil {
		return err
	}
	users, err := s.frozenUsers(ctx)
	if err != nil {
		return err
	}
	if users[frozen.Name] {
		return fmt.Errorf("instances stand on frozen guest %s, which is damaged; remove them with `labctl down` first", frozen.Name)
	}
	if err := os.RemoveAll(string(dir)); err != nil {
		return err
	}
	if err := os.Rename(string(tmp), string(dir)); err != nil {
		return err
	}
	users[frozen.Name] = true
	return s.dropFrozen(users)
}

// frozenUsers are the frozen guests that instances of the image are clones of.
func (s *state) frozenUsers(ctx context.Context) (map[string]bool, error) {
	all, err := provision.Everything(ctx, s.NewDriver(s.Home))
	if err != nil {
		return nil, err
	}
	users := map[string]bool{}
	for _, st := range all {
		for st := &st; st != nil; st = st.Waiting {
			if st.Frozen != "" && st.Spec.Image == s.image.Dir {
				users[st.Frozen] = true
			}
		}
	}
	return users, nil
}

// dropFrozen removes the image's frozen guests but those to keep.
func (s *state) dropFrozen(keep map[string]bool) error {
	all, err := images.FrozenGuests(s.image.Dir)
	if err != nil {
		return err
	}
	for _, frozen := range all {
		if keep[frozen.Name] {
			continue
		}
		if err := os.RemoveAll(string(s.image.Dir.Frozen(frozen.Name))); err != nil {
			return err
		}
	}
	return nil
}
