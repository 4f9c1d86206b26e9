package container

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"
)

func archive(t *testing.T) (entries map[string]string) {
	t.Helper()
	dir := t.TempDir()
	shared, err := EntryLayer(filepath.Join(dir, "shared.tar"), Entry{Path: "etc/"}, Entry{Path: "etc/a", Content: []byte("a")}, Entry{Path: "bin/b", Link: "a"})
	require.NoError(t, err)
	own, err := EntryLayer(filepath.Join(dir, "own.tar"), Entry{Path: "own", Content: []byte("o"), Mode: 0o755})
	require.NoError(t, err)
	file := filepath.Join(dir, "images.tar")
	require.NoError(t, WriteArchive(file, filepath.Join(dir, "layout"), []Image{
		{Name: "nginx:1.27-alpine", Layers: []v1.Layer{shared, own}, Config: v1.Config{User: "999"}, StandIn: "not really"},
		{Name: "quay.io/a/b:v1", Layers: []v1.Layer{shared}},
	}))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	entries = map[string]string{}
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if err == io.EOF {
			return entries
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		entries[header.Name] = string(data)
	}
}

func TestArchiveNamesAndShares(t *testing.T) {
	entries := archive(t)
	var index v1.IndexManifest
	require.NoError(t, json.Unmarshal([]byte(entries["index.json"]), &index))
	require.Len(t, index.Manifests, 2)
	require.Equal(t, "docker.io/library/nginx:1.27-alpine", index.Manifests[0].Annotations["io.containerd.image.name"])
	require.Equal(t, "quay.io/a/b:v1", index.Manifests[1].Annotations["io.containerd.image.name"])
	var manifest v1.Manifest
	require.NoError(t, json.Unmarshal([]byte(entries["blobs/sha256/"+index.Manifests[0].Digest.Hex]), &manifest))
	require.Len(t, manifest.Layers, 2)
	require.Equal(t, "application/vnd.oci.image.layer.v1.tar+gzip", string(manifest.Layers[0].MediaType))
	var config v1.ConfigFile
	require.NoError(t, json.Unmarshal([]byte(entries["blobs/sha256/"+manifest.Config.Digest.Hex]), &config))
	require.Equal(t, "not really", config.Config.Labels[StandInLabel])
	require.Equal(t, "999", config.Config.User)
	blobs := 0
	for name := range entries {
		if strings.HasPrefix(name, "blobs/sha256/") && !strings.HasSuffix(name, "/") {
			blobs++
		}
	}
	require.Equal(t, 2+2+2, blobs, "two manifests, two configs, and the shared layer once")
}

func TestArchiveIsReproducible(t *testing.T) {
	require.Equal(t, archive(t), archive(t))
}
