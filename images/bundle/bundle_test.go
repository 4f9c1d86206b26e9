package bundle_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/bundle"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/store"
)

// sealed is a small image whose disk is a real ext4 with Debian's list of packages in it.
func sealed(t *testing.T, home layout.Home) images.Image {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), []byte("Package: bash\nStatus: install ok installed\nVersion: 5.2.37-2\n\nPackage: libc6\nVersion: 2.41-12\n"), 0o644))
	dir := home.Image("lab")
	require.NoError(t, os.MkdirAll(string(dir), 0o700))
	mke2fs, err := exec.LookPath("mke2fs")
	if err != nil {
		mke2fs = "/usr/sbin/mke2fs"
	}
	out, err := exec.Command(mke2fs, "-q", "-t", "ext4", "-d", root, dir.Disk(), "64M").CombinedOutput()
	require.NoError(t, err, string(out))
	for path, text := range map[string]string{dir.Kernel(): "kernel", dir.Initrd(): "initrd", dir.Probe(): "probe"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	require.NoError(t, store.Seal(t.Context(), dir, images.Metadata{
		Name: "lab", Created: time.Unix(1700000000, 0).UTC(), Source: images.Modules, Containers: map[string]string{"docker.io/library/nginx:1": "sha256:aa"},
		Versions: map[string]string{"kubernetes": "v1.37.0", "nginx": "1.27"}, StandIns: map[string]string{"nginx": "nginx of Debian"}, MinMemoryMiB: 1024, MinDiskGiB: 4,
	}, []string{"disk.raw", "vmlinuz", "initrd.img", "probe.img"}, nil))
	img, err := store.New(home).Get(t.Context(), "lab")
	require.NoError(t, err)
	return img
}

var labImages = []string{"nginx:1"}

func TestAnImageWithoutWhatLabsNameIsRefused(t *testing.T) {
	img := sealed(t, home(t))
	path := filepath.Join(t.TempDir(), "lab.bundle")
	_, err := bundle.Create(t.Context(), img, []string{"nginx:1", "nginx:2", "quay.io/argoproj/argocd:v1"}, path, nil)
	var missing *container.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"nginx:2", "quay.io/argoproj/argocd:v1"}, missing.Names)
	require.NoFileExists(t, path)
}

func home(t *testing.T) layout.Home {
	dir := t.TempDir()
	return layout.Home{State: filepath.Join(dir, "state"), Cache: filepath.Join(dir, "cache")}
}

func created(t *testing.T) (images.Image, string) {
	img := sealed(t, home(t))
	path := filepath.Join(t.TempDir(), "lab.bundle")
	_, err := bundle.Create(t.Context(), img, labImages, path, nil)
	require.NoError(t, err)
	return img, path
}

func TestThereAndBack(t *testing.T) {
	img, path := created(t)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Less(t, info.Size(), int64(1<<20), "holes take no room")
	m, err := bundle.Inspect(t.Context(), path, nil)
	require.NoError(t, err)
	require.Equal(t, img.Metadata.Digest, m.Image.Digest)

	there := home(t)
	loaded, known, err := bundle.Load(t.Context(), path, there, "", nil)
	require.NoError(t, err)
	require.False(t, known)
	require.Equal(t, img.Metadata, loaded.Metadata)
	again, err := store.New(there).Get(t.Context(), "lab")
	require.NoError(t, err)
	require.NoError(t, store.New(there).Verify(t.Context(), again, nil))
	disk, err := os.Stat(loaded.Dir.Disk())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), disk.Mode())
	require.Less(t, disk.Sys().(*syscall.Stat_t).Blocks*512, disk.Size()/2, "the disk has holes again")

	_, known, err = bundle.Load(t.Context(), path, there, "", nil)
	require.NoError(t, err)
	require.True(t, known)
	other, _, err := bundle.Load(t.Context(), path, there, "spring", nil)
	require.NoError(t, err)
	require.Equal(t, "spring", other.Metadata.Name)
	require.Equal(t, img.Metadata.Digest, other.Metadata.Digest)
	onlyImages(t, there, "lab", "spring")
}

func onlyImages(t *testing.T, at layout.Home, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(at.Images())
	if errors.Is(err, os.ErrNotExist) {
		require.Empty(t, names)
		return
	}
	require.NoError(t, err)
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	require.Equal(t, names, have)
}

