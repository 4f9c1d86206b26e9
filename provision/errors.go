package provision

import (
	"fmt"
	"strconv"
)

// NotFoundError says that no instance has this name.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no instance %q", e.Name) }

// Hint is the next action.
func (e *NotFoundError) Hint() string {
	return "`labctl status` lists the instances; `labctl up NAME` makes one"
}

// NotRunningError says that the instance is off.
type NotRunningError struct{ Name string }

func (e *NotRunningError) Error() string { return fmt.Sprintf("instance %q is not running", e.Name) }

// Hint is the next action.
func (e *NotRunningError) Hint() string { return "run `labctl start " + e.Name + "`" }

// BusyError says that another process works on the instance.
type BusyError struct {
	Name string
	// PID is who holds the lock, 0 where unknown.
	PID int
	// Err is why waiting ended, such as ctx's cause.
	Err error
}

func (e *BusyError) Unwrap() error { return e.Err }

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another labctl", e.Name)
	}
	return fmt.Sprintf("%s is in use by another labctl (pid %d)", e.Name, e.PID)
}

// Hint is the next action.
func (e *BusyError) Hint() string { return "wait for it to finish, then run the same command again" }

// ConflictError says that an instance of this name exists with another shape.
type ConflictError struct{ Name, What, Have, Want string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("instance %q exists with %s %s, not %s", e.Name, e.What, e.Have, e.Want)
}

// Hint is the next action.
func (e *ConflictError) Hint() string {
	return "use it as it is, or `labctl down " + e.Name + "` first (its work is lost)"
}

// ResourceError says that the host has too little of something; nothing was changed.
type ResourceError struct{ What, Need, Have, Fix string }

func (e *ResourceError) Error() string {
	return fmt.Sprintf("too little %s: %s needed, %s free", e.What, e.Need, e.Have)
}

// Hint is the next action.
func (e *ResourceError) Hint() string { return e.Fix }

// BootError says that a guest did not come up in time.
type BootError struct {
	Name, Stage string
	// Console is the end of the guest's console.
	Console string
	Err     error
}

func (e *BootError) Error() string {
	s := fmt.Sprintf("instance %q did not come up (%s): %v", e.Name, e.Stage, e.Err)
	if e.Console != "" {
		s += "\n--- last lines of the guest's console ---\n" + e.Console
	}
	return s
}

func (e *BootError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *BootError) Hint() string {
	return "the same command again starts it anew; `labctl doctor` checks this host"
}

// PortError says that the wanted SSH port cannot be had; nothing was changed.
type PortError struct {
	Port int
	// Owner names who has the port, such as "instance \"bob\"" or "nginx (pid 12)"; empty where unknown.
	Owner string
}

func (e *PortError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("port %d on 127.0.0.1 is taken", e.Port)
	}
	return fmt.Sprintf("port %d on 127.0.0.1 is taken by %s", e.Port, e.Owner)
}

// Hint is the next action.
func (e *PortError) Hint() string {
	return "end what has it, or choose another with `labctl up NAME --port PORT`"
}

// HostError says that this host cannot run instances: a program is missing, a folder is unsafe, a path is too long.
type HostError struct{ Problem, Fix string }

func (e *HostError) Error() string { return e.Problem }

// Hint is the next action.
func (e *HostError) Hint() string { return e.Fix }

// BrokenError says that an instance's files cannot be used.
type BrokenError struct{ Name, Reason string }

func (e *BrokenError) Error() string {
	return fmt.Sprintf("instance %q is broken: %s", e.Name, e.Reason)
}

// Hint is the next action.
func (e *BrokenError) Hint() string {
	return "`labctl down " + e.Name + "` removes it (its work is lost)"
}

// IncompleteError says that making an instance was interrupted.
type IncompleteError struct{ Name string }

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("instance %q is half made: making it was interrupted", e.Name)
}

// Hint is the next action.
func (e *IncompleteError) Hint() string {
	return "`labctl up " + e.Name + "` finishes it, `labctl down " + e.Name + "` removes it"
}

// ImageChangedError says that an image is not the one that an instance was made from. An overlay is of no use on another
// base, so that nothing is started.
type ImageChangedError struct{ Name, Image, Want, Have string }

func (e *ImageChangedError) Error() string {
	return fmt.Sprintf("instance %q was made from image %q with digest %s, which has digest %s now", e.Name, e.Image, e.Want, e.Have)
}

// Hint is the next action.
func (e *ImageChangedError) Hint() string {
	return "`labctl down " + e.Name + "`, then `labctl up " + e.Name + "` makes it from the new image (its work is lost)"
}

// SpecError says that a spec asks for something that no host can give.
type SpecError struct{ Field, Got, Want string }

func (e *SpecError) Error() string {
	return fmt.Sprintf("%s is %s, but must be %s", e.Field, e.Got, e.Want)
}

// UnsettledError says that making an instance anew was interrupted, so that its machine is about to be discarded.
type UnsettledError struct{ Name string }

func (e *UnsettledError) Error() string {
	return fmt.Sprintf("making instance %q anew was interrupted, and what was there before was not put back yet", e.Name)
}

// Hint is the next action.
func (e *UnsettledError) Hint() string {
	return "`labctl start " + e.Name + "` puts it back and goes on with it; `labctl reset --vm -i " + e.Name + "` makes it anew"
}

// RenewError says that an instance could not be made anew, and that what was there before is back.
type RenewError struct {
	Name string
	Err  error
}

func (e *RenewError) Error() string {
	return fmt.Sprintf("instance %q was not made anew; what was there before is back, and off: %v", e.Name, e.Err)
}

func (e *RenewError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *RenewError) Hint() string {
	return "`labctl start " + e.Name + "` goes on with it; the same command again tries anew"
}

func keys(s Spec) string {
	if s.Isolate {
		return "its own"
	}
	return "those of all clones"
}

// Conflict is nil, or a *ConflictError that says in what an existing instance differs from what is wanted now. A port is wanted only
// where it is not 0.
func Conflict(have, want Spec) error {
	for _, c := range []struct{ what, have, want string }{
		{"image", string(have.Image), string(want.Image)},
		{"image digest", have.ImageDigest, want.ImageDigest},
		{"CPUs", strconv.Itoa(have.CPUs), strconv.Itoa(want.CPUs)},
		{"memory (MiB)", strconv.Itoa(have.MemoryMiB), strconv.Itoa(want.MemoryMiB)},
		{"disk (GiB)", strconv.Itoa(have.DiskGiB), strconv.Itoa(want.DiskGiB)},
		{"cluster's keys", keys(have), keys(want)},
		{"SSH port", strconv.Itoa(have.SSHPort), strconv.Itoa(want.SSHPort)},
	} {
		if c.have != c.want && !(c.what == "SSH port" && want.SSHPort == 0) {
			return &ConflictError{Name: have.Name, What: c.what, Have: c.have, Want: c.want}
		}
	}
	return nil
}
