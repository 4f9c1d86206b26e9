// Package store keeps golden images: lists them, proves them whole and removes them.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"

	"github.com/google/renameio/v2"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
)

// Store is the folder of golden images.
type Store struct{ home layout.Home }

// New returns the store of a home.
func New(home layout.Home) *Store { return &Store{home: home} }

// List returns the images by name. A folder that is no image is reported among the errors, not fatal.
func (s *Store) List(ctx context.Context) ([]images.Image, []error) {
	entries, err := os.ReadDir(s.home.Images())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, []error{err}
	}
	var list []images.Image
	var errs []error
	for _, entry := range entries {
		if layout.CheckName("image", entry.Name()) != nil {
			continue // a build's scratch folder
		}
		img, err := s.Get(ctx, entry.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, img)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Metadata.Name < list[j].Metadata.Name })
	return list, errs
}

// Get returns one image; see images.Read for its errors.
func (s *Store) Get(_ context.Context, name string) (images.Image, error) {
	if err := layout.CheckName("image", name); err != nil {
		return images.Image{}, err
	}
	dir := s.home.Image(name)
	meta, err := images.Read(dir)
	return images.Image{Dir: dir, Metadata: meta}, err
}

// Verify reads every file of an image and of its frozen guests and compares it with the metadata; *images.DamagedError names the
// first that differs.
func (s *Store) Verify(ctx context.Context, img images.Image, progress func(file string)) error {
	return s.each(img, func(dir string, want images.File) error {
		if progress != nil {
			progress(want.Name)
		}
		got, err := HashFile(ctx, filepath.Join(dir, want.Name))
		if err := compareSize(img, want, got.Size, err); err != nil {
			return err
		}
		if got.SHA256 != want.SHA256 {
			return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: "sha256 " + want.SHA256[:12] + "…", Got: got.SHA256[:12] + "…"}
		}
		return nil
	})
}

// each calls f for every file of the image and of its frozen guests, each with its folder, after the metadata itself was checked.
func (s *Store) each(img images.Image, f func(dir string, want images.File) error) error {
	if digest := Digest(img.Metadata.Files); digest != img.Metadata.Digest {
		return &images.DamagedError{Name: img.Metadata.Name, File: filepath.Base(img.Dir.Metadata()), Want: "digest " + img.Metadata.Digest, Got: digest}
	}
	frozen, err := images.FrozenGuests(img.Dir)
	if err != nil {
		return err
	}
	for _, want := range img.Metadata.Files {
		if err := f(string(img.Dir), want); err != nil {
			return err
		}
	}
	for _, guest := range frozen {
		for _, want := range guest.Files {
			if err := f(string(img.Dir.Frozen(guest.Name)), want); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareSize turns what reading a file gave into damage, where it is some.
func compareSize(img images.Image, want images.File, size int64, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: "there", Got: "missing"}
	}
	if err == nil && size != want.Size {
		return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: fmt.Sprintf("%d bytes long", want.Size), Got: fmt.Sprint(size)}
	}
	return err
}

// Check compares only names and sizes: a full Verify reads gigabytes.
func (s *Store) Check(img images.Image) error {
	return checkFiles(img, string(img.Dir), img.Metadata.Files)
}

// CheckFrozen is Check for one frozen guest of the image.
func CheckFrozen(img images.Image, frozen images.Frozen) error {
	return checkFiles(img, string(img.Dir.Frozen(frozen.Name)), frozen.Files)
}

func checkFiles(img images.Image, dir string, files []images.File) error {
	for _, want := range files {
		info, err := os.Stat(filepath.Join(dir, want.Name))
		var size int64
		if err == nil {
			size = info.Size()
		}
		if err := compareSize(img, want, size, err); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes an image. The metadata goes first, so that a removal cut short leaves no half image.
func (s *Store) Remove(_ context.Context, name string) error {
	if err := layout.CheckName("image", name); err != nil {
		return err
	}
	dir := s.home.Image(name)
	if _, err := os.Stat(string(dir)); errors.Is(err, os.ErrNotExist) {
		return &images.NotFoundError{Name: name}
	}
	if err := os.Remove(dir.Metadata()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(string(dir))
}

// Seal describes the files of dir in meta, makes them read-only and writes the metadata, last.
func Seal(ctx context.Context, dir layout.ImageDir, meta images.Metadata, names []string, progress func(file string)) error {
	var err error
	if meta.Files, err = describe(ctx, string(dir), names, progress); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Chmod(filepath.Join(string(dir), name), 0o400); err != nil {
			return err
		}
	}
	meta.Schema, meta.Digest = images.Schema, Digest(meta.Files)
	return writeJSON(dir.Metadata(), meta)
}

// SealFrozen describes the files of a frozen guest, lets nobody else read them and writes the metadata, last. They stay writable
// for their owner: QEMU before 8.2 cannot map memory privately from a file that it may not write.
func SealFrozen(ctx context.Context, dir layout.FrozenDir, frozen images.Frozen, progress func(file string)) error {
	var names []string
	for _, path := range []string{dir.Memory(), dir.Devices(), dir.Disk()} {
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		names = append(names, filepath.Base(path))
	}
	var err error
	if frozen.Files, err = describe(ctx, string(dir), names, progress); err != nil {
		return err
	}
	frozen.Schema = images.FrozenSchema
	return writeJSON(dir.Metadata(), frozen)
}

func describe(ctx context.Context, dir string, names []string, progress func(file string)) ([]images.File, error) {
	var files []images.File
	for _, name := range names {
		if progress != nil {
			progress(name)
		}
		file, err := HashFile(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func writeJSON(path string, document any) error {
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(data, '\n'), 0o600)
}

// Digest is the identity of a set of files.
func Digest(files []images.File) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s %d %s\n", f.Name, f.Size, f.SHA256)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// HashFile digests a file, giving up when ctx ends.
func HashFile(ctx context.Context, path string) (images.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return images.File{}, err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, ContextReader{ctx, f})
	return images.File{Name: filepath.Base(path), Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// ContextReader reads until Ctx ends, and then gives its cause.
type ContextReader struct {
	Ctx context.Context
	io.Reader
}

func (c ContextReader) Read(p []byte) (int, error) {
	if c.Ctx.Err() != nil {
		return 0, context.Cause(c.Ctx)
	}
	return c.Reader.Read(p)
}
