// Package layout names every file and folder that labctl keeps. No other package joins a path below the
// state home or the cache by hand.
package layout

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Home is where labctl keeps what must survive: golden images and instances.
// Folders are made 0700 and files 0600, because instances hold private keys.
type Home struct {
	// State is the root of images and instances, by default ~/.local/share/labctl.
	State string
	// Cache is the root of what can be made again, by default ~/.cache/labctl.
	Cache string
}

// SocketPathLimit is the longest path a unix socket may have on Linux (sun_path, 108 bytes with its NUL).
const SocketPathLimit = 107

// NameMax is the longest name.
const NameMax = 32

// NamePattern is what an instance or image name must match: a DNS label that is short enough for host names and sockets.
var NamePattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// NameError says that a name cannot be used and why.
type NameError struct{ Kind, Name string }

func (e *NameError) Error() string {
	return fmt.Sprintf("%s name %q is not allowed: use 1 to %d lower-case letters, digits and hyphens, starting with a letter and not ending with a hyphen", e.Kind, e.Name, NameMax)
}

// CheckName refuses a name that is not a short DNS label (which also rules out path traversal).
// kind is the word used in the message, such as "instance".
func CheckName(kind, name string) error {
	if !NamePattern.MatchString(name) {
		return &NameError{Kind: kind, Name: name}
	}
	return nil
}

// HomeError says that the environment does not name the user's home folder.
type HomeError struct{}

func (e *HomeError) Error() string { return "your home folder is not known: HOME is not set" }

// Hint is the next action.
func (e *HomeError) Hint() string { return "set HOME" }

// Default is the home of the current user: XDG_DATA_HOME and XDG_CACHE_HOME where set, else below HOME.
func Default() (Home, error) {
	user, err := os.UserHomeDir()
	if err != nil {
		return Home{}, &HomeError{}
	}
	state := os.Getenv("XDG_DATA_HOME")
	if state == "" {
		state = filepath.Join(user, ".local", "share")
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(user, ".cache")
	}
	return Home{State: filepath.Join(state, "labctl"), Cache: filepath.Join(cache, "labctl")}, nil
}

// Images is the folder of golden images.
func (h Home) Images() string { return filepath.Join(h.State, "images") }

// Image is the folder of one golden image.
func (h Home) Image(name string) ImageDir { return ImageDir(filepath.Join(h.Images(), name)) }

// NewImage and OldImage are the folders in which an image is put together beside its own, and out of the way to which it is taken.
func (h Home) NewImage(name string) string { return filepath.Join(h.Images(), "."+name+".new") }
func (h Home) OldImage(name string) string { return filepath.Join(h.Images(), "."+name+".old") }

// Instances is the folder of instances.
func (h Home) Instances() string { return filepath.Join(h.State, "instances") }

// Instance is the folder of one instance.
func (h Home) Instance(name string) InstanceDir {
	return InstanceDir(filepath.Join(h.Instances(), name))
}

// removedPrefix starts with a dot, which no name may, so that such a folder is never taken for an instance.
const removedPrefix = ".removed-"

// Removed is where an instance's folder is moved to before its files are removed, so that a removal cut short leaves no
// half instance. unique tells removals of one name apart.
func (h Home) Removed(name, unique string) string {
	return filepath.Join(h.Instances(), removedPrefix+name+"-"+unique)
}

// IsRemoved reports whether base, the last element of a path below Instances, names a folder on its way out.
func IsRemoved(base string) bool { return strings.HasPrefix(base, removedPrefix) }

// RemovedName is the name of the instance that a folder on its way out was.
func RemovedName(base string) string {
	name := strings.TrimPrefix(base, removedPrefix)
	if i := strings.LastIndex(name, "-"); i >= 0 {
		name = name[:i]
	}
	return name
}

// beforePrefix starts with a dot for the same reason as removedPrefix.
const beforePrefix = ".before-"

// Before is where an instance's folder waits while another is made in its place, until that one is ready. As long as it is there, the
// instance is what lies here.
func (h Home) Before(name string) InstanceDir {
	return InstanceDir(filepath.Join(h.Instances(), beforePrefix+name))
}

// BeforeName is the instance that a folder below Instances waits for, empty where base names none that waits.
func BeforeName(base string) string {
	name, waits := strings.CutPrefix(base, beforePrefix)
	if !waits || CheckName("instance", name) != nil {
		return ""
	}
	return name
}

// Fleet is the folder of the fleet's stack.
func (h Home) Fleet() string { return filepath.Join(h.State, "fleet") }

// HasFleet says whether there ever was one.
func (h Home) HasFleet() bool {
	_, err := os.Stat(h.Fleet())
	return err == nil
}

// Stages is the folder of the build cache: one folder per stage and input digest.
func (h Home) Stages() string { return filepath.Join(h.Cache, "stages") }

// Downloads is where downloads that are not whole yet are kept, so that they can go on.
func (h Home) Downloads() string { return filepath.Join(h.Cache, "downloads") }

