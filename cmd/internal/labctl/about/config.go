// Package about has the commands that tell of labctl itself: config, version and the help topics.
package about

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/config"
)

// NewConfig is the command config with its children.
func NewConfig(f *factory.Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the settings and where each comes from",
		Long:  configHelp(),
	}
	var format ui.Format
	show := &cobra.Command{
		Use: "show", Short: "Show every setting's value and where it comes from", Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error { return showConfig(f, format) },
	}
	ui.AddFormat(show, &format)
	var pathFormat ui.Format
	path := &cobra.Command{
		Use: "path", Short: "Show which settings file is read", Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if pathFormat == ui.JSON {
				return f.UI().JSON(struct {
					Schema string `json:"schema"`
					Path   string `json:"path"`
					Read   bool   `json:"read"`
				}{ui.Schema("config-path"), f.Settings().File, f.Settings().FileRead})
			}
			f.UI().Print("%s", f.Settings().File)
			if !f.Settings().FileRead {
				f.UI().Note("it does not exist, so that nothing is read from it")
			}
			return nil
		},
	}
	ui.AddFormat(path, &pathFormat)
	cmd.AddCommand(show, path)
	return cmd
}

func configHelp() string {
	var b strings.Builder
	b.WriteString(`Settings come from, the later winning: labctl's defaults, the settings file, the environment, flags. The file is
~/.config/labctl/config.yaml, or what --config or LABCTL_CONFIG names. What labctl does not know in it is an error.

  # an example
  instance:
    cpus: 4
    memory: 6GiB
  accelerator: tcg

Sizes are written with a unit (512MiB, 3GiB), times too (90s, 10m). Paths in the file may be relative to its folder.

Settings:
`)
	var table ui.Table
	table.Indent = "  "
	for _, d := range config.Docs() {
		table.Row(d.Key, d.Meaning)
	}
	table.Write(&b)
	b.WriteString("\nIn the environment image.modulesDir is LABCTL_IMAGE_MODULES_DIR, and so on.")
	return b.String()
}

func showConfig(f *factory.Factory, format ui.Format) error {
	settings := f.Settings()
	if format == ui.JSON {
		return f.UI().JSON(struct {
			Schema   string           `json:"schema"`
			File     string           `json:"file"`
			FileRead bool             `json:"fileRead"`
			Settings []config.Setting `json:"settings"`
		}{ui.Schema("config"), settings.File, settings.FileRead, settings.Settings})
	}
	u := f.UI()
	var table ui.Table
	table.Row("SETTING", "VALUE", "FROM")
	for _, s := range settings.Settings {
		paint := u.Result.Dim
		if s.Source.Kind != "default" {
			paint = u.Result.Bold
		}
		value := s.Value
		if value == "" {
			value = "-"
		}
		table.Cells(ui.Cell{Text: s.Key}, ui.Cell{Text: value, Paint: paint}, ui.Cell{Text: fmt.Sprint(s.Source), Paint: paint})
	}
	table.Write(f.Out)
	return nil
}
