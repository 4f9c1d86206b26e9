package about

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/images"
	pinning "github.com/cgoa-labs/labctl/images/versions"
)

// versions is the result of version as JSON.
type versions struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Hypervisor, Labs and Images are told with --all.
	Hypervisor string           `json:"hypervisor,omitempty"`
	Labs       []labrun.Program `json:"labs,omitempty"`
	Images     []image.Parts    `json:"images,omitempty"`
	// Pinned are told where there is no image yet.
	Pinned []pinned `json:"pinned,omitempty"`
}

// pinned are the versions that a build from a source takes.
type pinned struct {
	Source   images.SourceName `json:"source"`
	Versions map[string]string `json:"versions"`
}

// NewVersion is the command version.
func NewVersion(f *factory.Factory) *cobra.Command {
	var all bool
	var format ui.Format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show labctl's version and, on request, every part's",
		Example: "  labctl version\n  labctl version --all -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := own()
			if all {
				if err := v.add(cmd.Context(), f); err != nil {
					return err
				}
			}
			if format == ui.JSON {
				return f.UI().JSON(v)
			}
			v.print(f.UI())
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also the hypervisor, the labs and what each image is made of")
	ui.AddFormat(cmd, &format)
	return cmd
}

// own is what the Go toolchain recorded in this program.
func own() versions {
	v := versions{Schema: ui.Schema("version"), Version: cli.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v *versions) add(ctx context.Context, f *factory.Factory) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	info := driver.Info()
	v.Hypervisor = info.Name + " " + info.Version
	if info.Version == "" {
		v.Hypervisor = info.Name + " (not installed)"
	}
	for _, lab := range labrun.All() {
		p, err := labrun.Locate(f.Settings().GuestDir, lab)
		if missing := new(labrun.MissingError); errors.As(err, &missing) {
			continue
		} else if err != nil {
			return err
		}
		v.Labs = append(v.Labs, p)
	}
	all, _ := f.Images().List(ctx) // doctor tells what is wrong with the others
	for _, img := range all {
		v.Images = append(v.Images, image.PartsOf(img))
	}
	if len(all) > 0 {
		return nil
	}
	pins, err := pinning.Load()
	if err != nil {
		return err
	}
	for _, source := range []struct {
		name  images.SourceName
		parts map[string]pinning.Part
	}{{images.Release, pins.Release.Parts}, {images.Modules, pins.Modules.Parts}} {
		p := pinned{source.name, map[string]string{"debian": pins.Modules.DebianSuite}}
		for name, part := range source.parts {
			p.Versions[name] = part.Version
		}
		v.Pinned = append(v.Pinned, p)
	}
	return nil
}

func (v versions) print(u *ui.UI) {
	line := "labctl " + v.Version
	if v.Revision != "" {
		line += " " + v.Revision[:min(len(v.Revision), 12)]
		if v.Modified {
			line += " with changes"
		}
	}
	u.Print("%s (%s, %s)", line, v.Go, v.Platform)
	if v.Hypervisor != "" {
		u.Print("%s", v.Hypervisor)
	}
	for _, lab := range v.Labs {
		u.Print("lab %s: %s", lab.Lab, lab.SHA256[:12])
	}
	for _, img := range v.Images {
		img.Print(u)
	}
	for _, p := range v.Pinned {
		u.Print("no image yet; one from %s takes:", p.Source)
		table := ui.Table{Indent: "  "}
		for _, name := range slices.Sorted(maps.Keys(p.Versions)) {
			table.Row(name, p.Versions[name])
		}
		table.Write(u.Out)
	}
}
