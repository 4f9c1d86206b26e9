// Package k3s configures the cluster inside a guest, the same way for k3s's own release and for its stand-in.
package k3s

import (
	"bytes"
	_ "embed"
	"text/template"

	"github.com/cgoa-labs/labctl/bootstrap"
)

var (
	//go:embed k3s.service
	unit []byte
	//go:embed config.yaml
	config []byte
	//go:embed coredns.yaml.tmpl
	corednsTemplate string
	//go:embed sysctl.conf
	sysctl []byte
)

// Files are the cluster's unit, configuration and add-ons. standIn says that the server is labctl's stand-in, which, unlike k3s,
// packs no add-on of its own, and is tuned to stay quiet on an emulated CPU.
func Files(images bootstrap.Images, standIn bool) ([]bootstrap.File, error) {
	cfg := append([]byte{}, config...)
	files := []bootstrap.File{
		{Path: "/etc/systemd/system/k3s.service", Content: unit, Mode: 0o644},
		{Path: "/etc/sysctl.d/90-k3s.conf", Content: sysctl, Mode: 0o644},
		{Path: "/etc/modules-load.d/k3s.conf", Content: []byte("overlay\nbr_netfilter\nnf_conntrack\n"), Mode: 0o644},
	}
	if standIn {
		cfg = append(cfg, standInConfig(images)...)
		addOn, err := CoreDNS(images)
		if err != nil {
			return nil, err
		}
		files = append(files, addOn)
	}
	return append(files, bootstrap.File{Path: bootstrap.K3sConfig, Content: cfg, Mode: 0o600}), nil
}

func standInConfig(images bootstrap.Images) []byte {
	return []byte("pause-image: " + images.Pause + "\n")
}

// CoreDNS is the add-on that k3s packs itself and its stand-in does not.
func CoreDNS(images bootstrap.Images) (bootstrap.File, error) {
	t, err := template.New("coredns").Option("missingkey=error").Parse(corednsTemplate)
	if err != nil {
		return bootstrap.File{}, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]string{"Image": images.CoreDNS, "ClusterDNS": bootstrap.ClusterDNS})
	return bootstrap.File{Path: bootstrap.ManifestDir + "/coredns.yaml", Content: out.Bytes(), Mode: 0o600}, err
}
