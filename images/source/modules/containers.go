package modules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cgoa-labs/labctl/bootstrap/argocd"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/source"
)

// containersRecipe changes when images are put together differently.
const containersRecipe = "3"

func (s *Source) containersKey(needs map[string]cache.Key) (cache.Key, error) {
	h := cache.NewHash(source.Containers).Strings(containersRecipe, fmt.Sprint(s.pins.Images))
	for _, need := range []string{source.ArgoCD, partCoreDNS, partPause, partDebian} {
		h.Strings(need, string(needs[need]))
	}
	return h.Key()
}

// buildContainers makes every image that the guest runs. All but pause and CoreDNS share Debian's layer.
func (s *Source) buildContainers(_ context.Context, needs map[string]string, out string, report func(string)) error {
	scratch := filepath.Join(out, "scratch")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return err
	}
	core, err := os.ReadFile(filepath.Join(needs[source.ArgoCD], source.CoreManifest))
	if err != nil {
		return err
	}
	argoNames, err := argocd.Images(core)
	if err != nil {
		return err
	}
	base, err := container.FileLayer(filepath.Join(needs[partDebian], debianLayer))
	if err != nil {
		return err
	}
	layer := func(name string, entries ...container.Entry) (v1.Layer, error) {
		return container.EntryLayer(filepath.Join(scratch, name+".tar"), entries...)
	}
	standIns := s.StandIns()
	var list []container.Image
	for _, ref := range argoNames {
		img, err := argoImage(ref, base, layer, needs[source.ArgoCD])
		if err != nil {
			return err
		}
		img.StandIn = standIns["argocd"]
		if isRedis(ref) {
			img.StandIn = standIns["redis"]
		}
		list = append(list, img)
	}
	single := func(ref, program, file string, config v1.Config) error {
		l, err := layer(program, container.Entry{Path: program, File: file, Mode: 0o755})
		if err != nil {
			return err
		}
		list = append(list, container.Image{Name: ref, Layers: []v1.Layer{l}, Config: config, StandIn: standIns[ref]})
		return nil
	}
	if err := single(s.pins.Images.Pause, "pause", filepath.Join(needs[partPause], partPause), v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"}); err != nil {
		return err
	}
	if err := single(s.pins.Images.CoreDNS, "coredns", filepath.Join(needs[partCoreDNS], partCoreDNS), v1.Config{Entrypoint: []string{"/coredns"}}); err != nil {
		return err
	}
	list = append(list, container.Image{Name: s.pins.Images.Gitd, Layers: []v1.Layer{base}, Config: v1.Config{Cmd: []string{"git", "daemon"}}})
	for _, ref := range s.pins.Images.Lab {
		img, err := nginxImage(ref, base, layer)
		if err != nil {
			return err
		}
		img.StandIn = standIns[ref]
		list = append(list, img)
	}
	report(fmt.Sprintf("%d images", len(list)))
	layoutDir := filepath.Join(scratch, "layout")
	if err := container.WriteArchive(filepath.Join(out, source.Archive), layoutDir, list); err != nil {
		return err
	}
	return os.RemoveAll(scratch)
}

func isRedis(ref string) bool { return strings.Contains(ref, "/redis:") }

type layerFunc func(name string, entries ...container.Entry) (v1.Layer, error)

func argoImage(ref string, base v1.Layer, layer layerFunc, part string) (container.Image, error) {
	if isRedis(ref) {
		return container.Image{Name: ref, Layers: []v1.Layer{base}, Config: v1.Config{Entrypoint: []string{"redis-server"}, User: "999"}}, nil
	}
	entries := []container.Entry{{Path: "usr/local/bin/argocd", File: filepath.Join(part, source.RootDir, binDir, "argocd"), Mode: 0o755}}
	for _, name := range argoScripts {
		entries = append(entries, container.Entry{Path: "usr/local/bin/" + name, File: filepath.Join(part, name), Mode: 0o755})
	}
	for _, alias := range []string{"application-controller", "applicationset-controller", "repo-server", "server", "cmp-server", "commit-server", "dex", "notifications", "git-ask-pass", "k8s-auth"} {
		entries = append(entries, container.Entry{Path: "usr/local/bin/argocd-" + alias, Link: "argocd"})
	}
	l, err := layer("argocd", entries...)
	return container.Image{Name: ref, Layers: []v1.Layer{base, l}, Config: v1.Config{
		Entrypoint: []string{"/usr/bin/tini", "--"}, User: "999", WorkingDir: "/home/argocd", Env: []string{"USER=argocd", "HOME=/home/argocd", "PATH=/usr/local/bin:/usr/bin:/bin"},
	}}, err
}

// nginxConfig runs in a container of any user, logs to its standard streams and keeps one worker: a lab's pods only have to be Ready.
const nginxConfig = `worker_processes 1;
pid /tmp/nginx.pid;
error_log /dev/stderr warn;
events { worker_connections 64; }
http {
  access_log off;
  server_tokens off;
  server { listen 80; root /usr/share/nginx/html; add_header X-Labctl-Stand-In "%[1]s" always; }
}
`

func nginxImage(ref string, base v1.Layer, layer layerFunc) (container.Image, error) {
	parsed, err := name.NewTag(ref)
	if err != nil {
		return container.Image{}, err
	}
	page := fmt.Sprintf("<!doctype html><title>%[1]s</title><p>This is labctl's stand-in for %[1]s: Debian's nginx under that name.</p>\n", ref)
	l, err := layer("nginx-"+parsed.TagStr(),
		container.Entry{Path: "etc/nginx/nginx.conf", Content: fmt.Appendf(nil, nginxConfig, ref)},
		container.Entry{Path: "usr/share/nginx/html/index.html", Content: []byte(page)},
	)
	return container.Image{Name: ref, Layers: []v1.Layer{base, l}, Config: v1.Config{
		Entrypoint: []string{"/usr/bin/tini", "--", "nginx"}, Cmd: []string{"-g", "daemon off;"}, ExposedPorts: map[string]struct{}{"80/tcp": {}},
		StopSignal: "SIGQUIT", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}}, err
}
