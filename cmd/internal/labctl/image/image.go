// Package image has the commands on golden images: build, lock, list, inspect, rm.
package image

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/config/strict"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// New is the command image with its children.
func New(f *factory.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build, list, inspect and remove golden images",
		Long:  "A golden image holds the guest's system, k3s, Argo CD and all container images. Instances are cloned from it.",
	}
	cmd.AddCommand(newBuild(f), newLock(f), newList(f), newInspect(f), newRemove(f))
	return cmd
}

type document struct {
	Schema  string          `json:"schema"`
	Image   images.Image    `json:"image"`
	UsedBy  []string        `json:"usedBy,omitempty"`
	Checks  []check.Result  `json:"checks,omitempty"`
	Timings []ui.Timing     `json:"timings,omitempty"`
	Dir     layout.ImageDir `json:"dir"`
}

func size(img images.Image) (n int64) {
	for _, file := range img.Metadata.Files {
		n += file.Size
	}
	return n
}

func short(digest string) string {
	digest = strings.TrimPrefix(digest, "sha256:")
	return digest[:min(len(digest), 12)]
}

func newList(f *factory.Factory) *cobra.Command {
	var format ui.Format
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List golden images", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), f, format) },
	}
	ui.AddFormat(cmd, &format)
	return cmd
}

func list(ctx context.Context, f *factory.Factory, format ui.Format) error {
	all, bad := f.Images().List(ctx)
	for _, err := range bad {
		f.UI().Note("%v", err)
	}
	if format == ui.JSON {
		if all == nil {
			all = []images.Image{}
		}
		return f.UI().JSON(struct {
			Schema string         `json:"schema"`
			Images []images.Image `json:"images"`
		}{ui.Schema("images"), all})
	}
	if len(bad) > 0 && len(all) == 0 {
		return cli.Exit(cli.Trouble)
	}
	if len(all) == 0 {
		f.UI().Note("there is no image yet; `labctl up` or `labctl image build` makes one")
		return nil
	}
	var table ui.Table
	table.Row("NAME", "DIGEST", "SOURCE", "SIZE", "BUILT", "KUBERNETES", "ARGO CD")
	for _, img := range all {
		m := img.Metadata
		table.Row(m.Name, short(m.Digest), string(m.Source), ui.Bytes(size(img)), m.Created.Local().Format("2006-01-02 15:04"), cmp.Or(m.Versions["kubernetes"], m.Versions["k3s"]), m.Versions["argocd"])
	}
	table.Write(f.Out)
	return nil
}

func newInspect(f *factory.Factory) *cobra.Command {
	var verify bool
	var format ui.Format
	cmd := &cobra.Command{
		Use:               "inspect [NAME]",
		Short:             "Show what a golden image is made of, and check that it is there",
		Long:              "Show what a golden image is made of: versions, stand-ins, files. With --verify every file is read and compared with its digest.",
		Example:           "  labctl image inspect\n  labctl image inspect lab --verify",
		Args:              cli.OptionalArg("the name of an image"),
		ValidArgsFunction: f.CompleteOneImage,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := f.Settings().Image.Name
			if len(args) == 1 {
				name = args[0]
			}
			return inspect(cmd.Context(), f, name, verify, format)
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "read every file and compare it with its digest")
	ui.AddFormat(cmd, &format)
	return cmd
}

// find is the image of this name; the names that there are help where it is not there.
func find(ctx context.Context, f *factory.Factory, name string) (images.Image, error) {
	if err := layout.CheckName("image", name); err != nil {
		return images.Image{}, err
	}
	img, err := f.Images().Get(ctx, name)
	if err == nil {
		return img, nil
	}
	all, _ := f.Images().List(ctx)
	var names []string
	for _, other := range all {
		names = append(names, other.Metadata.Name)
	}
	if near := strict.Nearest(name, names); near != "" && near != name {
		return img, &cli.UsageError{Msg: err.Error(), Fix: "did you mean " + near + "?"}
	}
	return img, err
}

