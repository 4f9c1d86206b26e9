package bundle

import (
	"archive/tar"
	"bufio"
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

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/store"
)

// SpaceError says that there is too little room for an image.
type SpaceError struct {
	Dir        string
	Need, Have int64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("too little disk space in %s: %d MiB needed, %d MiB free", e.Dir, e.Need>>20, e.Have>>20)
}

// Hint is the next action.
func (e *SpaceError) Hint() string {
	return "make room there, or choose another folder with --state-dir"
}

// BusyError says that another labctl builds or loads the image.
type BusyError struct{ Name string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("image %q is being made by another labctl", e.Name)
}

// Hint is the next action.
func (e *BusyError) Hint() string { return "wait until it has ended, then run the same command again" }

// Load takes an image out of a bundle into home, under name, or its own where that is empty. All of it is compared with its digests before the image
// appears; what is wrong with the file is an *Error, and nothing of it is kept. known says that the very image was there already. It returns
// *ExistsError where another of the name is there.
func Load(ctx context.Context, path string, home layout.Home, name string, progress func(string)) (img images.Image, known bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return img, false, &Error{File: path, Problem: errors.Unwrap(err).Error()}
	}
	defer file.Close()
	b, err := open(ctx, file)
	if err != nil {
		return img, false, wrong(ctx, path, err)
	}
	defer b.close()
	if name == "" {
		name = b.manifest.Image.Name
	}
	for _, dir := range []string{home.State, home.Images(), home.Locks()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return img, false, err
		}
	}
	lock := flock.New(home.Lock("image", name), flock.SetPermissions(0o600))
	if ok, err := lock.TryLock(); err != nil {
		return img, false, err
	} else if !ok {
		return img, false, &BusyError{Name: name}
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	img.Dir = home.Image(name)
	if img.Metadata, err = images.Read(img.Dir); err == nil {
		if img.Metadata.Digest == b.manifest.Image.Digest {
			return img, true, nil
		}
		return img, false, &ExistsError{Name: name, Have: img.Metadata.Digest, Want: b.manifest.Image.Digest}
	}
	if missing := (*images.NotFoundError)(nil); !errors.As(err, &missing) {
		return img, false, err
	}
	if err := room(home.Images(), b.manifest.AllocatedBytes); err != nil {
		return img, false, err
	}
	temp := home.NewImage(name)
	if err := os.RemoveAll(temp); err != nil { // what a killed one left
		return img, false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := os.Mkdir(temp, 0o700); err != nil {
		return img, false, err
	}
	if err := b.unpack(ctx, temp, progress); err != nil {
		return img, false, wrong(ctx, path, err)
	}
	img.Metadata = b.manifest.Image
	img.Metadata.Name = name
	data, err := json.MarshalIndent(img.Metadata, "", "  ")
	if err != nil {
		return img, false, err
	}
	if err := renameio.WriteFile(layout.ImageDir(temp).Metadata(), append(data, '\n'), 0o600); err != nil {
		return img, false, err
	}
	// A folder without metadata is no image: what an interrupted removal left makes room.
	if err := os.RemoveAll(string(img.Dir)); err != nil {
		return img, false, err
	}
	return img, false, os.Rename(temp, string(img.Dir))
}

// Inspect reads a whole bundle, compares it with its digests, and returns its manifest.
func Inspect(ctx context.Context, path string, progress func(string)) (Manifest, error) {
	file, err := os.Open(path)
	if err != nil {
		return Manifest{}, &Error{File: path, Problem: errors.Unwrap(err).Error()}
	}
	defer file.Close()
	b, err := open(ctx, file)
	if err != nil {
		return Manifest{}, wrong(ctx, path, err)
	}
	defer b.close()
	return b.manifest, wrong(ctx, path, b.unpack(ctx, "", progress))
}

// wrong makes an *Error of what came from the bundle, unless it is of this host's doing.
func wrong(ctx context.Context, path string, err error) error {
	var host *os.PathError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &host):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return &Error{File: path, Problem: "it ends too early"}
	}
	return &Error{File: path, Problem: err.Error()}
}

