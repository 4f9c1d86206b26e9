package store

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/cgoa-labs/labctl/images"
)

// mark is what the file system says of a file. Its times change with every write, and nothing but a write brings them forward.
type mark struct {
	Size  int64  `json:"size"`
	Inode uint64 `json:"inode"`
	// Modified and Changed are in nanoseconds since 1970.
	Modified int64 `json:"modified"`
	Changed  int64 `json:"changed"`
}

// Prove is Verify for use before every start: files that were read once and look the same to the file system since are not read
// again. known says that nothing had to be read.
func (s *Store) Prove(ctx context.Context, img images.Image, progress func(file string)) (known bool, err error) {
	before, err := s.marks(img)
	if err != nil {
		return false, err
	}
	var proven map[string]mark
	if data, err := os.ReadFile(img.Dir.Proven()); err == nil {
		_ = json.Unmarshal(data, &proven) // what cannot be read proves nothing
	}
	if reflect.DeepEqual(before, proven) {
		return true, nil
	}
	if err := s.Verify(ctx, img, progress); err != nil {
		return false, err
	}
	// The marks are those from before the reading: what changed meanwhile is read again next time.
	return false, writeJSON(img.Dir.Proven(), before)
}

func (s *Store) marks(img images.Image) (map[string]mark, error) {
	marks := map[string]mark{}
	err := s.each(img, func(dir string, want images.File) error {
		path := filepath.Join(dir, want.Name)
		info, err := os.Stat(path)
		if err != nil {
			return compareSize(img, want, 0, err)
		}
		if err := compareSize(img, want, info.Size(), nil); err != nil {
			return err
		}
		m := mark{Size: info.Size(), Modified: info.ModTime().UnixNano()}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			m.Inode, m.Changed = sys.Ino, sys.Ctim.Nano()
		}
		rel, err := filepath.Rel(string(img.Dir), path)
		marks[rel+" "+want.SHA256] = m
		return err
	})
	return marks, err
}
