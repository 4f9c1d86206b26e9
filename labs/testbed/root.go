package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cgoa-labs/labctl/bootstrap"
)

// address is the guest's own, which is in its certificates.
const address = "10.0.2.15"

// hosts are the names that a cluster's DNS would give to processes of pods, all of which run here.
var hosts = "127.0.0.1 localhost\n" + address + " " + node + "\n127.0.0.1 argocd-repo-server argocd-redis " + bootstrap.GitHost + "\n"

// resolver names no server that is there: what is asked of one, such as gRPC's question for a service's settings, is refused at once.
const (
	resolver = "/etc/resolv.conf"
	noServer = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"
)

// enter makes the image's disk the root of this process's file systems: what is written goes into memory. The process must be in namespaces of
// its own for mounts, processes, network and names; what is made here ends with them.
func enter(disk, dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount memory on %s: %w", dir, err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			return err
		}
	}
	// The journal is not looked into: an image is sealed after its guest was powered off, and must not be written to.
	if err := command("mount", "-t", "ext4", "-o", "ro,loop,noload", disk, at("lower")); err != nil {
		return err
	}
	root := at("root")
	if err := overlay(root, at("lower"), dir); err != nil {
		return err
	}
	for _, name := range []string{"/dev", "/sys"} {
		if err := unix.Mount(name, root+name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", name, err)
		}
	}
	// Verify lays file systems over the learner's folders; those cannot lie upon another such layer, so its scratch folder is memory.
	for _, m := range []struct{ kind, name, options string }{{"proc", "/proc", ""}, {"tmpfs", "/dev/shm", "mode=1777"}, {"tmpfs", "/run", "mode=0755"}, {"tmpfs", "/tmp", "mode=1777"}, {"tmpfs", "/var/tmp", "mode=1777"}} {
		if err := unix.Mount(m.kind, root+m.name, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.name, err)
		}
	}
	// The whole root is exchanged, so that what runs here finds the namespace of a machine: verify changes roots of its own. The old one is put below
	// the new and then let go.
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let this machine's root go: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for file, text := range map[string]string{"/etc/hosts": hosts, resolver: noServer} {
		// The resolver's may be a link to what only a running guest has.
		if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte(node)); err != nil {
		return err
	}
	for _, line := range [][]string{
		// There is no way out; a default route is where Kubernetes looks for its own address.
		{"link", "set", "lo", "up"}, {"address", "add", address + "/24", "dev", "lo"}, {"route", "add", "default", "dev", "lo", "src", address},
	} {
		if err := command("ip", line...); err != nil {
			return err
		}
	}
	return nil
}

// snapshots are the unpacked layers of the image's container images. Programs tell them apart, since their names are numbers.
const (
	snapshots   = "/var/lib/rancher/k3s/agent/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
	redisServer = "/usr/bin/redis-server"
	argoProgram = "/usr/local/bin/argocd"
)

// imageRoot is the root of Argo CD's processes and redis.
const imageRoot = "/run/labctl-testbed/root"

// unpack puts imageRoot together: Argo CD's container image, on the base that it has in common with redis.
func unpack() error {
	var layers []string
	for _, program := range []string{argoProgram, redisServer} {
		found, err := filepath.Glob(filepath.Join(snapshots, "*/fs", program))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("no container image in the guest has %s", program)
		}
		layers = append(layers, strings.TrimSuffix(found[0], program))
	}
	above := filepath.Dir(imageRoot)
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(above, name), 0o755); err != nil {
			return err
		}
	}
	if err := overlay(imageRoot, strings.Join(layers, ":"), above); err != nil {
		return err
	}
	for _, name := range []string{"/proc", "/dev", "/etc/hosts", resolver, argoKubeconfig} {
		if err := touch(imageRoot+name, name); err != nil {
			return err
		}
		if err := unix.Mount(name, imageRoot+name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", name, err)
		}
	}
	return nil
}

// touch makes what a mount needs below it.
func touch(at, like string) error {
	info, err := os.Stat(like)
	if err != nil || info.IsDir() {
		return errors.Join(err, os.MkdirAll(at, 0o755))
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// overlay mounts layers on a folder; what is written goes to above.
func overlay(on, layers, above string) error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", layers, filepath.Join(above, "upper"), filepath.Join(above, "work"))
	if err := unix.Mount("overlay", on, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount %s: %w", on, err)
	}
	return nil
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}
