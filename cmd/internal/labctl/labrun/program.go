package labrun

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Program is a lab's program on this host.
type Program struct {
	Lab    string `json:"lab"`
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`

	// root is put before the paths in the guest; tests, whose guest is this machine, keep to a folder of their own.
	root string
}

// MissingError says that a lab's program is not where labctl looks for it.
type MissingError struct{ Lab, Path string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("the program of lab %s is not there: %s", e.Lab, e.Path)
}

// Hint is the next action.
func (e *MissingError) Hint() string {
	return "run `make build` in labctl's source tree, or set guestDir to the folder that has it"
}

// Locate finds the lab's program in guestDir.
func Locate(guestDir string, lab Known) (Program, error) {
	p := Program{Lab: lab.ID, Path: filepath.Join(guestDir, "lab-"+lab.ID)}
	file, err := os.Open(p.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, &MissingError{Lab: lab.ID, Path: p.Path}
	}
	if err != nil {
		return p, fmt.Errorf("read the program of lab %s: %w", lab.ID, err)
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return p, fmt.Errorf("read the program of lab %s: %w", lab.ID, err)
	}
	p.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

// family is what the paths of all versions of the program in the guest begin with, remote is this version's, and link is the
// name under which people find it there. The file's name carries its digest, so that its presence says that it is the right one
// and nothing has to be read.
func (p Program) family() string { return p.root + "/usr/local/lib/labctl/lab-" + p.Lab + "-" }
func (p Program) remote() string { return p.family() + p.SHA256 }
func (p Program) link() string   { return p.root + "/usr/local/bin/lab-" + p.Lab }
