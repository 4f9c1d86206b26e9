// Package container builds container images from layers and writes them as one OCI archive that containerd imports.
package container

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// StandInLabel is on every image that takes another's name, with what it really is.
const StandInLabel = "dev.labctl.stand-in"

// epoch is the time stamp of all that is made here, so that equal inputs give equal digests.
var epoch = time.Unix(0, 0).UTC()

// Image is one image to build.
type Image struct {
	// Name is the full reference that the guest knows it by.
	Name   string
	Layers []v1.Layer
	Config v1.Config
	// StandIn says what the image really is, where it takes another's name.
	StandIn string
}

// Entry is one file, folder or link of a layer.
type Entry struct {
	// Path is relative to the container's root.
	Path string
	// Link makes a symbolic link to this target.
	Link string
	// File is copied from this machine; Content is used where it is empty. With neither and a trailing slash in Path it is a folder.
	File    string
	Content []byte
	// Mode is the permission bits; 0 means 0644, or 0755 for a folder.
	Mode int64
	UID  int
	GID  int
}

// FileLayer is a layer made of an uncompressed tar archive on this machine.
func FileLayer(path string) (v1.Layer, error) {
	return tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
}

// EntryLayer writes entries as a tar archive to file and returns it as a layer.
func EntryLayer(file string, entries ...Entry) (v1.Layer, error) {
	if err := writeTar(file, entries); err != nil {
		return nil, fmt.Errorf("layer %s: %w", filepath.Base(file), err)
	}
	return FileLayer(file)
}

func writeTar(file string, entries []Entry) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	for _, e := range entries {
		if err := writeEntry(w, e); err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return w.Close()
}

func writeEntry(w *tar.Writer, e Entry) error {
	header := &tar.Header{Name: path.Clean(e.Path), Mode: e.Mode, Uid: e.UID, Gid: e.GID, ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	var content io.Reader = bytes.NewReader(e.Content)
	header.Size = int64(len(e.Content))
	switch {
	case e.Link != "":
		header.Typeflag, header.Linkname, header.Size, header.Mode = tar.TypeSymlink, e.Link, 0, 0o777
	case strings.HasSuffix(e.Path, "/"):
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		if header.Mode == 0 {
			header.Mode = 0o755
		}
	case e.File != "":
		f, err := os.Open(e.File)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		content, header.Size = f, info.Size()
	}
	if header.Mode == 0 {
		header.Mode = 0o644
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// Named is an image under the full reference that the guest knows it by.
type Named struct {
	Name  string
	Image v1.Image
}

// WriteArchive builds the images and writes them to file as an OCI archive. scratch is an empty folder for its use.
// Layers that images share are stored once.
func WriteArchive(file, scratch string, list []Image) error {
	var all []Named
	for _, img := range list {
		built, err := build(img)
		if err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
		all = append(all, Named{img.Name, built})
	}
	return WriteImages(file, scratch, all, func(string) {})
}

// WriteImages writes images to file as an OCI archive. In scratch, layers are kept that are whole, so that what comes from afar need not come
// again after an interruption; say is told each image before it is read.
func WriteImages(file, scratch string, list []Named, say func(name string)) error {
	if err := removeHalves(scratch); err != nil {
		return err
	}
	dir, err := layout.Write(scratch, empty.Index)
	if err != nil {
		return err
	}
	for _, img := range list {
		say(img.Name)
		ref, err := name.ParseReference(img.Name)
		if err != nil {
			return err
		}
		if err := dir.AppendImage(img.Image, layout.WithAnnotations(map[string]string{
			// containerd names the image after the first; the second is what the OCI specification asks for.
			nameAnnotation:                      fullName(ref),
			"org.opencontainers.image.ref.name": ref.Identifier(),
		})); err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
	}
	// What an interrupted run has left of other images.
	unused, err := dir.GarbageCollect()
	if err != nil {
		return err
	}
	for _, blob := range unused {
		if err := dir.RemoveBlob(blob); err != nil {
			return err
		}
	}
	return tarDir(file, scratch)
}

// nameAnnotation is where an archive says what containerd is to call an image.
const nameAnnotation = "io.containerd.image.name"

// Read are the images of an OCI archive by the names that containerd gives them. It is unpacked to dir, where they are read from.
func Read(archive, dir string) (map[string]v1.Image, error) {
	if err := untar(archive, dir); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	all := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		all[d.Annotations[nameAnnotation]] = img
	}
	return all, nil
}

func untar(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(to, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		out, err := os.Create(to)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, reader)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
}

// MissingError says that an archive or a guest lacks images that manifests or labs name: nothing could pull them in a guest.
type MissingError struct {
	Names []string
	// Untold says that nothing is known of what is there.
	Untold bool
}

func (e *MissingError) Error() string {
	if e.Untold {
		return "the image does not say which container images it holds"
	}
	return "container images are missing that manifests or labs name: " + strings.Join(e.Names, ", ")
}

// Hint is the next action.
func (e *MissingError) Hint() string {
	return "`labctl image build --force` makes an image that has what images/versions/versions.yaml and Argo CD's manifests name"
}

// Holds returns *MissingError where a name is not among the images that are there, which are by containerd's names.
func Holds(have map[string]string, names ...string) error {
	var missing []string
	for _, n := range names {
		ref, err := name.ParseReference(n)
		if err != nil {
			return err
		}
		if have[fullName(ref)] == "" {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		return &MissingError{Names: missing, Untold: len(have) == 0}
	}
	return nil
}

// Digests are the digests of an OCI archive's images, by the names that containerd gives them.
func Digests(archive string) (map[string]string, error) {
	in, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	for reader := tar.NewReader(in); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no index.json", archive)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		if path.Clean(header.Name) != "index.json" {
			continue
		}
		index, err := v1.ParseIndexManifest(reader)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
		digests := map[string]string{}
		for _, d := range index.Manifests {
			digests[d.Annotations[nameAnnotation]] = d.Digest.String()
		}
		return digests, nil
	}
}

// removeHalves removes the blobs that a run which was killed, or had no room, has not finished: whole ones have their name's digest. The library
// that writes them takes any that is there for whole.
func removeHalves(scratch string) error {
	found, err := filepath.Glob(filepath.Join(scratch, "blobs", "sha256", "*"))
	if err != nil {
		return err
	}
	for _, blob := range found {
		digest, err := digestOf(blob)
		if err == nil && digest != filepath.Base(blob) {
			err = os.Remove(blob)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func digestOf(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, in)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// fullName is the reference in the form that Kubernetes' runtime interface keys images by.
func fullName(ref name.Reference) string {
	registry := ref.Context().RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return registry + "/" + ref.Context().RepositoryStr() + ":" + ref.Identifier()
}

func build(img Image) (v1.Image, error) {
	base := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	out, err := mutate.AppendLayers(base, img.Layers...)
	if err != nil {
		return nil, err
	}
	file, err := out.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = "amd64", "linux", v1.Time{Time: epoch}
	file.Config = img.Config
	if img.StandIn != "" {
		labels := map[string]string{StandInLabel: img.StandIn}
		for k, v := range img.Config.Labels {
			labels[k] = v
		}
		file.Config.Labels = labels
	}
	return mutate.ConfigFile(out, file)
}

func tarDir(file, dir string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	return w.Close()
}
