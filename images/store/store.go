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

// Verify reads every file of an image and compares it with the metadata; *images.DamagedError names the first that differs.
func (s *Store) Verify(ctx context.Context, img images.Image, progress func(file string)) error {
	for _, want := range img.Metadata.Files {
		if progress != nil {
			progress(want.Name)
		}
		got, err := HashFile(ctx, filepath.Join(string(img.Dir), want.Name))
		if errors.Is(err, os.ErrNotExist) {
			return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: "there", Got: "missing"}
		} else if err != nil {
			return err
		}
		if got.Size != want.Size {
			return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: fmt.Sprintf("%d bytes long", want.Size), Got: fmt.Sprint(got.Size)}
		}
		if got.SHA256 != want.SHA256 {
			return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: "sha256 " + want.SHA256[:12] + "…", Got: got.SHA256[:12] + "…"}
		}
	}
	if digest := Digest(img.Metadata.Files); digest != img.Metadata.Digest {
		return &images.DamagedError{Name: img.Metadata.Name, File: filepath.Base(img.Dir.Metadata()), Want: "digest " + img.Metadata.Digest, Got: digest}
	}
	return nil
}

// Check compares only names and sizes, for use before every start: a full Verify reads gigabytes.
func (s *Store) Check(img images.Image) error {
	for _, want := range img.Metadata.Files {
		info, err := os.Stat(filepath.Join(string(img.Dir), want.Name))
		if errors.Is(err, os.ErrNotExist) {
			return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: "there", Got: "missing"}
		} else if err != nil {
			return err
		}
		if info.Size() != want.Size {
			return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: fmt.Sprintf("%d bytes long", want.Size), Got: fmt.Sprint(info.Size())}
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
	meta.Files = nil
	for _, name := range names {
		if progress != nil {
			progress(name)
		}
		file, err := HashFile(ctx, filepath.Join(string(dir), name))
		if err != nil {
			return err
		}
		meta.Files = append(meta.Files, file)
		if err := os.Chmod(filepath.Join(string(dir), name), 0o400); err != nil {
			return err
		}
	}
	meta.Schema, meta.Digest = images.Schema, Digest(meta.Files)
	data, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(dir.Metadata(), append(data, '\n'), 0o600)
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
	size, err := io.Copy(h, contextReader{ctx, f})
	return images.File{Name: filepath.Base(path), Size: size, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
