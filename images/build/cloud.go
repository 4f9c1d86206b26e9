package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/gofrs/flock"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cgoa-labs/labctl/bootstrap/guestos"
	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/provision/run"
)

// The parts of a disk for other hypervisors.
const (
	bootLoader = "systemd-bootx64.efi"
	sector     = 512
	alignment  = 1 << 20
	// espSize holds the boot loader, a kernel and an initial RAM disk with every driver.
	espSize = 256 << 20
)

// bootEntry is the boot loader's one entry.
const bootEntry = `title   labctl
linux   /labctl/vmlinuz
initrd  /labctl/initrd.img
options ` + guestos.CloudKernelArgs + "\n"

// Cloud makes a disk for other hypervisors in the folder dir, as NAME.raw, as NAME.qcow2 and, in NAME-containerdisk.tar, as the OCI archive of a
// container image that KubeVirt boots from. It boots by UEFI and takes its identity from cloud-init (NoCloud or a config drive). Files of the same
// names are replaced when the new ones are whole.
func Cloud(ctx context.Context, opts Options, dir string) ([]images.File, error) {
	opts.Cloud = true
	if err := layout.CheckName("image", opts.Name); err != nil {
		return nil, err
	}
	if err := opts.begin(); err != nil {
		return nil, err
	}
	s, err := newState(opts)
	if err != nil {
		return nil, err
	}
	var files []images.File
	stages := s.imageStages()
	stages[len(stages)-1] = stage.Stage[state]{Name: "cloud", Run: func(ctx context.Context, s *state, progress func(string)) (err error) {
		files, err = s.assemble(ctx, dir, progress)
		return err
	}}
	err = stage.Run(ctx, s, opts.Sink, stages...)
	return files, err
}

// assemble makes the files of a cloud image from the baked disk.
func (s *state) assemble(ctx context.Context, dir string, progress func(string)) (files []images.File, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	place := sha256.Sum256([]byte(absolute))
	lock := flock.New(s.Home.Lock("cloud", hex.EncodeToString(place[:6])))
	if got, err := lock.TryLock(); err != nil {
		return nil, err
	} else if !got {
		progress("another build writes into " + dir + "; waiting")
		if _, err := lock.TryLockContext(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	// What a build that was killed has left.
	old, err := filepath.Glob(filepath.Join(dir, ".cloud-*"))
	if err != nil {
		return nil, err
	}
	for _, left := range old {
		if err := os.RemoveAll(left); err != nil {
			return nil, err
		}
	}
	tmp, err := os.MkdirTemp(dir, ".cloud-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	names := []string{s.Name + ".raw", s.Name + ".qcow2", s.Name + "-containerdisk.tar"}
	raw, qcow, archive := filepath.Join(tmp, names[0]), filepath.Join(tmp, names[1]), filepath.Join(tmp, names[2])
	progress("disk")
	if err := s.partition(ctx, raw); err != nil {
		return nil, fmt.Errorf("partition %s: %w", names[0], err)
	}
	progress("qcow2")
	if _, err := s.Runner.Run(ctx, run.Cmd{Argv: []string{"qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-o", "compression_type=zstd", raw, qcow}}); err != nil {
		return nil, err
	}
	progress("container disk")
	// KubeVirt reads the one file below /disk, as the user of its QEMU.
	const qemuUser = 107
	layer, err := container.EntryLayer(filepath.Join(tmp, "layer.tar"),
		container.Entry{Path: "disk/", UID: qemuUser, GID: qemuUser}, container.Entry{Path: "disk/" + names[1], File: qcow, Mode: 0o440, UID: qemuUser, GID: qemuUser})
	if err != nil {
		return nil, err
	}
	if err := container.WriteArchive(archive, filepath.Join(tmp, "layout"), []container.Image{{Name: "labctl/" + s.Name + ":" + shortKey(string(s.recipe)), Layers: []v1.Layer{layer}}}); err != nil {
		return nil, err
	}
	var sums strings.Builder
	for _, name := range names {
		progress("digest of " + name)
		// The disk holds the keys of its platform, which its instances share.
		if err := os.Chmod(filepath.Join(tmp, name), 0o600); err != nil {
			return nil, err
		}
		file, err := store.HashFile(ctx, filepath.Join(tmp, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		fmt.Fprintf(&sums, "%s  %s\n", file.SHA256, name)
	}
	const list = "SHA256SUMS"
	if err := os.WriteFile(filepath.Join(tmp, list), []byte(sums.String()), 0o644); err != nil {
		return nil, err
	}
	for _, name := range append(names, list) {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// partition writes a disk with a boot partition and the baked root.
func (s *state) partition(ctx context.Context, file string) (err error) {
	baked, made := layout.ImageDir(s.dirs[stageBake]), layout.ImageDir(s.dirs[stageDisk])
	root, err := os.Open(baked.Disk())
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat()
	if err != nil {
		return err
	}
	rootSize := (info.Size() + alignment - 1) / alignment * alignment
	rootStart := int64(alignment + espSize)
	d, err := diskfs.Create(file, rootStart+rootSize+alignment, diskfs.SectorSize512)
	if err != nil {
		return err
	}
	table := &gpt.Table{ProtectiveMBR: true, LogicalSectorSize: sector, PhysicalSectorSize: sector, Partitions: []*gpt.Partition{
		{Index: 1, Start: alignment / sector, End: uint64(rootStart/sector - 1), Type: gpt.EFISystemPartition, Name: "boot"},
		{Index: 2, Start: uint64(rootStart / sector), End: uint64((rootStart+rootSize)/sector - 1), Type: gpt.LinuxRootX86_64, Name: "root"},
	}}
	err = d.Partition(table)
	if err == nil {
		err = fillBoot(d, map[string]string{
			"/EFI/BOOT/BOOTX64.EFI": filepath.Join(string(made), bootLoader), "/labctl/vmlinuz": baked.Kernel(), "/labctl/initrd.img": baked.Initrd(),
		}, map[string]string{"/loader/loader.conf": "default labctl.conf\ntimeout 0\n", "/loader/entries/labctl.conf": bootEntry})
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	// What is not written stays a hole.
	_, err = s.Runner.Run(ctx, run.Cmd{Argv: []string{"dd", "if=" + baked.Disk(), "of=" + file, "bs=1M", fmt.Sprintf("seek=%d", rootStart>>20), "conv=notrunc,sparse", "status=none"}})
	return err
}

// fillBoot makes the boot partition's file system.
func fillBoot(d *disk.Disk, files, texts map[string]string) error {
	fat, err := d.CreateFilesystem(disk.FilesystemSpec{Partition: 1, FSType: filesystem.TypeFat32, VolumeLabel: "LABBOOT"})
	if err != nil {
		return err
	}
	for _, dir := range []string{"/EFI", "/EFI/BOOT", "/loader", "/loader/entries", "/labctl"} {
		if err := fat.Mkdir(dir); err != nil {
			return err
		}
	}
	write := func(path string, from io.Reader) error {
		f, err := fat.OpenFile(path, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, from)
		return errors.Join(err, f.Close())
	}
	for path, text := range texts {
		if err := write(path, strings.NewReader(text)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for path, file := range files {
		in, err := os.Open(file)
		if err != nil {
			return err
		}
		err = write(path, in)
		if err := errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return fat.Close()
}

func shortKey(key string) string { return strings.TrimPrefix(key, "sha256:")[:12] }