func TestSBOM(t *testing.T) {
	img := sealed(t, home(t))
	data, err := bundle.SBOM(t.Context(), img, time.Unix(1700000000, 0).UTC())
	require.NoError(t, err)
	var doc struct {
		SPDXVersion string
		Packages    []struct {
			Name, VersionInfo, Comment string
			ExternalRefs               []struct{ ReferenceLocator string }
		}
	}
	require.NoError(t, json.Unmarshal(data, &doc))
	require.Equal(t, "SPDX-2.3", doc.SPDXVersion)
	require.Len(t, doc.Packages, 4)
	require.Equal(t, "stand-in: nginx of Debian", doc.Packages[1].Comment)
	require.Equal(t, "bash", doc.Packages[2].Name)
	require.Equal(t, "5.2.37-2", doc.Packages[2].VersionInfo)
	require.Equal(t, "pkg:deb/debian/libc6@2.41-12", doc.Packages[3].ExternalRefs[0].ReferenceLocator)
}

// entry is one of a bundle's, to be altered.
type entry struct {
	header tar.Header
	data   []byte
}

func entries(t *testing.T, path string) []entry {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	d, err := zstd.NewReader(file)
	require.NoError(t, err)
	defer d.Close()
	var all []entry
	for r := tar.NewReader(d); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		all = append(all, entry{*header, data})
	}
}

func write(t *testing.T, all []entry) string {
	t.Helper()
	var b bytes.Buffer
	compress, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	w := tar.NewWriter(compress)
	for _, e := range all {
		e.header.Size = int64(len(e.data))
		require.NoError(t, w.WriteHeader(&e.header))
		_, err := w.Write(e.data)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(w.Close(), compress.Close()))
	path := filepath.Join(t.TempDir(), "altered.bundle")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// manifest alters a bundle's manifest.
func manifest(t *testing.T, all []entry, change func(*bundle.Manifest)) {
	t.Helper()
	var m bundle.Manifest
	require.NoError(t, json.Unmarshal(all[0].data, &m))
	change(&m)
	data, err := json.Marshal(m)
	require.NoError(t, err)
	all[0].data = data
}

func TestWhatIsWrongChangesNothing(t *testing.T) {
	_, path := created(t)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	raw := func(data []byte) func(*testing.T) string {
		return func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "x.bundle")
			require.NoError(t, os.WriteFile(path, data, 0o600))
			return path
		}
	}
	altered := func(change func(t *testing.T, all []entry) []entry) func(*testing.T) string {
		return func(t *testing.T) string { return write(t, change(t, entries(t, path))) }
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0x10
	for name, tc := range map[string]struct {
		make func(*testing.T) string
		want string
	}{
		"empty":              {raw(nil), "it ends too early"},
		"text":               {raw([]byte("this is no bundle, however long it may be")), "it is no bundle of labctl's"},
		"cut off early":      {raw(whole[:40]), "it ends too early"},
		"cut off late":       {raw(whole[:len(whole)-200]), "it ends too early"},
		"cut off at the end": {raw(whole[:len(whole)-3]), "it ends too early"},
		"a bit turned":       {raw(flipped), ""},
		"another tar":        {altered(func(t *testing.T, all []entry) []entry { return all[1:] }), "it is no bundle of labctl's"},
		"an altered file": {altered(func(t *testing.T, all []entry) []entry { all[3].data = []byte("kernal"); return all }),
			"image/vmlinuz has sha256 "},
		"a longer file": {altered(func(t *testing.T, all []entry) []entry { all[3].data = []byte("kernel+"); return all }),
			`it holds "image/vmlinuz" of 7 bytes where its manifest has "image/vmlinuz" of 6`},
		"a missing file": {altered(func(t *testing.T, all []entry) []entry { return all[:len(all)-1] }), "it ends too early"},
		"one file more": {altered(func(t *testing.T, all []entry) []entry {
			return append(all, entry{tar.Header{Name: "image/more", Mode: 0o600, Typeflag: tar.TypeReg}, []byte("x")})
		}), "it holds more than its manifest says"},
		"a way out": {altered(func(t *testing.T, all []entry) []entry { all[3].header.Name = "image/../../../vmlinuz"; return all }),
			`it holds "image/../../../vmlinuz"`},
		"a way out in the manifest": {altered(func(t *testing.T, all []entry) []entry {
			manifest(t, all, func(m *bundle.Manifest) {
				m.Image.Files[1].Name = "../../x"
				m.Image.Digest = store.Digest(m.Image.Files)
			})
			return all
		}), `its manifest has a file that no image has: "../../x"`},
		"a link": {altered(func(t *testing.T, all []entry) []entry {
			all[3].header.Typeflag, all[3].header.Linkname, all[3].data = tar.TypeSymlink, "/etc/passwd", nil
			return all
		}), `it holds "image/vmlinuz" of 0 bytes`},
		"another schema": {altered(func(t *testing.T, all []entry) []entry {
			manifest(t, all, func(m *bundle.Manifest) { m.Schema = "labctl.dev/bundle/v9" })
			return all
		}), `its manifest has schema "labctl.dev/bundle/v9"; this labctl reads "labctl.dev/bundle/v1"`},
		"another digest": {altered(func(t *testing.T, all []entry) []entry {
			manifest(t, all, func(m *bundle.Manifest) { m.Image.Digest = "sha256:00" })
			return all
		}), "its image's digest is not that of its files"},
		"a name that leads out": {altered(func(t *testing.T, all []entry) []entry {
			manifest(t, all, func(m *bundle.Manifest) { m.Image.Name = "../lab" })
			return all
		}), `its image's name cannot be one: "../lab"`},
		"no disk": {altered(func(t *testing.T, all []entry) []entry {
			manifest(t, all, func(m *bundle.Manifest) {
				m.Image.Files = m.Image.Files[1:]
				m.Image.Digest = store.Digest(m.Image.Files)
			})
			return all
		}), "its manifest lacks the image's disk.raw"},
		"no JSON": {altered(func(t *testing.T, all []entry) []entry { all[0].data = []byte("{"); return all }), "its manifest cannot be read"},
		"nowhere": {func(t *testing.T) string { return filepath.Join(t.TempDir(), "none") }, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			at, bad := home(t), tc.make(t)
			_, _, err := bundle.Load(t.Context(), bad, at, "", nil)
			var wrong *bundle.Error
			require.ErrorAs(t, err, &wrong)
			require.Contains(t, wrong.Problem, tc.want)
			onlyImages(t, at)
			_, err = bundle.Inspect(t.Context(), bad, nil)
			require.ErrorAs(t, err, &wrong)
		})
	}
}

