// Package gitd is the in-cluster git daemon: it exports the guest's bare repositories to Argo CD, read-only.
package gitd

import (
	"bytes"
	_ "embed"
	"text/template"

	"github.com/cgoa-labs/labctl/bootstrap"
)

//go:embed gitd.yaml.tmpl
var manifestTemplate string

// Files is the daemon's manifest.
func Files(images bootstrap.Images) ([]bootstrap.File, error) {
	t, err := template.New("gitd").Option("missingkey=error").Parse(manifestTemplate)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{
		"Image": images.Gitd, "Namespace": bootstrap.GitNamespace, "Name": bootstrap.GitDaemon, "Port": bootstrap.GitPort, "Root": bootstrap.GitRoot,
	}); err != nil {
		return nil, err
	}
	return []bootstrap.File{{Path: bootstrap.ManifestDir + "/gitd.yaml", Content: out.Bytes(), Mode: 0o600}}, nil
}