// Locks is the folder of lock files. They live outside what they protect, so that a removed folder cannot lose its lock.
func (h Home) Locks() string { return filepath.Join(h.State, "locks") }

// Lock is the lock file of one thing, such as ("instance", "alice").
func (h Home) Lock(kind, name string) string {
	return filepath.Join(h.Locks(), kind+"-"+name+".lock")
}

// HostFacts is the cached answer of the accelerator probe; it names the host boot that it holds for.
func (h Home) HostFacts() string { return filepath.Join(h.Cache, "host.json") }

// Testbed is the folder of the one testbed that there may be at a time.
func (h Home) Testbed() string { return filepath.Join(h.State, "testbed") }

// Log is the debug log.
func (h Home) Log() string { return filepath.Join(h.State, "labctl.log") }

// ImageDir is the folder of one golden image. All its files are read-only once Metadata exists.
type ImageDir string

// Metadata is written last: an image without it is not an image.
func (d ImageDir) Metadata() string { return filepath.Join(string(d), "image.json") }

// Disk is the root disk: a raw ext4 file system without a partition table.
func (d ImageDir) Disk() string { return filepath.Join(string(d), "disk.raw") }

// Kernel is the guest kernel, booted directly.
func (d ImageDir) Kernel() string { return filepath.Join(string(d), "vmlinuz") }

// Probe is a tiny initial RAM disk that prints a word and powers off; it proves an accelerator.
func (d ImageDir) Probe() string { return filepath.Join(string(d), "probe.img") }

// Initrd is the guest's initial RAM disk.
func (d ImageDir) Initrd() string { return filepath.Join(string(d), "initrd.img") }

// Frozen is the folder of one guest of the image that was saved while it ran; see images.Frozen.
func (d ImageDir) Frozen(name string) FrozenDir {
	return FrozenDir(filepath.Join(d.FrozenGuests(), name))
}

// Proven remembers that the image's files were read and found whole, and what they looked like to the file system then.
func (d ImageDir) Proven() string { return filepath.Join(string(d), "proven.json") }

// FrozenGuests is the folder of the image's frozen guests.
func (d ImageDir) FrozenGuests() string { return filepath.Join(string(d), "frozen") }

// FrozenDir is the folder of one frozen guest. None of its files may change once Metadata exists.
type FrozenDir string

// Metadata is written last: a frozen guest without it is none.
func (d FrozenDir) Metadata() string { return filepath.Join(string(d), "frozen.json") }

// Memory is the guest's memory, a sparse file as large as it. Clones map it privately.
func (d FrozenDir) Memory() string { return filepath.Join(string(d), "memory.raw") }

// Devices is the state of processors and devices, as QEMU's migration writes it.
func (d FrozenDir) Devices() string { return filepath.Join(string(d), "devices.bin") }

// Disk is what the guest had written to its disk, an overlay on the image's.
func (d FrozenDir) Disk() string { return filepath.Join(string(d), "disk.qcow2") }

// InstanceDir is the folder of one instance.
type InstanceDir string

func (d InstanceDir) join(name string) string { return filepath.Join(string(d), name) }

// Record is the instance's record; see package provision/state.
func (d InstanceDir) Record() string { return d.join("instance.json") }

// Disk is the instance's overlay on the golden disk.
func (d InstanceDir) Disk() string { return d.join("disk.qcow2") }

// Standing is how far the learner was in a lab when it was last asked.
func (d InstanceDir) Standing(lab string) string { return d.join("standing-" + lab + ".json") }

// Limits says how long the instance may run and idle.
func (d InstanceDir) Limits() string { return d.join("limits.json") }

// Proving marks an instance that `labctl lab test` made, and may remove.
func (d InstanceDir) Proving() string { return d.join("proving") }

// Console is what the guest wrote on its serial port.
func (d InstanceDir) Console() string { return d.join("console.log") }

// QEMULog is what QEMU wrote on its standard error.
func (d InstanceDir) QEMULog() string { return d.join("qemu.log") }

// QMP is QEMU's monitor socket.
func (d InstanceDir) QMP() string { return d.join("qmp.sock") }

// Transfer is the socket that a frozen guest's device state goes through, out of QEMU or into it.
func (d InstanceDir) Transfer() string { return d.join("move.sock") }

// Memory is the memory of a guest that is going to be frozen.
func (d InstanceDir) Memory() string { return d.join("memory.raw") }

// Suspended is a stopped guest's memory and device state, from which it goes on.
func (d InstanceDir) Suspended() string { return d.join("suspended.bin") }

// Agent is the socket of the guest's personalisation channel.
func (d InstanceDir) Agent() string { return d.join("agent.sock") }

// UserKey is the private key that labctl logs in with.
func (d InstanceDir) UserKey() string { return d.join("id_ed25519") }

// HostKey is the guest's SSH host key, made by labctl, so that it is pinned from the first connection on.
func (d InstanceDir) HostKey() string { return d.join("host_ed25519") }

// KnownHosts pins the guest's host key for the system's own ssh client.
func (d InstanceDir) KnownHosts() string { return d.join("known_hosts") }
