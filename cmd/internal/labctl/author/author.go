// Package author has the commands of those who write labs: lab new and lab test.
package author

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
)

// Module is labctl's own: labs live in its source tree.
const Module = "github.com/cgoa-labs/labctl"

// catalogDir is where labs are, below the tree's root.
const catalogDir = "labs/catalog"

// findTree is the root of labctl's source tree that dir is in.
func findTree(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := start; ; at = filepath.Dir(at) {
		data, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && modfile.ModulePath(data) == Module {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", &cli.UsageError{Msg: start + " is not in labctl's source tree, where labs are written", Fix: "go there first: a clone of labctl's repository"}
		}
	}
}

// labsIn are the labs of a tree, by their folders' names.
func labsIn(tree string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(tree, catalogDir))
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
