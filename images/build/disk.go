package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/bootstrap/argocd"
	"github.com/cgoa-labs/labctl/bootstrap/guestos"
	"github.com/cgoa-labs/labctl/bootstrap/plan"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/debian"
	"github.com/cgoa-labs/labctl/images/probe"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/provision/run"
)

// The stages of every build, after the source's parts.
const (
	stageGuestOS = "guest-os"
	stageDisk    = "disk"
	stageBake    = "bake"
)

const (
	kernelArgs   = guestos.KernelArgs
	minMemoryMiB = 2048
	minDiskGiB   = 4
	rootArchive  = "root.tar"
	// diskSlack is the room in the golden disk beyond what it holds, in bytes: the first boot writes into it.
	diskSlack = 1 << 30
	// The guest's own programs.
	agentProgram = "labctl-agent"
	probeProgram = "labctl-probe"
)

func guestOSKey(s *state) (cache.Key, error) {
	packages, customize := s.guestOS()
	return cache.NewHash(stageGuestOS).Strings(debian.Recipe, s.Pins.Modules.DebianSuite, s.Mirror, strings.Join(packages, " "), strings.Join(customize, "\n")).Key()
}

// guestOS are the guest's Debian packages, and the lines that finish its root.
func (s *state) guestOS() (packages, customize []string) {
	if s.Cloud {
		return slices.Concat(guestos.Packages, guestos.CloudPackages), slices.Concat(guestos.Customize, guestos.CloudCustomize)
	}
	return guestos.Packages, guestos.Customize
}

func buildGuestOS(ctx context.Context, s *state, out string, progress func(string)) error {
	packages, customize := s.guestOS()
	progress(fmt.Sprintf("Debian %s, %d packages and what they need", s.Pins.Modules.DebianSuite, len(packages)))
	return debian.Bootstrap(ctx, s.Runner, debian.Options{
		Suite: s.Pins.Modules.DebianSuite, Mirror: s.Mirror, Packages: packages, Customize: customize, Out: filepath.Join(out, rootArchive),
	})
}

// diskRecipe changes when the way the disk is put together changes in a way that its inputs do not show.
const diskRecipe = "1"

func diskKey(s *state) (cache.Key, error) {
	h := cache.NewHash(stageDisk).Strings(diskRecipe, string(s.keys[stageGuestOS]), fmt.Sprint(s.containerImages()))
	for _, part := range []string{source.Server, source.ArgoCD, source.Containers} {
		h.Strings(part, string(s.keys[part]))
	}
	// The components' files are text of this program; Argo CD's are made from the part digested above.
	h.Strings(argocd.Recipe())
	components, err := plan.Components(plan.Options{Images: s.containerImages(), StandIn: s.standIn(), Cloud: s.Cloud})
	if err != nil {
		return "", err
	}
	for _, c := range components {
		for _, f := range c.Files {
			h.Strings(c.Name, f.Path, fmt.Sprint(f.Mode), string(f.Content))
		}
	}
	return h.File(filepath.Join(s.GuestDir, agentProgram)).File(filepath.Join(s.GuestDir, probeProgram)).Key()
}

func (s *state) standIn() bool { return s.Source.Name() == images.Modules }

// lint wants every container image that a manifest or a lab names in the archive: a guest cannot pull any.
func (s *state) lint(core []byte) error {
	names, err := argocd.Images(core)
	if err != nil {
		return err
	}
	have, err := container.Digests(filepath.Join(s.dirs[source.Containers], source.Archive))
	if err != nil {
		return err
	}
	names = append(append(names, s.Pins.Images.Gitd), s.Pins.Images.Lab...)
	if s.standIn() {
		names = append(names, s.Pins.Images.Pause, s.Pins.Images.CoreDNS)
	}
	return container.Holds(have, names...)
}

