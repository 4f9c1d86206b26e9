// Package argv writes QEMU's command lines. Everything in it is a pure function.
package argv

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cgoa-labs/labctl/bootstrap/identity"
	"github.com/cgoa-labs/labctl/config/layout"
)

// KVM and TCG are the accelerators: the host's hardware, and software emulation.
const (
	KVM = "kvm"
	TCG = "tcg"
)

// TranslationMiB is TCG's cache of translated code. What a guest with Argo CD runs comes to more than 1 GiB when translated, which is
// QEMU's default; a smaller cache is emptied more often, a larger one is memory that each machine takes.
const TranslationMiB = 512

// sandbox forbids QEMU to start programs, gain privileges or change its scheduling. It rules out -runas, see the driver.
const sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

// Machine is all that decides an instance's command line.
//
// What the guest can see (machine type, CPU, memory, device order and addresses, the RAM object's name) is part of a
// frozen guest's state: a clone can only resume on an equal machine. It must not depend on anything but Machine's
// fields, and each device has its address spelled out.
type Machine struct {
	Name  string
	Dir   layout.InstanceDir
	Image layout.ImageDir
	// KernelArgs is the guest kernel's command line.
	KernelArgs string
	// Type is a versioned machine type, such as "pc-q35-7.2".
	Type        string
	Accelerator string
	CPUs        int
	MemoryMiB   int
	// SSHPort is the port of 127.0.0.1 that leads to the guest's port 22.
	SSHPort int
	// FrozenDisk is a layer between the image's disk and the instance's own, empty where there is none.
	FrozenDisk string
	Memory     Memory
	// NoSandbox leaves out the system call filter, for hosts whose QEMU and C library do not agree on it.
	NoSandbox bool
}

// Memory is where a guest's memory is. The zero value is anonymous memory of a guest that boots.
type Memory struct {
	// File holds the memory, so that it can be saved or was.
	File string
	// Shared writes the guest's changes to File; otherwise they are the machine's own and File stays as it is.
	Shared bool
	// ReadOnly opens File for reading only, which needs QEMU 8.2. Older ones cannot have writable memory from such a file.
	ReadOnly bool
	// Incoming waits for a frozen guest's device state instead of booting.
	Incoming bool
}

func (m Memory) object(size string) string {
	if m.File == "" {
		return "memory-backend-ram,id=pc.ram,size=" + size + ",merge=off,dump=off"
	}
	object := "memory-backend-file,id=pc.ram,size=" + size + ",mem-path=" + escape(m.File) + ",merge=off,dump=off"
	switch {
	case m.Shared:
		return object + ",share=on"
	case m.ReadOnly:
		return object + ",share=off,readonly=on,rom=off"
	}
	return object + ",share=off"
}

// Args are QEMU's arguments, without the program.
func (m Machine) Args() []string {
	memory := fmt.Sprintf("%dM", m.MemoryMiB)
	args := []string{
		"-name", "guest=labctl-" + m.Name + ",process=labctl-" + m.Name,
		"-nodefaults", "-no-user-config", "-display", "none", "-only-migratable", "-msg", "timestamp=on",
	}
	if !m.NoSandbox {
		args = append(args, "-sandbox", sandbox)
	}
	if m.Memory.Incoming {
		args = append(args, "-incoming", "defer")
	}
	args = append(args, accelerate(m.Accelerator, m.Type, ",memory-backend=pc.ram,dump-guest-core=off,mem-merge=off", TranslationMiB)...)
	return append(append(args,
		"-smp", strconv.Itoa(m.CPUs), "-m", memory,
		"-object", m.Memory.object(memory),
		"-rtc", "base=utc,clock=host",
		"-kernel", m.Image.Kernel(), "-initrd", m.Image.Initrd(), "-append", m.KernelArgs,
		"-qmp", Monitor(m.Dir),
		"-chardev", "file,id=con,path="+escape(m.Dir.Console()), "-serial", "chardev:con",
		// The guest learns that it was cloned, and reseeds its random numbers.
		"-device", "vmgenid,guid=auto",
		"-object", "rng-random,id=rng0,filename=/dev/urandom",
		"-device", "virtio-rng-pci,rng=rng0,disable-legacy=on,addr=0x3",
		"-device", "virtio-serial-pci,id=vs0,disable-legacy=on,addr=0x4",
		"-chardev", "socket,id=ag,path="+escape(m.Dir.Agent())+",server=on,wait=off",
		"-device", "virtserialport,bus=vs0.0,nr=1,chardev=ag,name="+identity.PortName,
	), append(m.disks(),
		"-device", "virtio-blk-pci,drive=root,disable-legacy=on,addr=0x5",
		// restrict=on: the guest reaches neither this host nor anything behind it; the forwarded port still works.
		"-netdev", "user,id="+network+",ipv6=off,restrict=on,hostfwd="+hostSide(m.SSHPort)+guestSide,
		"-device", "virtio-net-pci,netdev=n0,mac=52:54:00:6c:61:62,romfile=,disable-legacy=on,addr=0x6",
	)...)
}

// network is the id of the guest's network, and guestSide its end of the forwarded port.
const network, guestSide = "n0", "-10.0.2.15:22"

func hostSide(port int) string { return fmt.Sprintf("tcp:127.0.0.1:%d", port) }

// AddForward is the monitor's command, one for people, that forwards one more port to a running guest; RemoveForward takes one back.
func AddForward(port int) string { return "hostfwd_add " + network + " " + hostSide(port) + guestSide }

