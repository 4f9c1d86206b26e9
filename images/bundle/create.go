package bundle

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/store"
)

// Create writes a bundle of an image to path, whole or not at all, and compares what it packs with the image's digests; a file that differs is an
// *images.DamagedError. An image without one of the container images that labs name is a *container.MissingError. progress says how far it is and
// may be nil.
func Create(ctx context.Context, img images.Image, labs []string, path string, progress func(string)) (Manifest, error) {
	if err := container.Holds(img.Metadata.Containers, labs...); err != nil {
		return Manifest{}, err
	}
	m := Manifest{Schema: Schema, Created: time.Now().UTC().Truncate(time.Second), Image: img.Metadata}
	m.Image.Schema = images.Schema
	sbom, err := SBOM(ctx, img, m.Created)
	if err != nil {
		return m, err
	}
	sum := sha256.Sum256(sbom)
	m.SBOM = images.File{Name: SBOMName, Size: int64(len(sbom)), SHA256: hex.EncodeToString(sum[:])}
	for _, file := range img.Metadata.Files {
		info, err := os.Stat(filepath.Join(string(img.Dir), file.Name))
		if err != nil {
			return m, err
		}
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			m.AllocatedBytes += sys.Blocks * 512
		}
	}
	// The image holds the keys of its platform, which its instances share.
	target := layout.Follow(path)
	out, err := renameio.NewPendingFile(target, renameio.WithTempDir(filepath.Dir(target)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return m, fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = out.Cleanup() }()
	if err := pack(ctx, out, img, m, sbom, progress); err != nil {
		return m, err
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return m, fmt.Errorf("write %s: %w", path, err)
	}
	return m, nil
}

func pack(ctx context.Context, out io.Writer, img images.Image, m Manifest, sbom []byte, progress func(string)) error {
	compress, err := zstd.NewWriter(out)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compress)
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	for _, entry := range []struct {
		name string
		data []byte
	}{{manifestName, manifest}, {SBOMName, sbom}} {
		if err := w.WriteHeader(&tar.Header{Name: entry.name, Size: int64(len(entry.data)), Mode: 0o600, ModTime: m.Created}); err != nil {
			return err
		}
		if _, err := w.Write(entry.data); err != nil {
			return err
		}
	}
	for _, file := range m.Image.Files {
		if err := packFile(ctx, w, img, file, m.Created, progress); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), compress.Close())
}

func packFile(ctx context.Context, w *tar.Writer, img images.Image, want images.File, created time.Time, progress func(string)) error {
	file, err := os.Open(filepath.Join(string(img.Dir), want.Name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	damaged := func(have string) error {
		return &images.DamagedError{Name: img.Metadata.Name, File: want.Name, Want: "sha256 " + want.SHA256[:12] + "…", Got: have}
	}
	if info.Size() != want.Size {
		return damaged(fmt.Sprintf("%d bytes long", info.Size()))
	}
	if err := w.WriteHeader(&tar.Header{Name: imageDir + want.Name, Size: want.Size, Mode: 0o400, ModTime: created}); err != nil {
		return err
	}
	digest := sha256.New()
	from := &counted{r: store.ContextReader{Ctx: ctx, Reader: file}, of: want, progress: progress}
	if _, err := io.Copy(io.MultiWriter(w, digest), from); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != want.SHA256 {
		return damaged(got[:12] + "…")
	}
	return nil
}

// counted tells how much was read.
type counted struct {
	r        io.Reader
	of       images.File
	progress func(string)
	n        int64
	shown    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if percent := 100 * c.n / max(c.of.Size, 1); c.progress != nil && percent != c.shown {
		c.shown = percent
		c.progress(fmt.Sprintf("%s %d %%", c.of.Name, percent))
	}
	return n, err
}