// buildDisk puts the root file system together in a folder and makes a file system of it, without mounting anything.
func buildDisk(ctx context.Context, s *state, out string, progress func(string)) error {
	root := filepath.Join(out, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	exec := func(argv ...string) error {
		_, err := s.Runner.Run(ctx, run.Cmd{Argv: argv})
		return err
	}
	progress("operating system")
	if err := exec("tar", "--extract", "--file="+filepath.Join(s.dirs[stageGuestOS], rootArchive), "--directory="+root, "--numeric-owner", "--xattrs", "--xattrs-include=*", "--same-permissions"); err != nil {
		return err
	}
	for _, part := range []string{source.Server, source.ArgoCD} {
		progress(part)
		if err := exec("cp", "--archive", "--no-preserve=ownership", filepath.Join(s.dirs[part], source.RootDir)+"/.", root); err != nil {
			return err
		}
	}
	core, err := os.ReadFile(filepath.Join(s.dirs[source.ArgoCD], source.CoreManifest))
	if err != nil {
		return err
	}
	components, err := plan.Components(plan.Options{Images: s.containerImages(), ArgoCore: core, StandIn: s.standIn(), Cloud: s.Cloud})
	if err != nil {
		return err
	}
	for _, c := range components {
		for _, f := range c.Files {
			if err := place(root, f); err != nil {
				return fmt.Errorf("component %s: %w", c.Name, err)
			}
		}
	}
	if err := exec("install", "-D", "-m", "0755", filepath.Join(s.GuestDir, agentProgram), filepath.Join(root, "usr/local/sbin", agentProgram)); err != nil {
		return err
	}
	progress("container images")
	if err := s.lint(core); err != nil {
		return err
	}
	if err := exec(filepath.Join(s.dirs[source.Server], source.Unpacker), filepath.Join(root, bootstrap.ContainerdRoot), filepath.Join(s.dirs[source.Containers], source.Archive)); err != nil {
		return err
	}
	img := layout.ImageDir(out)
	if err := takeBoot(root, img); err != nil {
		return err
	}
	if s.Cloud {
		if err := exec("cp", filepath.Join(root, guestos.BootLoader), filepath.Join(out, bootLoader)); err != nil {
			return err
		}
	}
	if err := writeProbe(filepath.Join(s.GuestDir, probeProgram), img.Probe()); err != nil {
		return err
	}
	used, err := treeSize(root)
	if err != nil {
		return err
	}
	size := (used*5/4 + diskSlack) >> 20
	progress(fmt.Sprintf("file system of %d MiB with %d MiB in it", size, used>>20))
	mke2fs, err := lookTool("mke2fs")
	if err != nil {
		return err
	}
	if err := exec(mke2fs, "-q", "-t", "ext4", "-d", root, "-L", guestos.RootLabel, "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,discard", "-O", "^metadata_csum_seed", img.Disk(), fmt.Sprintf("%dM", size)); err != nil {
		return err
	}
	return cache.RemoveAll(root)
}

func place(root string, f bootstrap.File) error {
	path := filepath.Join(root, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// A link in the way, such as Debian's resolv.conf may be, is replaced, not followed.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path, f.Content, 0o600); err != nil {
		return err
	}
	return os.Chmod(path, os.FileMode(f.Mode))
}

// takeBoot moves the kernel and the initial RAM disk out of the root: they are given to QEMU directly.
func takeBoot(root string, img layout.ImageDir) error {
	for pattern, to := range map[string]string{"boot/vmlinuz-*": img.Kernel(), "boot/initrd.img-*": img.Initrd()} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("%d files match %s in the guest, wanted 1", len(found), pattern)
		}
		if err := os.Rename(found[0], to); err != nil {
			return err
		}
		if err := os.Chmod(to, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeProbe(program, to string) (err error) {
	in, err := os.Open(program)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return probe.Write(out, in)
}

// treeSize is how many bytes the files below dir take on a disk with 4 KiB blocks; a file with several names counts once.
func treeSize(dir string) (int64, error) {
	var total int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 && !entry.IsDir() {
			if seen[st.Ino] {
				return nil
			}
			seen[st.Ino] = true
		}
		total += (info.Size() + 4095) &^ 4095
		return nil
	})
	return total, err
}
