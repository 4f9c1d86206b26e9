package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
)

// FrozenSchema is the version of a frozen guest's metadata document.
const FrozenSchema = "labctl.dev/frozen/v1"

// Frozen describes a guest that was saved while its platform was ready: memory, devices and disk of one moment. It is written
// last, so that its presence means that the frozen guest is whole.
type Frozen struct {
	Schema string `json:"schema"`
	// Name is its folder's, which no other frozen guest of the image ever has: instances stand on its disk.
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// Key digests what it depends on; see provision.Freezer.
	Key string `json:"key"`
	// CPUs, MemoryMiB and DiskGiB are the only shape in which it can be resumed.
	CPUs      int    `json:"cpus"`
	MemoryMiB int    `json:"memoryMiB"`
	DiskGiB   int    `json:"diskGiB"`
	Files     []File `json:"files"`
}

// NoFrozenError says that an image has no frozen guest of this key.
type NoFrozenError struct{ Key string }

func (e *NoFrozenError) Error() string { return fmt.Sprintf("there is no frozen guest %q", e.Key) }

// ReadFrozen reads the metadata of the frozen guest in dir. It returns *NoFrozenError when there is none that this labctl can use.
func ReadFrozen(dir layout.FrozenDir) (Frozen, error) {
	var frozen Frozen
	data, err := os.ReadFile(dir.Metadata())
	if errors.Is(err, fs.ErrNotExist) {
		return frozen, &NoFrozenError{Key: string(dir)}
	}
	if err != nil {
		return frozen, fmt.Errorf("read frozen guest: %w", err)
	}
	if err := json.Unmarshal(data, &frozen); err != nil || frozen.Schema != FrozenSchema {
		return frozen, &NoFrozenError{Key: string(dir)}
	}
	return frozen, nil
}

// FrozenGuests are the frozen guests of the image in dir, the oldest first.
func FrozenGuests(dir layout.ImageDir) ([]Frozen, error) {
	entries, err := os.ReadDir(dir.FrozenGuests())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Frozen
	for _, entry := range entries {
		frozen, err := ReadFrozen(dir.Frozen(entry.Name()))
		var none *NoFrozenError
		if errors.As(err, &none) || err == nil && frozen.Name != entry.Name() {
			continue // one on its way in
		}
		if err != nil {
			return nil, err
		}
		all = append(all, frozen)
	}
	slices.SortFunc(all, func(a, b Frozen) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// FindFrozen is the newest frozen guest with this key, or *NoFrozenError.
func FindFrozen(dir layout.ImageDir, key string) (Frozen, error) {
	all, err := FrozenGuests(dir)
	if err != nil {
		return Frozen{}, err
	}
	for _, frozen := range slices.Backward(all) {
		if frozen.Key == key {
			return frozen, nil
		}
	}
	return Frozen{}, &NoFrozenError{Key: key}
}
