// Package guestos configures the operating system inside a guest: a fixed address, a quiet boot, the agent that takes the
// instance's identity, and what a learner's shell starts with.
package guestos

import (
	"embed"
	"fmt"

	"github.com/cgoa-labs/labctl/bootstrap"
)

//go:embed files
var content embed.FS

// place is where an embedded file goes.
type place struct {
	name, path string
	mode       uint32
}

// placed maps each embedded file to its place and mode in the guest.
var placed = []place{
	{"network", "/etc/systemd/network/10-lab.network", 0o644},
	{"resolv.conf", "/etc/resolv.conf", 0o644},
	{"hosts", "/etc/hosts", 0o644},
	{"fstab", "/etc/fstab", 0o644},
	{"agent.service", "/etc/systemd/system/labctl-agent.service", 0o644},
	{"sshd.conf", "/etc/ssh/sshd_config.d/10-labctl.conf", 0o600},
	{"journald.conf", "/etc/systemd/journald.conf.d/10-labctl.conf", 0o644},
	{"profile.sh", "/etc/profile.d/labctl.sh", 0o644},
	{"gitconfig", "/etc/gitconfig", 0o644},
	{"nftables.conf", "/etc/nftables.conf", 0o644},
}

// Packages are the Debian packages that a guest is made of.
var Packages = []string{
	"bash-completion", "ca-certificates", "conntrack", "containernetworking-plugins", "curl", "dbus", "e2fsprogs", "git", "initramfs-tools", "iproute2", "iptables",
	"jq", "kmod", "less", "linux-image-cloud-amd64", "nano", "nftables", "openssh-server", "openssl", "procps", "python3-minimal", "runc", "systemd", "systemd-sysv",
	"udev", "util-linux", "vim-tiny",
}

// Customize are shell lines that finish a root file system made of Packages; "$1" is its folder.
var Customize = []string{
	// The modules that the initial RAM disk needs to find its root, and no others: it is unpacked at every boot.
	`printf 'virtio_pci\nvirtio_blk\next4\n' >> "$1/etc/initramfs-tools/modules"`,
	`printf 'MODULES=list\nCOMPRESS=zstd\nRESUME=none\n' > "$1/etc/initramfs-tools/conf.d/labctl"`,
	`chroot "$1" update-initramfs -u -k all`,
	// Timers that a forward step of the clock would all fire at once, and consoles that nobody logs in at.
	`for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer systemd-timesyncd.service ` +
		`serial-getty@ttyS0.service getty@tty1.service ssh.socket e2scrub_reap.service systemd-networkd-wait-online.service; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done`,
	// sshd starts when the agent has put this instance's host key in place; no image holds one.
	`rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/systemd/system/multi-user.target.wants/ssh.service" "$1/etc/systemd/system/sshd.service"`,
	`mkdir -p "$1/etc/systemd/system/multi-user.target.wants" "$1/srv/bare" "$1/etc/labctl" "$1/usr/local/lib/labctl" "$1/root/.ssh" && chmod 0700 "$1/root/.ssh"`,
	`for unit in k3s labctl-agent; do ln -sf "/etc/systemd/system/$unit.service" "$1/etc/systemd/system/multi-user.target.wants/$unit.service"; done`,
	`mkdir -p "$1/etc/systemd/system/network-online.target.wants" && ln -sf /usr/lib/systemd/system/systemd-networkd.service "$1/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"`,
	`mkdir -p "$1/etc/systemd/system/sysinit.target.wants" && ln -sf /usr/lib/systemd/system/nftables.service "$1/etc/systemd/system/sysinit.target.wants/nftables.service"`,
	`: > "$1/etc/machine-id" && rm -f "$1/var/lib/dbus/machine-id" && echo lab > "$1/etc/hostname"`,
	// No password fits "*"; a locked account ("!") could not log in by key either.
	`chroot "$1" usermod -p '*' -s /bin/bash root`,
}

// KernelArgs is the guest kernel's command line. Mitigations protect guests from each other's code on one CPU; here each guest has a
// CPU of its own making, and they cost an emulated one dearly. The time stamp counter is the host's; on a busy host the kernel would come
// to distrust it and read another clock for ever after, each time by way of the emulator. A kernel that cannot go on starts anew, as whoever waits
// for it would have it do: an emulated processor may run an instruction that the kernel is just replacing in its own code.
const KernelArgs = "root=/dev/vda rw rootfstype=ext4 console=ttyS0 quiet loglevel=4 mitigations=off tsc=reliable audit=0 nowatchdog systemd.show_status=0 net.ifnames=0 random.trust_cpu=1 " + panicArgs

// panicArgs have the kernel start anew 5 s after it found itself broken.
const panicArgs = "oops=panic panic=5"

// Files are the operating system's configuration files.
func Files() []bootstrap.File { return read(placed) }

func read(placed []place) []bootstrap.File {
	files := make([]bootstrap.File, 0, len(placed))
	for _, p := range placed {
		data, err := content.ReadFile("files/" + p.name)
		if err != nil {
			panic(fmt.Sprintf("guestos: %v", err)) // an embedded file is missing: a mistake of this package, which any test finds
		}
		files = append(files, bootstrap.File{Path: p.path, Content: data, Mode: p.mode})
	}
	return files
}
