// Command image-unpack puts container images into containerd's root folder without a running containerd: it imports an
// OCI archive into the content store and unpacks it into overlayfs snapshots, with containerd's own libraries. It runs on the
// build machine, so that nothing has to be unpacked inside a guest, where the same work takes minutes under emulation.
//
//	image-unpack ROOT ARCHIVE
//
// ROOT is containerd's root folder of the guest, seen from the build machine. It needs root, for the owners of files and for containerd's short bind mounts.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/diff/apply"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

const (
	snapshotter = "overlayfs"
	// namespace is where the kubelet's runtime interface looks for images.
	namespace = "k8s.io"
)

// imageLabels make containerd's Kubernetes side adopt an image, and never collect it: there is nowhere to pull it from again.
var imageLabels = map[string]string{"io.cri-containerd.image": "managed", "io.cri-containerd.pinned": "pinned"}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: image-unpack ROOT ARCHIVE")
		os.Exit(2)
	}
	if err := run(namespaces.WithNamespace(context.Background(), namespace), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "image-unpack:", err)
		os.Exit(1)
	}
}

// applier is the half of containerd's diff service that unpacking needs.
type applier struct{ diff.Applier }

func (applier) Compare(context.Context, []mount.Mount, []mount.Mount, ...diff.Opt) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errors.New("comparing snapshots is not part of unpacking")
}

func run(ctx context.Context, root, archive string) error {
	// The folder names are those that containerd's plugins give themselves below their root.
	blobs, err := local.NewStore(filepath.Join(root, "io.containerd.content.v1.content"))
	if err != nil {
		return err
	}
	overlays, err := overlay.NewSnapshotter(filepath.Join(root, "io.containerd.snapshotter.v1.overlayfs"))
	if err != nil {
		return err
	}
	defer overlays.Close()
	dbDir := filepath.Join(root, "io.containerd.metadata.v1.bolt")
	if err := os.MkdirAll(dbDir, 0o711); err != nil {
		return err
	}
	file, err := bolt.Open(filepath.Join(dbDir, "meta.db"), 0o644, &bolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	db := metadata.NewDB(file, blobs, map[string]snapshots.Snapshotter{snapshotter: overlays})
	if err := db.Init(ctx); err != nil {
		return err
	}
	client, err := containerd.New("", containerd.WithServices(
		containerd.WithContentStore(db.ContentStore()),
		containerd.WithImageStore(metadata.NewImageStore(db)),
		containerd.WithLeasesService(metadata.NewLeaseManager(db)),
		containerd.WithSnapshotters(map[string]snapshots.Snapshotter{snapshotter: db.Snapshotter(snapshotter)}),
		containerd.WithDiffService(applier{apply.NewFileSystemApplier(db.ContentStore())}),
	))
	if err != nil {
		return err
	}
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	// Layers are discarded once they are unpacked; they would lie in the guest a second time.
	images, err := client.Import(ctx, in, containerd.WithImageLabels(imageLabels), containerd.WithDiscardUnpackedLayers())
	if err != nil {
		return fmt.Errorf("import %s: %w", archive, err)
	}
	for _, image := range images {
		if err := containerd.NewImage(client, image).Unpack(ctx, snapshotter); err != nil {
			return fmt.Errorf("unpack %s: %w", image.Name, err)
		}
		fmt.Println(image.Name, image.Target.Digest)
	}
	if _, err := db.GarbageCollect(ctx); err != nil {
		return fmt.Errorf("collect what is not needed any more: %w", err)
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}