func inspect(ctx context.Context, f *factory.Factory, name string, verify bool, format ui.Format) error {
	img, err := find(ctx, f, name)
	if err != nil {
		return err
	}
	users, err := usedBy(ctx, f, img.Dir)
	if err != nil {
		return err
	}
	if err := f.Images().Check(img); err != nil {
		return err
	}
	if verify {
		progress := f.UI().NewProgress()
		defer progress.Close()
		if err := Prove(ctx, f, img, true, progress); err != nil {
			return err
		}
		progress.Close()
	}
	if format == ui.JSON {
		return f.UI().JSON(document{Schema: ui.Schema("image"), Image: img, Dir: img.Dir, UsedBy: names(users)})
	}
	m, u := img.Metadata, f.UI()
	var table ui.Table
	table.Row("name", m.Name)
	table.Row("digest", m.Digest)
	table.Row("folder", string(img.Dir))
	table.Row("source", string(m.Source))
	table.Row("built", m.Created.Local().Format("2006-01-02 15:04:05"))
	table.Row("needs", fmt.Sprintf("%d MiB of memory, %d GiB of disk", m.MinMemoryMiB, m.MinDiskGiB))
	if len(users) > 0 {
		table.Row("used by", strings.Join(names(users), ", "))
	}
	table.Write(u.Out)
	section(u, "versions", m.Versions)
	section(u, "stand-ins (parts that take another's place)", m.StandIns)
	digests := map[string]string{}
	for name, digest := range m.Containers {
		digests[name] = short(digest)
	}
	section(u, "container images", digests)
	u.Print("\n%s", u.Result.Bold("files"))
	files := ui.Table{Indent: "  "}
	for _, file := range m.Files {
		files.Row(file.Name, ui.Bytes(file.Size), short(file.SHA256))
	}
	files.Write(u.Out)
	return nil
}

func section(u *ui.UI, title string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	u.Print("\n%s", u.Result.Bold(title))
	table := ui.Table{Indent: "  "}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		table.Row(name, values[name])
	}
	table.Write(u.Out)
}

func refuseUsed(ctx context.Context, f *factory.Factory, dir layout.ImageDir, name string) error {
	users, err := usedBy(ctx, f, dir)
	if err != nil || len(users) == 0 {
		return err
	}
	return &cli.UsageError{Msg: fmt.Sprintf("image %s is used by %s", name, strings.Join(names(users), ", ")), Fix: freeing(users) + ", or keep the image"}
}

func names(users []provision.Status) (all []string) {
	for _, st := range users {
		all = append(all, st.Name)
	}
	return all
}

// freeing says what takes the first user away. Instances come before spares, which are nobody's work.
func freeing(users []provision.Status) string {
	if users[0].Spec.Spare {
		return "`labctl pool --size 0` first"
	}
	return "`labctl down " + users[0].Name + "` first (its work is lost)"
}

// usedBy lists the instances, and spares, whose disks stand on the image in the folder.
func usedBy(ctx context.Context, f *factory.Factory, dir layout.ImageDir) (users []provision.Status, err error) {
	driver, err := f.Driver()
	if err != nil {
		return nil, err
	}
	all, err := provision.Everything(ctx, driver)
	if err != nil {
		return nil, fmt.Errorf("list the instances: %w", err)
	}
	for _, st := range all {
		if st.Spec.Image == dir || st.Waiting != nil && st.Waiting.Spec.Image == dir {
			users = append(users, st)
		}
	}
	return users, nil
}

func newRemove(f *factory.Factory) *cobra.Command {
	var yes bool
	var format ui.Format
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a golden image",
		Long:              "Remove a golden image that no instance is made from. What it was built from stays in the cache, so that building it again is quick.",
		Args:              cli.OneArg("the name of an image"),
		ValidArgsFunction: f.CompleteOneImage,
		RunE: func(cmd *cobra.Command, args []string) error {
			return remove(cmd.Context(), f, args[0], yes, format)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	ui.AddFormat(cmd, &format)
	return cmd
}

func remove(ctx context.Context, f *factory.Factory, name string, yes bool, format ui.Format) error {
	img, err := find(ctx, f, name)
	if err != nil {
		return err
	}
	if err := refuseUsed(ctx, f, img.Dir, name); err != nil {
		return err
	}
	if err := f.Confirm(ctx, yes, fmt.Sprintf("Remove image %s (%s)?", name, ui.Bytes(size(img)))); err != nil {
		return err
	}
	// Somebody may have made an instance from it while the question was open.
	if err := refuseUsed(ctx, f, img.Dir, name); err != nil {
		return err
	}
	if err := f.Images().Remove(ctx, name); err != nil {
		return err
	}
	if format == ui.JSON {
		return f.UI().JSON(document{Schema: ui.Schema("image-rm"), Image: img, Dir: img.Dir})
	}
	f.UI().Print("image %s is removed", name)
	return nil
}
