package debian_test

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images/debian"
)

// status is longer in one line than a scanner takes by itself.
var status = "Package: git\nStatus: install ok installed\nDepends: " + strings.Repeat("libc6, ", 20000) + "zlib1g\nVersion: 1:2.47.3-0\n\nPackage: runc\nVersion: 1.1.15\n"

func archive(t *testing.T, name string) string {
	file, err := os.Create(filepath.Join(t.TempDir(), "root.tar"))
	require.NoError(t, err)
	w := tar.NewWriter(file)
	for path, text := range map[string]string{"./etc/os-release": "ID=debian\n", name: status} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, file.Close())
	return file.Name()
}

func TestInArchive(t *testing.T) {
	packages, err := debian.InArchive(archive(t, "./var/lib/dpkg/status"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"git": "1:2.47.3-0", "runc": "1.1.15"}, packages)
	_, err = debian.InArchive(archive(t, "./var/lib/dpkg/other"))
	require.ErrorIs(t, err, io.EOF)
}
