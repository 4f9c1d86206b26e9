package layout

import (
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write writes a file that only its owner may read, whole or not at all. The folder must exist.
func Write(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
}
