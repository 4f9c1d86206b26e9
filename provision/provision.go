// Package provision is the contract between labctl and whatever runs its instances. Drivers implement it below this
// folder; nothing here knows one of them.
package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs/check"
)

// Spec is the wanted shape of an instance.
type Spec struct {
	// Name is unique on this host and is also the learner's name in reports; see layout.CheckName.
	Name string `json:"name"`
	// Image is the folder of the golden image that the instance is cloned from.
	Image layout.ImageDir `json:"image"`
	// ImageDigest ties the instance to the image's content: a changed image is refused, never booted under an old overlay.
	ImageDigest string `json:"imageDigest"`
	CPUs        int    `json:"cpus"`
	// MemoryMiB is the guest's RAM in MiB.
	MemoryMiB int `json:"memoryMiB"`
	// DiskGiB is the size that the guest sees, in GiB; the overlay grows as it is written.
	DiskGiB int `json:"diskGiB"`
	// SSHPort is the loopback port for SSH; 0 lets the driver take a free one and keep it.
	SSHPort int `json:"sshPort"`
	// Cold boots the guest even where the image has a frozen one of this shape.
	Cold bool `json:"cold,omitempty"`
	// Freezable keeps the guest's memory in a file, so that Freezer.Freeze can save it.
	Freezable bool `json:"freezable,omitempty"`
	// Isolate is an instance whose cluster shares no key with other clones of its image: they are re-issued before anybody gets it.
	Isolate bool `json:"isolate,omitempty"`
	// Spare is an instance that nobody has yet; see Sparer.
	Spare bool `json:"spare,omitempty"`
}

// Power is whether an instance's machine runs.
type Power string

// The powers of an instance.
const (
	Absent  Power = "absent"  // no such instance
	Stopped Power = "stopped" // there, powered off
	Running Power = "running" // its process is alive
	Broken  Power = "broken"  // there, but its files cannot be used; Reason says why
)