func TestAnotherImageOfTheName(t *testing.T) {
	_, path := created(t)
	at := home(t)
	first := sealed(t, at)
	_, _, err := bundle.Load(t.Context(), path, at, "", nil)
	if first.Metadata.Digest == mustInspect(t, path).Image.Digest {
		t.Skip("two file systems made at different times are the same")
	}
	require.ErrorAs(t, err, new(*bundle.ExistsError))
	have, err := store.New(at).Get(t.Context(), "lab")
	require.NoError(t, err)
	require.Equal(t, first.Metadata, have.Metadata)
}

func mustInspect(t *testing.T, path string) bundle.Manifest {
	m, err := bundle.Inspect(t.Context(), path, nil)
	require.NoError(t, err)
	return m
}

func TestDamagedImageIsNotPacked(t *testing.T) {
	img := sealed(t, home(t))
	require.NoError(t, os.Chmod(img.Dir.Kernel(), 0o600))
	require.NoError(t, os.WriteFile(img.Dir.Kernel(), []byte("kernal"), 0o600))
	path := filepath.Join(t.TempDir(), "lab.bundle")
	_, err := bundle.Create(t.Context(), img, labImages, path, nil)
	require.ErrorAs(t, err, new(*images.DamagedError))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestInterrupted(t *testing.T) {
	img, path := created(t)
	why := errors.New("Ctrl-C")
	stop := func() (context.Context, func(string)) {
		ctx, cancel := context.WithCancelCause(t.Context())
		return ctx, func(string) { cancel(why) }
	}
	at := home(t)
	ctx, detail := stop()
	_, _, err := bundle.Load(ctx, path, at, "", detail)
	require.ErrorIs(t, err, why)
	onlyImages(t, at)
	// What a killed one left is in nobody's way.
	require.NoError(t, os.MkdirAll(at.NewImage("lab")+"/disk.raw", 0o700))
	_, _, err = bundle.Load(t.Context(), path, at, "", nil)
	require.NoError(t, err)
	onlyImages(t, at, "lab")

	other := filepath.Join(t.TempDir(), "other.bundle")
	ctx, detail = stop()
	_, err = bundle.Create(ctx, img, labImages, other, detail)
	require.ErrorIs(t, err, why)
	left, err := os.ReadDir(filepath.Dir(other))
	require.NoError(t, err)
	require.Empty(t, left)
}
