package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cgoa-labs/labctl/config/layout"
)

// SchemaError says that an image was made by another version of labctl.
type SchemaError struct{ Name, Schema string }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("image %q has metadata of schema %q; this labctl reads %q", e.Name, e.Schema, Schema)
}

// Hint is the next action.
func (e *SchemaError) Hint() string { return "run `labctl image build` to build it again" }

// Read reads the metadata of the image in dir. It returns *NotFoundError when there is none, *DamagedError when it cannot
// be decoded and *SchemaError when it is another version's. It does not look at the image's other files.
func Read(dir layout.ImageDir) (Metadata, error) {
	name := filepath.Base(string(dir))
	data, err := os.ReadFile(dir.Metadata())
	if errors.Is(err, fs.ErrNotExist) {
		return Metadata{}, &NotFoundError{Name: name}
	}
	if err != nil {
		return Metadata{}, fmt.Errorf("read image %q: %w", name, err)
	}
	var meta Metadata
	if err := json.Unmarshal(data, &meta); err != nil {
		return Metadata{}, &DamagedError{Name: name, File: filepath.Base(dir.Metadata()), Want: "a JSON document", Got: err.Error()}
	}
	if meta.Schema != Schema {
		return Metadata{}, &SchemaError{Name: name, Schema: meta.Schema}
	}
	return meta, nil
}