// Status is what a driver knows about an instance without asking the guest.
type Status struct {
	Name   string `json:"name"`
	Power  Power  `json:"power"`
	Reason string `json:"reason,omitempty"`
	// Spec is the instance's shape, with the port that was taken.
	Spec Spec `json:"spec"`
	// Accelerator is "kvm" or "tcg" while running.
	Accelerator string `json:"accelerator,omitempty"`
	PID         int    `json:"pid,omitempty"`
	// Frozen is the name of the frozen guest that the instance is a clone of, empty where it was booted.
	Frozen string `json:"frozen,omitempty"`
	// Suspended says of a stopped instance that its memory was kept, so that Start resumes it.
	Suspended bool `json:"suspended,omitempty"`
	// Waiting is the instance that this one is about to take the place of; see Renewer.
	Waiting *Status   `json:"waiting,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Created time.Time `json:"created,omitzero"`
}

// Endpoint is how to reach a running instance by SSH. Host is always a loopback address.
type Endpoint struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	User string `json:"user"`
	// KeyFile is the private key to log in with.
	KeyFile string `json:"keyFile"`
	// HostKey is the guest's public host key in authorized_keys form; any other is refused.
	HostKey string `json:"hostKey"`
}

// Driver runs instances on one hypervisor. Every call is safe to repeat: Create of an equal instance, Start of a running
// one, Stop of a stopped one and Delete of an absent one succeed and change nothing. Those four and Sweep take the
// instance's lock for as long as they run and return *BusyError when another process holds it past ctx's end; the others
// only look, and answer also while an instance is being worked on.
type Driver interface {
	// Info says what this driver is and can do.
	Info() Info
	// Preflight checks, before any work and changing nothing, that spec fits this host. With an empty Name it checks the host alone.
	Preflight(ctx context.Context, spec Spec) []check.Result
	// Create makes the instance's folder, keys and disk. Interrupted, it leaves nothing or something that Create finishes.
	Create(ctx context.Context, spec Spec) error
	// Start powers the instance on and returns when its identity has been handed over and SSH answers with the pinned key.
	// On failure the machine is off again and the error ends with the console's tail.
	Start(ctx context.Context, name string, progress func(stage string)) (Endpoint, error)
	// Stop asks the guest to power down and ends it when it does not within the driver's grace time.
	Stop(ctx context.Context, name string) error
	// Delete stops the instance and removes all that Create made.
	Delete(ctx context.Context, name string) error
	// Status never fails for a broken instance; it reports it.
	Status(ctx context.Context, name string) (Status, error)
	// List is the status of every instance, by name.
	List(ctx context.Context) ([]Status, error)
	// Endpoint is how to reach the instance; *NotRunningError when it is off.
	Endpoint(ctx context.Context, name string) (Endpoint, error)
	// ConsoleTail is the last lines of the guest's console, at most max bytes.
	ConsoleTail(name string, max int) string
	// Leftovers names what this driver left on the host that no instance owns: processes, sockets, locks, half-made folders.
	Leftovers(ctx context.Context) ([]Leftover, error)
	// Sweep removes leftovers. It never touches an instance's disk.
	Sweep(ctx context.Context, leftovers []Leftover) error
}

// Freezer is a Driver that can save a guest while it runs, and whose Start then resumes copies of it instead of booting.
type Freezer interface {
	Driver
	// FrozenKey digests all that a frozen guest of this shape depends on: the image, the hypervisor and the hardware it shows.
	FrozenKey(ctx context.Context, spec Spec) (string, error)
	// Freeze saves a running instance that was made Freezable into the empty folder dir. The instance is gone afterwards.
	Freeze(ctx context.Context, name string, dir layout.FrozenDir, progress func(stage string)) error
}

// Suspender is a Driver that can stop a guest and keep its memory, so that Start lets it go on where it was.
type Suspender interface {
	Driver
	// Suspend is Stop that keeps the memory. What is off, or was not ready yet, is stopped as Stop does it. It returns *ResourceError, and
	// leaves the guest running, where the host's disk has no room for the memory.
	Suspend(ctx context.Context, name string, progress func(stage string)) error
}

// Metered is a Driver that can tell what an instance takes of its host. That takes time, so it is no part of Status.
type Metered interface {
	Driver
	// Used is the memory in MiB that a running instance takes: what it shares with others counts for each in part.
	Used(st Status) (int, error)
}

// Used is the memory in MiB that a running instance takes, 0 where that is not known: no driver tells, or the machine has ended meanwhile.
func Used(driver Driver, st Status) int {
	metered, ok := driver.(Metered)
	if !ok || st.Power != Running {
		return 0
	}
	used, err := metered.Used(st)
	if err != nil {
		return 0
	}
	return used
}

// Limited is a Driver that knows how many instances its host holds.
type Limited interface {
	Driver
	// Fits returns *ResourceError, with figures, where the instances of these specs, those of them that run already left out, have no
	// room beside what runs.
	Fits(ctx context.Context, specs []Spec) error
}

// Fits asks a driver whether these instances have room, where it knows; else they have.
func Fits(ctx context.Context, driver Driver, specs []Spec) error {
	if limited, ok := driver.(Limited); ok {
		return limited.Fits(ctx, specs)
	}
	return nil
}

// Renewer is a Driver that can put a new instance in the place of one, and the old one back where that fails.
type Renewer interface {
	Driver
	// Renew makes and starts an instance of spec in the place of the one of that name, and calls ready when it answers. The old one,
	// which is off from then on, is kept until ready has returned nil; where anything fails before, or labctl is ended, it is put
	// back, and the error is a *RenewError. In the end it is removed, or with keep goes on as a stopped instance of that name, with
	// its memory kept.
	Renew(ctx context.Context, spec Spec, keep string, ready func(context.Context, Endpoint) error, progress func(stage string)) error
}

// Sparer is a Driver that keeps instances ready that nobody has yet. Its Create, and with it Renew, takes one of the wanted shape where there
// is one, whose guest only has to learn its new name.
type Sparer interface {
	Driver
	// MakeSpare makes and starts an instance of spec under a name that is free, calls ready when it answers, and lets its guest stand still
	// from then on. Nothing of it stays where anything fails; what an interrupted one left is a leftover.
	MakeSpare(ctx context.Context, spec Spec, ready func(context.Context, Endpoint) error, progress func(stage string)) error
	// Spares are those that can be taken, by name. List leaves them out; Delete removes them as it does others.
	Spares(ctx context.Context) ([]Status, error)
}

// Everything is the status of every instance, the spares after those that are somebody's: what stands on an image, takes a port or memory.
func Everything(ctx context.Context, driver Driver) ([]Status, error) {
	all, err := driver.List(ctx)
	if err != nil {
		return nil, err
	}
	spares, err := Spares(ctx, driver)
	return append(all, spares...), err
}

// Spares are a driver's spares, where it keeps any; else there are none.
func Spares(ctx context.Context, driver Driver) ([]Status, error) {
	sparer, ok := driver.(Sparer)
	if !ok {
		return nil, nil
	}
	spares, err := sparer.Spares(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the spares: %w", err)
	}
	return spares, nil
}

// Info describes a driver.
type Info struct {
	Name string
	// Version is the hypervisor's, empty where it is not installed.
	Version string
}

// Leftover is one thing that nobody owns any more.
type Leftover struct {
	Kind string `json:"kind"` // process, folder, file
	Path string `json:"path,omitempty"`
	PID  int    `json:"pid,omitempty"`
	Why  string `json:"why"`
}
