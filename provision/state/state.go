// Package state keeps one record per instance, and the locks that let one process at a time change an instance.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
)

// Schema is the version of the record.
const Schema = "labctl.dev/instance/v1"

// Record is what is kept of an instance.
type Record struct {
	Schema string         `json:"schema"`
	Driver string         `json:"driver"`
	Spec   provision.Spec `json:"spec"`
	// PortChosen says that the driver took Spec.SSHPort and may take another; false means that the port was asked for.
	PortChosen bool      `json:"portChosen"`
	Created    time.Time `json:"created"`
	// MachineID is the guest's /etc/machine-id.
	MachineID string `json:"machineID"`
	// Machine is the hypervisor's versioned machine type, kept so that a guest's hardware does not change under it.
	Machine string `json:"machine"`
	// Complete says that the instance's keys and disk are there. A record without it is half made.
	Complete bool `json:"complete"`
	// Frozen is the name of the frozen guest that the instance is a clone of.
	Frozen string `json:"frozen,omitempty"`
	// Fresh says that the guest was never handed out: its disk is nobody's work and is made anew at each try to start it.
	Fresh bool `json:"fresh,omitempty"`
	// Suspended is set while the instance's memory is kept in a file. It is taken back before the guest goes on: memory and disk must be
	// of the same moment.
	Suspended *Suspended `json:"suspended,omitempty"`
	// Run is the machine that runs, or is about to; nil when the instance is off.
	Run *Run `json:"run,omitempty"`
}

// Suspended describes the kept memory of a stopped instance.
type Suspended struct {
	// Key digests the hardware that it can go on with; see provision.Freezer.
	Key string    `json:"key"`
	At  time.Time `json:"at"`
}

// Run is one run of an instance's machine. It is saved before the machine is started, so that no machine goes unrecorded.
type Run struct {
	Accelerator string    `json:"accelerator"`
	Started     time.Time `json:"started"`
	// PID is 0 between the saving of the record and the start of the machine.
	PID int `json:"pid,omitempty"`
	// StartTicks and HostBoot tell the process from a later one with the same PID: its start time in clock ticks since the
	// host's boot, and that boot's id.
	StartTicks uint64 `json:"startTicks,omitempty"`
	HostBoot   string `json:"hostBoot,omitempty"`
	// Ready says that the guest took its identity and that SSH answered.
	Ready bool `json:"ready"`
	// Parked says that the guest of a spare stands still, with all done that can be done before it is known whose it will be.
	Parked bool `json:"parked,omitempty"`
	// Folder is the name of the folder that the machine was started in, where the instance has another since: it was a spare.
	Folder string `json:"folder,omitempty"`
}

// Store reads and writes the records below one state home.
type Store struct{ Home layout.Home }

// Load reads an instance's record. It returns *provision.NotFoundError when there is no such instance and
// *provision.BrokenError when its record cannot be used.
func (s Store) Load(name string) (Record, error) {
	if err := layout.CheckName("instance", name); err != nil {
		return Record{}, err
	}
	rec, err := s.LoadFrom(name, s.Home.Instance(name))
	if err == nil && rec.Spec.Name != name {
		err = &provision.BrokenError{Name: name, Reason: fmt.Sprintf("its record is that of %q", rec.Spec.Name)}
	}
	return rec, err
}

// LoadFrom is Load of an instance whose folder is elsewhere. Its record may be on the way to another name.
func (s Store) LoadFrom(name string, dir layout.InstanceDir) (Record, error) {
	data, err := os.ReadFile(dir.Record())
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(string(dir)); errors.Is(err, fs.ErrNotExist) {
			return Record{}, &provision.NotFoundError{Name: name}
		}
		return Record{}, &provision.BrokenError{Name: name, Reason: "its record is missing"}
	}
	if err != nil {
		return Record{}, &provision.BrokenError{Name: name, Reason: err.Error()}
	}
	var rec Record
	if err := json.Unmarshal(data, &rec); err != nil {
		return Record{}, &provision.BrokenError{Name: name, Reason: fmt.Sprintf("%s cannot be decoded: %v", dir.Record(), err)}
	}
	if rec.Schema != Schema {
		return Record{}, &provision.BrokenError{Name: name, Reason: fmt.Sprintf("its record has schema %q; this labctl reads %q", rec.Schema, Schema)}
	}
	return rec, nil
}

// Save writes the record as a whole or not at all. The instance's folder must exist.
func (s Store) Save(rec Record) error { return s.SaveTo(s.Home.Instance(rec.Spec.Name), rec) }

// SaveTo is Save of an instance whose folder is elsewhere.
func (s Store) SaveTo(dir layout.InstanceDir, rec Record) error {
	rec.Schema = Schema
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of %q: %w", rec.Spec.Name, err)
	}
	path := dir.Record()
	if err := layout.Write(path, append(data, '\n')); err != nil {
		return fmt.Errorf("save the record of %q: %w", rec.Spec.Name, err)
	}
	return nil
}

// Entry is one instance of a list: its record, or why it cannot be read.
type Entry struct {
	Name   string
	Record Record
	Err    error
}

// List reads every instance, by name. Folders that cannot be instances are left out.
func (s Store) List() ([]Entry, error) {
	dirs, err := os.ReadDir(s.Home.Instances())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	var entries []Entry
	for _, dir := range dirs {
		if !dir.IsDir() || layout.CheckName("instance", dir.Name()) != nil {
			continue
		}
		rec, err := s.Load(dir.Name())
		var gone *provision.NotFoundError
		if errors.As(err, &gone) {
			continue // removed since the folder was listed
		}
		entries = append(entries, Entry{Name: dir.Name(), Record: rec, Err: err})
	}
	return entries, nil
}