func room(dir string, need int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if have := int64(fs.Bavail) * fs.Bsize; have < need {
		return &SpaceError{Dir: dir, Need: need, Have: have}
	}
	return nil
}

// opened is a bundle whose manifest has been read.
type opened struct {
	manifest Manifest
	zstd     *zstd.Decoder
	tar      *tar.Reader
}

// window bounds what a bundle can make the decoder allocate.
const window = 128 << 20

func open(ctx context.Context, r io.Reader) (*opened, error) {
	d, err := zstd.NewReader(bufio.NewReaderSize(store.ContextReader{Ctx: ctx, Reader: r}, 1<<20), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, err
	}
	b := &opened{zstd: d, tar: tar.NewReader(d)}
	header, err := b.tar.Next()
	if err == nil && header.Name != manifestName {
		err = errors.New("it is no bundle of labctl's")
	}
	if errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, tar.ErrHeader) {
		err = errors.New("it is no bundle of labctl's")
	}
	if err == nil {
		b.manifest, err = readManifest(b.tar)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return b, nil
}

func (b *opened) close() { b.zstd.Close() }

// unpack reads all entries, which must be those of the manifest in their order, and writes the image's files into dir; nowhere where it is empty.
func (b *opened) unpack(ctx context.Context, dir string, progress func(string)) error {
	if err := b.entry(ctx, SBOMName, b.manifest.SBOM, "", progress); err != nil {
		return err
	}
	for _, file := range b.manifest.Image.Files {
		to := ""
		if dir != "" {
			to = filepath.Join(dir, file.Name)
		}
		if err := b.entry(ctx, imageDir+file.Name, file, to, progress); err != nil {
			return err
		}
	}
	if _, err := b.tar.Next(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("it holds more than its manifest says"), err)
	}
	// The compressed stream carries a digest of its own, at its end.
	if n, err := io.Copy(io.Discard, b.zstd); err != nil || n > 1<<20 {
		return errors.Join(errors.New("it does not end where it should"), err)
	}
	return nil
}

func (b *opened) entry(ctx context.Context, name string, want images.File, to string, progress func(string)) (err error) {
	header, err := b.tar.Next()
	if err != nil {
		return err
	}
	if header.Name != name || header.Typeflag != tar.TypeReg || header.Size != want.Size {
		return fmt.Errorf("it holds %q of %d bytes where its manifest has %q of %d", header.Name, header.Size, name, want.Size)
	}
	digest := sha256.New()
	var out io.Writer = digest
	if to != "" {
		file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
		if err != nil {
			return err
		}
		sparse := &sparse{file: file}
		out = io.MultiWriter(digest, sparse)
		defer func() {
			if err == nil {
				err = sparse.end(want.Size)
			}
			if closeErr := file.Close(); err == nil {
				err = closeErr
			}
		}()
	}
	from := &counted{r: store.ContextReader{Ctx: ctx, Reader: b.tar}, of: want, progress: progress}
	if _, err := io.CopyBuffer(out, from, make([]byte, 1<<20)); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != want.SHA256 {
		return fmt.Errorf("%s has sha256 %.12s… instead of %.12s…", name, got, want.SHA256)
	}
	return nil
}

// sparse writes a file and leaves holes where whole blocks are zero.
type sparse struct {
	file *os.File
	at   int64
}

const block = 4096

var zeros [block]byte

func (s *sparse) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(int(block-s.at%block), len(rest))
		if string(rest[:n]) != string(zeros[:n]) {
			if _, err := s.file.WriteAt(rest[:n], s.at); err != nil {
				return 0, err
			}
		}
		s.at += int64(n)
		rest = rest[n:]
	}
	return len(p), nil
}

// end makes the file as long as it is to be, and puts it on the disk.
func (s *sparse) end(size int64) error {
	if err := s.file.Truncate(size); err != nil {
		return err
	}
	return s.file.Sync()
}
