// Package upstream is a local stand-in for the hosts that the release source fetches from, for tests and for machines that cannot reach them. It
// serves what the modules source built, under upstream's names and in upstream's layouts: a release host with redirects and ranges, and a
// registry with manifest lists and, where it is asked for, tokens. What it serves is not upstream's and says so where it is run.
package upstream

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/bootstrap/k3s"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/store"
	"github.com/cgoa-labs/labctl/images/versions"
)

// Host serves both upstream's files and its images.
type Host struct {
	// Before answers first and says whether it did. It may be nil.
	Before func(w http.ResponseWriter, r *http.Request) bool
	// Token is what the registry wants of those who pull; empty for nothing.
	Token string

	files    map[string]string // a file on this machine by its path at upstream
	latest   map[string]string // a project's newest version
	registry http.Handler
}

// New is a host with nothing on it. dir is a folder for its use.
func New(dir string) (*Host, error) {
	blobs := filepath.Join(dir, "blobs")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return nil, err
	}
	return &Host{
		files: map[string]string{}, latest: map[string]string{},
		registry: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs))),
	}, nil
}

// Release puts files, by their names, into a project's release, with a list of their checksums.
func (h *Host) Release(project, version, sums string, files map[string]string) error {
	base := "/" + project + "/releases/download/" + version + "/"
	var list bytes.Buffer
	for name, file := range files {
		described, err := store.HashFile(context.Background(), file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", described.SHA256, name)
		h.files[base+name] = file
	}
	for _, file := range files {
		lists := filepath.Join(filepath.Dir(file), strings.ReplaceAll(project, "/", "-")+"-"+sums)
		h.files[base+sums] = lists
		h.latest[project] = version
		return os.WriteFile(lists, list.Bytes(), 0o644)
	}
	return errors.New("a release without files")
}

// Raw puts a file of a project's repository at a tag.
func (h *Host) Raw(project, version, name, file string) {
	h.files["/"+project+"/"+version+"/"+name] = file
}

// Latest says which version of a project is its newest, where that is not the last that was released here.
func (h *Host) Latest(project, version string) { h.latest[project] = version }

// ServeHTTP implements http.Handler.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Before != nil && h.Before(w, r) {
		return
	}
	switch {
	case r.URL.Path == "/token":
		_ = json.NewEncoder(w).Encode(map[string]any{"token": h.Token, "expires_in": 300})
	case strings.HasPrefix(r.URL.Path, "/v2/"):
		if h.Token != "" && r.Header.Get("Authorization") != "Bearer "+h.Token {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service=%q`, r.Host, r.Host))
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		h.registry.ServeHTTP(w, r)
	case strings.HasSuffix(r.URL.Path, "/releases/latest"):
		project := strings.Trim(strings.TrimSuffix(r.URL.Path, "/releases/latest"), "/")
		http.Redirect(w, r, "/"+project+"/releases/tag/"+url.PathEscape(h.latest[project]), http.StatusFound)
	case strings.HasPrefix(r.URL.Path, "/stored/"):
		h.serve(w, r, strings.TrimPrefix(r.URL.Path, "/stored"))
	case strings.Contains(r.URL.Path, "/releases/download/"):
		// Upstream sends everybody on to where the files really are.
		http.Redirect(w, r, "/stored"+r.URL.EscapedPath(), http.StatusFound)
	default:
		h.serve(w, r, r.URL.Path)
	}
}

func (h *Host) serve(w http.ResponseWriter, r *http.Request, path string) {
	file, ok := h.files[path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	f, err := os.Open(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	http.ServeContent(w, r, "", time.Time{}, f)
}

// Push puts an image into the registry at address, which is where this host listens, as one of a list for several platforms.
func (h *Host) Push(address, repository, tag string, img v1.Image) error {
	ref, err := name.NewTag(address+"/"+repository+":"+tag, name.Insecure)
	if err != nil {
		return err
	}
	other, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "arm64", RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return err
	}
	list := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	var options []remote.Option
	if h.Token != "" {
		options = append(options, remote.WithTransport(bearer{h.Token}))
	}
	return remote.WriteIndex(ref, list, options...)
}

type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// Parts are the folders of what the modules source built, by their names there.
type Parts map[string]string

// Fill puts what the modules source built onto the host, as the versions that are pinned for upstream. address is where the host listens; dir is
// an empty folder for what is made on the way.
func (h *Host) Fill(address, dir string, parts Parts, pins versions.Versions) error {
	server, argo := pins.Release.Parts["k3s"].Version, pins.Release.Parts["argocd"].Version
	all, err := container.Read(filepath.Join(parts[source.Containers], source.Archive), filepath.Join(dir, "layout"))
	if err != nil {
		return err
	}
	binary, airgap := filepath.Join(dir, "k3s"), filepath.Join(dir, "airgap")
	if err := errors.Join(
		selfExtracting(filepath.Join(parts[source.Server], source.RootDir), binary, pins.Images.CoreDNS),
		airgapArchive(airgap, all, pins.Images.Pause, pins.Images.CoreDNS),
	); err != nil {
		return err
	}
	if err := h.Release("k3s-io/k3s", server, "sha256sum-amd64.txt", map[string]string{"k3s": binary, "k3s-airgap-images-amd64.tar.zst": airgap}); err != nil {
		return err
	}
	cli := filepath.Join(dir, "argocd")
	if err := os.Link(filepath.Join(parts[source.ArgoCD], source.RootDir, "usr/local/bin/argocd"), cli); err != nil {
		return err
	}
	if err := h.Release("argoproj/argo-cd", argo, "cli_checksums.txt", map[string]string{"argocd-linux-amd64": cli}); err != nil {
		return err
	}
	// The manifests name their own version's image; upstream's name theirs.
	core, err := os.ReadFile(filepath.Join(parts[source.ArgoCD], source.CoreManifest))
	if err != nil {
		return err
	}
	built := pins.Modules.Parts["argocd"].Version
	file := filepath.Join(dir, source.CoreManifest)
	if err := os.WriteFile(file, bytes.ReplaceAll(core, []byte("/argocd:"+built), []byte("/argocd:"+argo)), 0o644); err != nil {
		return err
	}
	h.Raw("argoproj/argo-cd", argo, "manifests/"+source.CoreManifest, file)
	for ref, img := range all {
		if ref == fullName(pins.Images.Gitd) || ref == fullName(pins.Images.Pause) || ref == fullName(pins.Images.CoreDNS) {
			continue
		}
		registryAndPath, tag, _ := strings.Cut(ref, ":")
		_, repository, _ := strings.Cut(registryAndPath, "/")
		if strings.HasSuffix(repository, "/argocd") && tag == built {
			tag = argo
		}
		if err := h.Push(address, repository, tag, img); err != nil {
			return fmt.Errorf("push %s: %w", ref, err)
		}
	}
	return nil
}

// fullName is a reference as the archive has it.
func fullName(image string) string {
	ref, err := name.ParseReference(image)
	if err != nil {
		return image
	}
	host := ref.Context().RegistryStr()
	if host == name.DefaultRegistry {
		host = "docker.io"
	}
	return host + "/" + ref.Context().RepositoryStr() + ":" + ref.Identifier()
}

// airgapArchive writes images as k3s's air-gap archive has them.
func airgapArchive(file string, all map[string]v1.Image, names ...string) (err error) {
	refs := map[name.Reference]v1.Image{}
	for _, n := range names {
		tag, err := name.NewTag(n)
		if err != nil {
			return err
		}
		refs[tag] = all[fullName(n)]
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	return errors.Join(tarball.MultiRefWrite(refs, w), w.Close())
}

// front is what k3s's own binary does: it holds the programs, puts them below its data folder the first time that it runs, and runs the one that
// is asked for.
const front = `#!/bin/sh
# labctl's stand-in for the binary of k3s's release: the programs of labctl's own stand-in for k3s, in one file as upstream has it.
data=/var/lib/rancher/k3s/data
if [ ! -x $data/current/bin/k3s ]; then
  mkdir -p $data && new=$(mktemp -d $data/new.XXXXXX) && chmod 755 $new && tail -c +@OFFSET@ "$0" | tar -xz -C $new || exit 1
  mv -T $new $data/current 2>/dev/null || rm -rf $new
fi
if [ "$1" = server ]; then # it brings its add-ons along
  mkdir -p /var/lib/rancher/k3s/server/manifests && cp $data/current/manifests/* /var/lib/rancher/k3s/server/manifests || exit 1
fi
case "${0##*/}" in
kubectl|crictl|ctr) exec $data/current/bin/k3s "${0##*/}" "$@" ;;
esac
exec $data/current/bin/k3s "$@"
`

// selfExtracting makes the one file of the programs below root.
func selfExtracting(root, file, corednsImage string) (err error) {
	addOn, err := k3s.CoreDNS(bootstrap.Images{CoreDNS: corednsImage})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	script := front
	for range 2 { // the number's own length counts
		script = strings.ReplaceAll(front, "@OFFSET@", fmt.Sprint(len(script)+1))
	}
	if _, err := io.WriteString(out, script); err != nil {
		return err
	}
	compressed, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := tar.NewWriter(compressed)
	programs := filepath.Join(root, "var/lib/rancher/k3s/data/current/bin")
	add := func(file, to string) error {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		in, err := os.Open(file)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := w.WriteHeader(&tar.Header{Name: to, Mode: 0o755, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: path.Join("manifests", path.Base(addOn.Path)), Mode: int64(addOn.Mode), Size: int64(len(addOn.Content)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := w.Write(addOn.Content); err != nil {
		return err
	}
	if err := filepath.WalkDir(programs, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return add(file, path.Join("bin", d.Name()))
	}); err != nil {
		return err
	}
	return errors.Join(add(filepath.Join(root, "usr/local/bin/k3s"), "bin/k3s"), w.Close(), compressed.Close())
}
