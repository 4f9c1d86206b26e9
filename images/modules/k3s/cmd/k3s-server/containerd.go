package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const containerdConfig = `version = 3
root = %q
state = "/run/k3s/containerd"
oom_score = -999
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs", "io.containerd.nri.v1.nri",
]
[grpc]
  address = %q
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  stats_collect_period = 600
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  enable_selinux = false
  # By default every container is measured every second, which keeps a third of an emulated CPU busy; nobody looks at the figures.
  stats_collect_period = "10m"
  stats_retention_period = "30m"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = %q
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

const cniConfig = `{
  "cniVersion": "1.0.0",
  "name": "cbr0",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "dataDir": "/run/k3s/cni"}}
  ]
}
`

// cniBinDir is where Debian's package keeps the plugins.
const cniBinDir = "/usr/lib/cni"

func runContainerd(ctx context.Context, cfg config) error {
	etc := filepath.Join(cfg.agentDir(), "etc", "containerd")
	cni := filepath.Join(cfg.agentDir(), "etc", "cni", "net.d")
	for _, dir := range []string{etc, cni, "/run/k3s/cni"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	subnet, err := firstSubnet(cfg.ClusterCIDR)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(cni, "10-bridge.conflist"), fmt.Appendf(nil, cniConfig, subnet), 0o600); err != nil {
		return err
	}
	path := filepath.Join(etc, "config.toml")
	text := fmt.Appendf(nil, containerdConfig, filepath.Join(cfg.agentDir(), "containerd"), containerdSock, cfg.PauseImage, cniBinDir, cni)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "containerd"), "-c", path, "-l", "warn")
	cmd.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// Without its server a containerd would keep the socket and the next start would fail.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd.Run()
}

// firstSubnet is the /24 that the controller manager gives to the first node.
func firstSubnet(cidr string) (string, error) {
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", err
	}
	if ones, _ := network.Mask.Size(); ones > 24 {
		return "", fmt.Errorf("cluster-cidr %s is smaller than a /24", cidr)
	}
	return network.IP.String() + "/24", nil
}

func waitForContainerd(ctx context.Context, timeout time.Duration) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = ctr(ctx, "version")
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("containerd did not answer: %w", errors.Join(last, context.Cause(ctx)))
	}
	return nil
}

// importImages imports the archives in agent/images that were not imported before. A mark beside the archive remembers
// its size and time.
func importImages(ctx context.Context, cfg config) error {
	var archives []string
	for _, pattern := range []string{"*.tar", "*.tar.gz", "*.tar.zst"} {
		found, err := filepath.Glob(filepath.Join(cfg.imageDir(), pattern))
		if err != nil {
			return err
		}
		archives = append(archives, found...)
	}
	sort.Strings(archives)
	for _, archive := range archives {
		info, err := os.Stat(archive)
		if err != nil {
			return err
		}
		mark := archive + ".imported"
		state := fmt.Sprintf("%d %d\n", info.Size(), info.ModTime().UnixNano())
		if old, err := os.ReadFile(mark); err == nil && string(old) == state {
			continue
		}
		if err := ctr(ctx, "-n", "k8s.io", "images", "import", "--label", "io.cri-containerd.pinned=pinned", archive); err != nil {
			return fmt.Errorf("import %s: %w", archive, err)
		}
		if err := os.WriteFile(mark, []byte(state), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "ctr"), append([]string{"-a", containerdSock}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %v: %w: %s", args, err, out)
	}
	return nil
}
