// Package bundle carries a golden image to a machine without a network, as one file: a zstd-compressed tar whose first entry names every other
// with its size and digest.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/store"
)

// Schema is the version of a bundle's manifest.
const Schema = "labctl.dev/bundle/v1"

// The entries of a bundle that are no files of the image, in their order. The files follow.
const (
	manifestName = "manifest.json"
	// SBOMName is the entry that lists what the image is made of, as SPDX 2.3.
	SBOMName = "sbom.spdx.json"
	imageDir = "image/"
)

// manifestLimit and sbomLimit are far more than these take.
const manifestLimit, sbomLimit = 1 << 20, 16 << 20

// Manifest is the first entry.
type Manifest struct {
	Schema  string          `json:"schema"`
	Created time.Time       `json:"created"`
	Image   images.Metadata `json:"image"`
	// SBOM is the entry SBOMName.
	SBOM images.File `json:"sbom"`
	// AllocatedBytes is what the image's files take on a disk; they are larger, with holes in them.
	AllocatedBytes int64 `json:"allocatedBytes"`
}

// Error says that a file is no bundle, or not a whole one. Nothing of it was kept.
type Error struct {
	File, Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("%s cannot be used: %s", e.File, e.Problem) }

// Hint is the next action.
func (e *Error) Hint() string {
	return "nothing was changed; copy the bundle again, or make another with `labctl bundle create`"
}

// ExistsError says that there is another image of the name.
type ExistsError struct{ Name, Have, Want string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("there is an image %q already, another one: %.19s… instead of %.19s…", e.Name, e.Have, e.Want)
}

// Hint is the next action.
func (e *ExistsError) Hint() string {
	return "load it under another name with --name, or remove that one with `labctl image rm " + e.Name + "`"
}

// parts are the names that an image's files may have: what a bundle names cannot lead anywhere else.
func parts() []string {
	dir := layout.ImageDir("")
	var names []string
	for _, path := range []string{dir.Disk(), dir.Kernel(), dir.Initrd(), dir.Probe()} {
		names = append(names, filepath.Base(path))
	}
	return names
}

// readManifest reads the first entry and refuses what cannot be an image's.
func readManifest(r io.Reader) (Manifest, error) {
	var m Manifest
	data, err := io.ReadAll(io.LimitReader(r, manifestLimit+1))
	if err != nil {
		return m, err
	}
	if len(data) > manifestLimit || json.Unmarshal(data, &m) != nil {
		return m, errors.New("its manifest cannot be read")
	}
	switch {
	case m.Schema != Schema:
		return m, fmt.Errorf("its manifest has schema %q; this labctl reads %q", m.Schema, Schema)
	case m.Image.Schema != images.Schema:
		return m, fmt.Errorf("its image has schema %q; this labctl reads %q", m.Image.Schema, images.Schema)
	case layout.CheckName("image", m.Image.Name) != nil:
		return m, fmt.Errorf("its image's name cannot be one: %q", m.Image.Name)
	case store.Digest(m.Image.Files) != m.Image.Digest:
		return m, errors.New("its image's digest is not that of its files")
	case m.AllocatedBytes < 0 || m.SBOM.Size < 0 || m.SBOM.Size > sbomLimit:
		return m, errors.New("its manifest has sizes that cannot be")
	}
	var names []string
	for _, file := range m.Image.Files {
		if !slices.Contains(parts(), file.Name) || slices.Contains(names, file.Name) || file.Size <= 0 {
			return m, fmt.Errorf("its manifest has a file that no image has: %q", file.Name)
		}
		names = append(names, file.Name)
	}
	for _, part := range parts() {
		if !slices.Contains(names, part) {
			return m, fmt.Errorf("its manifest lacks the image's %s", part)
		}
	}
	return m, nil
}
