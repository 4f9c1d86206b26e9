package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/images"
)

func newBuild(f *factory.Factory) *cobra.Command {
	var force, noFreeze bool
	var out string
	to := targetQEMU
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a golden image",
		Long: `Build a golden image. Only what has changed since the last build is made again, and an interrupted build goes on
where it stopped. An image that instances stand on is not replaced.

At the end the image is booted and its guest is frozen: memory, devices and disk are saved when the platform is ready, so that
instances of the same shape (instance.cpus, instance.memory, instance.disk) need no boot. A frozen guest belongs to this host's
QEMU; after an upgrade the same command makes another.

The parts come from one of two sources: release takes upstream's own files, modules builds them from Go modules and Debian
packages. auto takes release where upstream answers within two seconds, and says which it took and why.

release takes files by the checksums that upstream publishes, and container images for the guest's platform only. A download that
was cut goes on where it stopped. HTTPS_PROXY and NO_PROXY are followed, and so are ` + "`docker login`" + `'s credentials; image.releaseMirror
and image.registryMirrors name mirrors. With image.lock, written by ` + "`labctl image lock`" + `, nothing but what is locked is taken.

With --target cloud the same parts become a disk for other hypervisors: it boots by UEFI, takes name, keys and network from cloud-init
(NoCloud or a config drive), and is written as raw, as qcow2, and as a container image that KubeVirt boots from.`,
		Example: `  labctl image build
  labctl image build --target cloud --out disks
  labctl image build --source modules
  labctl image build --force`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case to == targetCloud && force:
				return cli.Misused(cmd, "--force goes with --target qemu")
			case to == targetCloud:
				return buildCloud(cmd.Context(), f, out, format)
			case cmd.Flags().Changed("out"):
				return cli.Misused(cmd, "--out goes with --target cloud")
			}
			return build(cmd.Context(), f, factory.Build{Force: force, NoFreeze: noFreeze}, format)
		},
	}
	factory.Setting(cmd, "image.name", "name", "NAME", "name of the image")
	factory.Setting(cmd, "image.source", "source", "NAME", "auto, release or modules")
	factory.Setting(cmd, "image.modulesDir", "modules-dir", "DIR", "source tree that parts are built from")
	factory.Setting(cmd, "image.aptMirror", "apt-mirror", "URL", "where Debian packages come from")
	factory.Setting(cmd, "image.lock", "lock", "FILE", "take nothing but what this lock FILE has")
	factory.Setting(cmd, "timeouts.build", "timeout", "TIME", "longest wait for the build")
	cmd.Flags().Var(&to, "target", "qemu: an image for this machine's instances; cloud: a disk for other hypervisors")
	cmd.Flags().StringVar(&out, "out", "cloud", "with --target cloud: `DIR` to write the disk to")
	cmd.Flags().BoolVar(&noFreeze, "no-freeze", false, "leave out the frozen guest, such as for an image that is only bundled: its instances boot")
	cmd.Flags().BoolVar(&force, "force", false, "build it again even if nothing has changed, such as when it is damaged")
	ui.AddFormat(cmd, &format)
	return cmd
}

func build(ctx context.Context, f *factory.Factory, b factory.Build, format ui.Format) error {
	builder, err := f.Builder()
	if err != nil {
		return err
	}
	if err := refuseStranding(ctx, f, builder, b.Force); err != nil {
		return err
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	img, err := Make(ctx, f, builder, b, progress)
	if err != nil {
		return err
	}
	progress.Close()
	progress.Summary()
	if format == ui.JSON {
		return f.UI().JSON(document{Schema: ui.Schema("image-build"), Image: img, Dir: img.Dir, Timings: progress.Timings()})
	}
	f.UI().Print("image %s is ready: %s, from %s, %s", img.Metadata.Name, short(img.Metadata.Digest), img.Metadata.Source, ui.Bytes(size(img)))
	return nil
}

// refuseStranding refuses a build that would put another image in the place of one that instances stand on: their disks
// would be useless without it.
func refuseStranding(ctx context.Context, f *factory.Factory, builder factory.Builder, force bool) error {
	name := f.Settings().Image.Name
	if !force {
		if current, err := builder.Current(ctx, factory.Build{Name: name}); err == nil && current {
			return nil // it stays as it is
		}
	}
	// Instances may also stand on an image whose metadata cannot be read.
	users, err := usedBy(ctx, f, f.Home().Image(name))
	if err != nil {
		return err
	}
	if len(users) == 0 {
		return nil
	}
	return &cli.UsageError{
		Msg: fmt.Sprintf("image %s cannot be replaced while %s stands on it", name, strings.Join(names(users), ", ")),
		Fix: "build another beside it with --name, or " + freeing(users),
	}
}

// target says what a build is for.
type target string

const (
	targetQEMU  target = "qemu"
	targetCloud target = "cloud"
)

// String, Set and Type implement pflag.Value.
func (t *target) String() string { return string(*t) }

func (t *target) Set(s string) error {
	if target(s) != targetQEMU && target(s) != targetCloud {
		return fmt.Errorf("use %s or %s", targetQEMU, targetCloud)
	}
	*t = target(s)
	return nil
}

func (t *target) Type() string { return "qemu|cloud" }

// buildCloud makes a disk for other hypervisors.
func buildCloud(ctx context.Context, f *factory.Factory, dir string, format ui.Format) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &cli.UsageError{Msg: fmt.Sprintf("cannot make the folder %s: %v", dir, bare(err)), Fix: "name another with --out"}
	}
	if err := writable(dir); err != nil {
		return err
	}
	builder, err := f.Builder()
	if err != nil {
		return err
	}
	c := f.Settings()
	progress := f.UI().NewProgress()
	defer progress.Close()
	b := factory.Build{Name: c.Image.Name, Sink: progress.Sink("image")}
	if err := factory.Preflight("build image "+b.Name, builder.Preflight(ctx, b)); err != nil {
		return err
	}
	progress.Note("a disk is made of image %s's parts: minutes where they are there, most of an hour on a small machine where they are not; an interrupted build goes on where it stopped", b.Name)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeouts.Build, fmt.Errorf("not built within %s", c.Timeouts.Build))
	defer cancel()
	files, err := builder.Cloud(ctx, b, dir)
	if err != nil {
		return fmt.Errorf("build a cloud disk of image %s: %w", b.Name, err)
	}
	progress.Close()
	progress.Summary()
	if format == ui.JSON {
		return f.UI().JSON(struct {
			Schema  string        `json:"schema"`
			Dir     string        `json:"dir"`
			Files   []images.File `json:"files"`
			Timings []ui.Timing   `json:"timings,omitempty"`
		}{ui.Schema("image-cloud"), dir, files, progress.Timings()})
	}
	var table ui.Table
	for _, file := range files {
		table.Row(filepath.Join(dir, file.Name), ui.Bytes(file.Size), short(file.SHA256))
	}
	table.Write(f.Out)
	return nil
}
