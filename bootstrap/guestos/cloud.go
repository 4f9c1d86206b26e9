package guestos

import "github.com/cgoa-labs/labctl/bootstrap"

// A guest for other hypervisors takes its identity from cloud-init instead of labctl's agent, its address by DHCP, and boots from its own disk
// by UEFI. The node keeps the address that the cluster was made with, on an interface of its own.

// CloudPackages are the Debian packages that such a guest has besides Packages.
var CloudPackages = []string{"cloud-init", "cloud-guest-utils", "fdisk", "systemd-boot-efi"}

// CloudCustomize are shell lines that finish its root file system, after Customize.
var CloudCustomize = []string{
	// The disk may hang on any controller.
	`sed -i 's/^MODULES=.*/MODULES=most/' "$1/etc/initramfs-tools/conf.d/labctl" && chroot "$1" update-initramfs -u -k all`,
	`ln -sf /usr/lib/systemd/system/ssh.service "$1/etc/systemd/system/multi-user.target.wants/ssh.service"`,
}

// CloudKernelArgs is its kernel's command line. Its processor may be shared with strangers, so that mitigations stay on.
const CloudKernelArgs = "root=LABEL=" + RootLabel + " rw rootfstype=ext4 console=tty0 console=ttyS0 loglevel=4 nowatchdog net.ifnames=0 " + panicArgs + " " + CloudFlag

// RootLabel is the label of the guest's root file system.
const RootLabel = "labroot"

// CloudFlag on the kernel's command line says that no host of labctl's is there to give the guest its identity.
const CloudFlag = "labctl.cloud"

// BootLoader is where the Debian package puts the UEFI boot loader.
const BootLoader = "usr/lib/systemd/boot/efi/systemd-bootx64.efi"

var cloudPlaced = []place{
	{"cloud/network", "/etc/systemd/network/10-lab.network", 0o644},
	{"cloud/node.netdev", "/etc/systemd/network/05-node.netdev", 0o644},
	{"cloud/node.network", "/etc/systemd/network/05-node.network", 0o644},
	{"cloud/fstab", "/etc/fstab", 0o644},
	{"cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/90-labctl.cfg", 0o644},
	{"cloud/agent.conf", "/etc/systemd/system/labctl-agent.service.d/cloud.conf", 0o644},
	{"cloud/ssh.conf", "/etc/systemd/system/ssh.service.d/labctl.conf", 0o644},
}

// CloudFiles are the configuration files of a guest for other hypervisors, in the place of Files.
func CloudFiles() []bootstrap.File {
	own := read(cloudPlaced)
	files := own
	for _, f := range Files() {
		taken := false
		for _, o := range own {
			taken = taken || o.Path == f.Path
		}
		if !taken {
			files = append(files, f)
		}
	}
	return files
}