// RemoveForward takes back a port that leads to the guest.
func RemoveForward(port int) string { return "hostfwd_remove " + network + " " + hostSide(port) }

// disks are the block nodes, each standing on the one before.
func (m Machine) disks() []string {
	args := []string{
		"-blockdev", node(file{Driver: "file", Node: "base-file", Filename: m.Image.Disk(), ReadOnly: true}),
		"-blockdev", node(format{Driver: "raw", Node: "base", File: "base-file", ReadOnly: true}),
	}
	below := "base"
	if m.FrozenDisk != "" {
		args = append(args,
			"-blockdev", node(file{Driver: "file", Node: "frozen-file", Filename: m.FrozenDisk, ReadOnly: true}),
			"-blockdev", node(format{Driver: "qcow2", Node: "frozen", File: "frozen-file", Backing: below, ReadOnly: true}))
		below = "frozen"
	}
	return append(args,
		"-blockdev", node(file{Driver: "file", Node: "root-file", Filename: m.Dir.Disk(), Discard: "unmap", Cache: &noFlush}),
		"-blockdev", node(format{Driver: "qcow2", Node: "root", File: "root-file", Backing: below, Discard: "unmap"}))
}

// accelerate is machine, accelerator and CPU. The probe and the instances share it, so that the probe proves what is used.
func accelerate(accelerator, machine, more string, translationMiB int) []string {
	machine += more + ",sata=off,smbus=off,usb=off,vmport=off"
	if accelerator == KVM {
		return []string{"-machine", machine + ",hpet=off", "-accel", "kvm", "-cpu", "host,migratable=on"}
	}
	// A named CPU of the x86-64-v2 level: Debian, Go and containerd ask for v1 at most, and emulating what newer models
	// add makes a guest slower. It is also the same with every QEMU, unlike "max".
	return []string{"-machine", machine, "-accel", fmt.Sprintf("tcg,thread=multi,tb-size=%d", translationMiB), "-cpu", "Nehalem"}
}

// Monitor is the argument that names an instance's QMP socket. No two processes share it, so that an instance's QEMU is
// recognised by it.
func Monitor(dir layout.InstanceDir) string {
	return "unix:" + escape(dir.QMP()) + ",server=on,wait=off"
}

// Owner is the folder of the instance that a running QEMU belongs to, where its arguments name one below instances.
func Owner(args []string, instances string) (dir layout.InstanceDir, ok bool) {
	for i, arg := range args {
		if i == 0 || args[i-1] != "-qmp" {
			continue
		}
		path, ok := strings.CutPrefix(arg, "unix:")
		if !ok {
			continue
		}
		path, _, _ = strings.Cut(strings.ReplaceAll(path, ",,", "\x00"), ",")
		dir := filepath.Dir(strings.ReplaceAll(path, "\x00", ","))
		if filepath.Dir(dir) == filepath.Clean(instances) {
			return layout.InstanceDir(dir), true
		}
	}
	return "", false
}

// Probe boots kernel with an initial RAM disk whose program says one word on the serial console, which is QEMU's standard
// output, and powers off.
func Probe(kernel, initrd, machine, accelerator string) []string {
	args := []string{
		"-name", "guest=labctl-probe,process=labctl-probe",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
	}
	args = append(args, accelerate(accelerator, machine, "", 64)...)
	return append(args,
		"-smp", "2", "-m", "256M",
		"-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1 rdinit=/init",
		"-chardev", "stdio,id=con,signal=off", "-serial", "chardev:con",
	)
}

// Overlay are qemu-img's arguments that make an instance's disk on top of another, whose format is raw or qcow2. The other is not
// opened: QEMU is told of it by its own arguments.
func Overlay(base, format, path string, diskGiB int) []string {
	return []string{"create", "-q", "-u", "-f", "qcow2", "-F", format, "-b", base,
		// Small writes then copy 4 KiB of the base, not a whole cluster.
		"-o", "extended_l2=on,cluster_size=128k", path, fmt.Sprintf("%dG", diskGiB)}
}

// file and format are block nodes. They are spelled out because only a named node can be told drop-cache=false, without
// which a resuming machine would drop the base image from the page cache of all.
type file struct {
	Driver    string `json:"driver"`
	Node      string `json:"node-name"`
	Filename  string `json:"filename"`
	ReadOnly  bool   `json:"read-only,omitempty"`
	DropCache bool   `json:"drop-cache"`
	Discard   string `json:"discard,omitempty"`
	Cache     *cache `json:"cache,omitempty"`
}

type format struct {
	Driver   string `json:"driver"`
	Node     string `json:"node-name"`
	File     string `json:"file"`
	Backing  string `json:"backing,omitempty"`
	ReadOnly bool   `json:"read-only,omitempty"`
	Discard  string `json:"discard,omitempty"`
}

type cache struct {
	NoFlush bool `json:"no-flush"`
}

// noFlush spares the host a sync for each one of the guest's databases. What the guest wrote survives the end of QEMU, but
// not a crash of the host before the disk was synced, which the driver does when it stops an instance.
var noFlush = cache{NoFlush: true}

func node(n any) string {
	data, err := json.Marshal(n)
	if err != nil {
		panic(err) // plain structs of strings and booleans
	}
	return string(data)
}

// escape writes a value of a comma-separated option.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
