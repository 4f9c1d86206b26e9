package layout

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Write writes a file that only its owner may read, whole or not at all. The folder must exist.
func Write(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
}

// Follow is the file that a path of a user's choice leads to. What is written as a whole or not at all comes by a rename, which would put a file
// in the place of a symbolic link.
func Follow(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// Open opens a regular file and refuses any other, for files that are read more than once or written over: a pipe is waited for without end.
// Its error is *fs.PathError.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
