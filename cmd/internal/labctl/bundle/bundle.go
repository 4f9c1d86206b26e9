// Package bundle has the commands that carry a golden image to a machine without a network.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
	"github.com/cgoa-labs/labctl/images/bundle"
	"github.com/cgoa-labs/labctl/images/versions"
)

// document is the result of every bundle command as JSON.
type document struct {
	Schema  string          `json:"schema"`
	File    string          `json:"file"`
	Bytes   int64           `json:"bytes"`
	Bundle  bundle.Manifest `json:"bundle,omitzero"`
	Image   *images.Image   `json:"image,omitempty"`
	Known   bool            `json:"known,omitempty"`
	Timings []ui.Timing     `json:"timings"`
}

// New is the command bundle with its children.
func New(f *factory.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Carry a golden image to a machine without a network",
		Long: `Carry a golden image to a machine without a network, as one file. The other machine needs QEMU, and labctl's programs: copy its folder bin as well.

  labctl bundle create lab.bundle     here
  labctl bundle load lab.bundle       there, and then labctl up

A bundle holds the keys of the image's platform, which its instances share; keep it as private as the image.`,
	}
	cmd.AddCommand(newCreate(f), newInspect(f), newLoad(f))
	return cmd
}

func newCreate(f *factory.Factory) *cobra.Command {
	var format ui.Format
	cmd := &cobra.Command{
		Use:     "create FILE",
		Short:   "Write a golden image into a bundle",
		Long:    "Write the golden image that the settings name into a bundle, with a list of what it is made of (SPDX). Every byte is compared with the image's digests. An image that lacks a container image that labs name is refused.",
		Example: "  labctl bundle create lab.bundle\n  labctl bundle create lab.bundle --image lab -o json",
		Args:    cli.OneArg("the file to write"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, path := cmd.Context(), args[0]
			if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
				return &cli.UsageError{Msg: "there is no folder " + filepath.Dir(path), Fix: "make it, or write somewhere else"}
			}
			img, err := f.Images().Get(ctx, f.Settings().Image.Name)
			if err != nil {
				return err
			}
			pins, err := versions.Load()
			if err != nil {
				return err
			}
			doc := document{Schema: ui.Schema("bundle-create"), File: path}
			progress := f.UI().NewProgress()
			defer progress.Close()
			if err := run(ctx, progress, "write "+path, func(ctx context.Context, detail func(string)) (err error) {
				doc.Bundle, err = bundle.Create(ctx, img, pins.Images.Lab, path, detail)
				return err
			}); err != nil {
				return err
			}
			return finish(f, &doc, progress, format, func() string {
				return fmt.Sprintf("image %s is in %s (%s); `labctl bundle load` takes it out on another machine", img.Metadata.Name, path, ui.Bytes(doc.Bytes))
			})
		},
	}
	factory.Setting(cmd, "image.name", "image", "NAME", "golden image")
	ui.AddFormat(cmd, &format)
	return cmd
}

func newInspect(f *factory.Factory) *cobra.Command {
	var format ui.Format
	cmd := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Read a whole bundle, and show what is in it",
		Example: "  labctl bundle inspect lab.bundle",
		Args:    cli.OneArg("a bundle"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, path := cmd.Context(), args[0]
			if err := there(path); err != nil {
				return err
			}
			doc := document{Schema: ui.Schema("bundle"), File: path}
			progress := f.UI().NewProgress()
			defer progress.Close()
			if err := run(ctx, progress, "read "+path, func(ctx context.Context, detail func(string)) (err error) {
				doc.Bundle, err = bundle.Inspect(ctx, path, detail)
				return err
			}); err != nil {
				return err
			}
			return finish(f, &doc, progress, format, func() string {
				m := doc.Bundle.Image
				var parts strings.Builder
				for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
					fmt.Fprintf(&parts, "  %s %s\n", name, m.Versions[name])
				}
				return fmt.Sprintf("image %s, built %s from %s, digest %s\n%s%s is whole (%s)", m.Name, m.Created.Local().Format("2006-01-02 15:04"), m.Source, m.Digest, parts.String(), path, ui.Bytes(doc.Bytes))
			})
		},
	}
	ui.AddFormat(cmd, &format)
	return cmd
}

func newLoad(f *factory.Factory) *cobra.Command {
	var name string
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "load FILE",
		Short: "Take a golden image out of a bundle",
		Long: `Take a golden image out of a bundle. The image appears when all of it was compared with its digests; a wrong, cut off or altered bundle changes
nothing.`,
		Example: "  labctl bundle load lab.bundle\n  labctl bundle load lab.bundle --name spring",
		Args:    cli.OneArg("a bundle"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, path := cmd.Context(), args[0]
			if err := there(path); err != nil {
				return err
			}
			if cmd.Flags().Changed("name") {
				if err := layout.CheckName("image", name); err != nil {
					return err
				}
			}
			doc := document{Schema: ui.Schema("bundle-load"), File: path}
			progress := f.UI().NewProgress()
			defer progress.Close()
			if err := run(ctx, progress, "load "+path, func(ctx context.Context, detail func(string)) error {
				img, known, err := bundle.Load(ctx, path, f.Home(), name, detail)
				doc.Image, doc.Known = &img, known
				if err == nil && known {
					return stage.ErrCached
				}
				return err
			}); err != nil {
				return err
			}
			return finish(f, &doc, progress, format, func() string {
				if doc.Known {
					return fmt.Sprintf("image %s was there already, the very same", doc.Image.Metadata.Name)
				}
				next := "labctl up"
				if doc.Image.Metadata.Name != f.Settings().Image.Name {
					next += " --image " + doc.Image.Metadata.Name
				}
				return fmt.Sprintf("image %s is loaded; `%s` makes an instance of it", doc.Image.Metadata.Name, next)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the image's `NAME` here, instead of the one that it had")
	ui.AddFormat(cmd, &format)
	return cmd
}

// there refuses a file that cannot be read as what was typed wrong.
func there(path string) error {
	file, err := layout.Open(path)
	if err != nil {
		return &cli.UsageError{Msg: fmt.Sprintf("cannot read %s: %v", path, errors.Unwrap(err)), Fix: "name a file that `labctl bundle create` wrote"}
	}
	return file.Close()
}

// run does it as one stage.
func run(ctx context.Context, progress *ui.Progress, name string, do func(ctx context.Context, detail func(string)) error) error {
	return stage.Bare(stage.One(ctx, progress.Sink(""), name, do))
}

func finish(f *factory.Factory, doc *document, progress *ui.Progress, format ui.Format, say func() string) error {
	progress.Close()
	if info, err := os.Stat(doc.File); err == nil {
		doc.Bytes = info.Size()
	}
	doc.Timings = progress.Timings()
	if format == ui.JSON {
		return f.UI().JSON(doc)
	}
	f.UI().Print("%s", say())
	return nil
}
