package release_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/container"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/source/release"
	"github.com/cgoa-labs/labctl/images/source/release/upstream"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/labs/check"
)

// world is a small upstream and a source that fetches from it.
type world struct {
	t *testing.T
	*upstream.Host
	address string
	dir     string
	options release.Options
	pins    versions.Versions
	// stall is for tests in which nothing comes: on a busy machine a short one makes others fail.
	stall time.Duration
	mu    sync.Mutex
	said  []string
}

const (
	argoImage  = "quay.io/argoproj/argocd:v9"
	redisImage = "public.ecr.aws/docker/library/redis:9-alpine"
)

// manifests name what Argo CD's do: one workload of its own, and redis.
const manifests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: argocd-repo-server}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
        - {name: a, image: "` + argoImage + `"}
        - {name: r, image: "` + redisImage + `"}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	pins, err := versions.Load()
	require.NoError(t, err)
	host, err := upstream.New(t.TempDir())
	require.NoError(t, err)
	w := &world{t: t, Host: host, dir: t.TempDir(), pins: pins}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.address = strings.TrimPrefix(server.URL, "http://")
	w.put("k3s-io/k3s", "k3s", "sha256sum-amd64.txt", map[string][]byte{"k3s": []byte("the k3s binary"), "k3s-airgap-images-amd64.tar.zst": w.airgap()})
	w.put("argoproj/argo-cd", "argocd", "cli_checksums.txt", map[string][]byte{"argocd-linux-amd64": []byte("the cli")})
	w.Raw("argoproj/argo-cd", pins.Release.Parts["argocd"].Version, "manifests/core-install.yaml", w.file("core", []byte(manifests)))
	for _, ref := range append([]string{argoImage, redisImage}, pins.Images.Lab...) {
		w.push(ref, w.image("amd64", 3))
	}
	plain := "http://" + w.address
	w.options = release.Options{
		Pins: pins, Client: server.Client(), Downloads: t.TempDir(),
		Mirrors: release.Mirrors{Releases: server.URL, Registries: map[string]string{"quay.io": plain, "docker.io": plain, "public.ecr.aws": plain}},
		Unpacker: source.Part{Name: "unpack", Key: func(map[string]cache.Key) (cache.Key, error) { return cache.NewHash("unpack").Key() },
			Build: func(_ context.Context, _ map[string]string, out string, _ func(string)) error {
				return os.WriteFile(filepath.Join(out, source.Unpacker), nil, 0o755)
			}},
	}
	return w
}

func (w *world) file(name string, data []byte) string {
	file := filepath.Join(w.dir, name)
	require.NoError(w.t, os.WriteFile(file, data, 0o644))
	return file
}

func (w *world) put(project, part, sums string, files map[string][]byte) {
	paths := map[string]string{}
	for name, data := range files {
		paths[name] = w.file(name, data)
	}
	require.NoError(w.t, w.Release(project, w.pins.Release.Parts[part].Version, sums, paths))
}

func (w *world) image(arch string, layers int64) v1.Image {
	img, err := random.Image(2<<10, layers)
	require.NoError(w.t, err)
	config, err := img.ConfigFile()
	require.NoError(w.t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.User, config.Config.Entrypoint = "linux", arch, "999", []string{"argocd"}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(w.t, err)
	return img
}

func (w *world) push(image string, img v1.Image) {
	ref, err := name.ParseReference(image)
	require.NoError(w.t, err)
	require.NoError(w.t, w.Push(w.address, ref.Context().RepositoryStr(), ref.Identifier(), img))
}

// airgap is k3s's archive, with one image that the guest has no use for.
func (w *world) airgap() []byte {
	refs := map[name.Reference]v1.Image{}
	for _, image := range []string{w.pins.Images.Pause, "docker.io/" + w.pins.Images.CoreDNS, "docker.io/rancher/klipper-lb:v1"} {
		tag, err := name.NewTag(image)
		require.NoError(w.t, err)
		refs[tag] = w.image("amd64", 1)
	}
	file := filepath.Join(w.dir, "airgap.tar")
	require.NoError(w.t, tarball.MultiRefWriteToFile(file, refs))
	data, err := os.ReadFile(file)
	require.NoError(w.t, err)
	encoder, err := zstd.NewWriter(nil)
	require.NoError(w.t, err)
	return encoder.EncodeAll(data, nil)
}

// build makes a part and all that it needs, and returns its folder.
func (w *world) build(part string) (string, error) {
	s := release.New(w.options)
	release.Hurry(s, w.stall)
	dirs := map[string]string{}
	for _, p := range s.Parts() {
		out := w.t.TempDir()
		if err := p.Build(w.t.Context(), dirs, out, w.hear); err != nil {
			return out, err
		}
		if dirs[p.Name] = out; p.Name == part {
			return out, nil
		}
	}
	w.t.Fatalf("no part %s", part)
	return "", nil
}

// hear keeps what a build says; parts of it may say things at once.
func (w *world) hear(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, line)
}

// archived are the images of a part's archive.
func archived(t *testing.T, part string) map[string]v1.Image {
	t.Helper()
	images, err := container.Read(filepath.Join(part, source.Archive), t.TempDir())
	require.NoError(t, err)
	return images
}

func (w *world) resolve() (*release.Lock, error) {
	s := release.New(w.options)
	release.Hurry(s, w.stall)
	return s.Resolve(w.t.Context(), "", func(string) {})
}

// on calls do for requests whose path ends so; do says whether it answered.
func on(suffix string, do func(w http.ResponseWriter, r *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, suffix) && do(w, r)
	}
}

// nothingHalf wants no file in the folder of downloads but halves that can go on.
func (w *world) downloads() []string {
	entries, err := os.ReadDir(w.options.Downloads)
	require.NoError(w.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAWholeSource(t *testing.T) {
	for _, token := range []string{"", "secret"} {
		w := newWorld(t)
		w.Token = token
		out, err := w.build(source.Containers)
		require.NoError(t, err)
		images := archived(t, out)
		var names []string
		for name := range images {
			names = append(names, name)
		}
		require.ElementsMatch(t, []string{
			argoImage, redisImage, "docker.io/library/nginx:1.27-alpine", "docker.io/library/nginx:1.28-alpine",
			"docker.io/" + w.pins.Images.Pause, "docker.io/" + w.pins.Images.CoreDNS, "docker.io/" + w.pins.Images.Gitd,
		}, names, "all that the guest needs, and no more")
		entries, err := os.ReadDir(out)
		require.NoError(t, err)
		require.Len(t, entries, 1, "the archive alone")
		require.Empty(t, w.downloads())

		server, err := w.build(source.Server)
		require.NoError(t, err)
		data, err := os.ReadFile(filepath.Join(server, source.RootDir, "usr/local/bin/kubectl"))
		require.NoError(t, err)
		require.Equal(t, "the k3s binary", string(data))
		require.FileExists(t, filepath.Join(server, source.Unpacker))
		require.NoDirExists(t, filepath.Join(server, source.RootDir, "var"), "the archive is not for the guest")

		argo, err := w.build(source.ArgoCD)
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(argo, source.RootDir, "usr/local/bin/argocd"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
		core, err := os.ReadFile(filepath.Join(argo, source.CoreManifest))
		require.NoError(t, err)
		require.Equal(t, manifests, string(core))
		s := release.New(w.options)
		require.NoError(t, s.Reachable(t.Context()))
		for _, r := range s.Preflight(t.Context()) {
			require.Equal(t, check.Passed, r.State)
		}
	}
}

func TestPartsHaveKeysOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	keys := func() map[string]cache.Key {
		all := map[string]cache.Key{}
		for _, part := range release.New(w.options).Parts() {
			key, err := part.Key(all)
			require.NoError(t, err)
			for name, other := range all {
				require.NotEqual(t, other, key, "%s and %s", name, part.Name)
			}
			all[part.Name] = key
		}
		return all
	}
	plain := keys()
	w.options.Mirrors.Releases = "http://elsewhere"
	require.Equal(t, plain, keys(), "a mirror serves the same")
	lock, err := newWorld(t).resolve()
	require.NoError(t, err)
	w.options.Lock = lock
	locked := keys()
	for _, part := range []string{source.Server, source.ArgoCD, source.Containers} {
		require.NotEqual(t, plain[part], locked[part], part)
	}
	lock.Images[0].Digest = "sha256:" + strings.Repeat("0", 64)
	require.NotEqual(t, locked[source.Containers], keys()[source.Containers])
}

func TestChecksumMismatchKeepsNothing(t *testing.T) {
	w := newWorld(t)
	w.file("k3s", []byte("something else"))
	out, err := w.build(source.Server)
	var mismatch *release.ChecksumError
	require.ErrorAs(t, err, &mismatch)
	require.Contains(t, mismatch.URL, "/k3s")
	require.False(t, mismatch.Locked)
	require.NoFileExists(t, filepath.Join(out, source.RootDir, "usr/local/bin/k3s"))
	for _, name := range w.downloads() {
		require.NotContains(t, name, mismatch.Want)
	}
}

func TestALayerThatIsNotWhatItsDigestSays(t *testing.T) {
	w := newWorld(t)
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/argoproj/argocd/blobs/") {
			return false
		}
		_, _ = rw.Write([]byte("something else"))
		return true
	}
	out, err := w.build(source.Containers)
	require.ErrorContains(t, err, argoImage)
	require.NoFileExists(t, filepath.Join(out, source.Archive))
}

func TestUnlistedFileIsRefused(t *testing.T) {
	w := newWorld(t)
	w.Before = on("sha256sum-amd64.txt", func(rw http.ResponseWriter, _ *http.Request) bool {
		_, _ = fmt.Fprintf(rw, "%s  k3s\n", strings.Repeat("a", 64))
		return true
	})
	_, err := w.build(source.Server)
	require.ErrorContains(t, err, "no sha256 for k3s-airgap-images-amd64.tar.zst")
}

func TestAListWithoutEndIsRefused(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.Before = on("cli_checksums.txt", func(rw http.ResponseWriter, _ *http.Request) bool {
		asked++
		line := strings.Repeat("a", 1<<20)
		for range 17 {
			_, _ = rw.Write([]byte(line))
		}
		return true
	})
	_, err := w.build(source.ArgoCD)
	require.ErrorContains(t, err, "longer than")
	require.Equal(t, 1, asked)
}

func TestTransientFailuresAreTriedAgain(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway} {
		for _, suffix := range []string{"/k3s", "/argocd-linux-amd64", "core-install.yaml", "cli_checksums.txt", "argocd/manifests/v9", "library/nginx/manifests/1.27-alpine"} {
			w := newWorld(t)
			var refused atomic.Int32
			w.Before = on(suffix, func(rw http.ResponseWriter, _ *http.Request) bool {
				if refused.Add(1) > 2 {
					return false
				}
				rw.WriteHeader(code)
				return true
			})
			_, err := w.build(source.Containers)
			require.NoError(t, err, "%s, %d", suffix, code)
			require.Greater(t, refused.Load(), int32(2), suffix)
		}
	}
}

func TestALimitIsExplained(t *testing.T) {
	w := newWorld(t)
	limited := func(after string) func(http.ResponseWriter, *http.Request) bool {
		return func(rw http.ResponseWriter, _ *http.Request) bool {
			rw.Header().Set("Retry-After", after)
			rw.WriteHeader(http.StatusTooManyRequests)
			return true
		}
	}
	w.Before = on("/k3s", limited("1"))
	_, err := w.build(source.Server)
	require.Error(t, err)
	require.Contains(t, w.said, w.options.Mirrors.Releases+"/k3s-io/k3s/releases/download/"+url.PathEscape(w.pins.Release.Parts["k3s"].Version)+"/k3s: the server limits how often it is asked, and wants 1s without a request; again in 1s")
	w.Before = on("/k3s", limited("3600"))
	_, err = w.build(source.Server)
	var limit *release.LimitedError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, time.Hour, limit.After)
	require.Contains(t, limit.Hint(), "image.releaseMirror")

	w.Before = on("library/nginx/manifests/1.27-alpine", limited("1"))
	_, err = w.build(source.Containers)
	var pull *release.PullError
	require.ErrorAs(t, err, &pull)
	require.Equal(t, "nginx:1.27-alpine", pull.Image)
	require.EqualError(t, pull, "image nginx:1.27-alpine from "+w.address+": 429 Too Many Requests")
	require.Contains(t, w.said, w.address+" limits how often it is asked; again in 1s", "a wait is no silence")
	require.Contains(t, pull.Hint(), "the mirror 127.0.0.1")
	require.Contains(t, pull.Hint(), "image.registryMirrors")
}

func TestWhatAServerSaysOfWaiting(t *testing.T) {
	for said, want := range map[string]time.Duration{"": 0, "nonsense": 0, "7": 7 * time.Second, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): time.Hour, time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0} {
		require.InDelta(t, want.Seconds(), release.RetryAfter(&http.Response{Header: http.Header{"Retry-After": {said}}}).Seconds(), 2, said)
	}
}

func TestWhatAKilledRunLeftIsNoTrouble(t *testing.T) {
	w := newWorld(t)
	blobs := filepath.Join(w.options.Downloads, "layers", "blobs", "sha256")
	require.NoError(t, os.MkdirAll(blobs, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(blobs, strings.Repeat("a", 64)+"1079520858"), []byte("half"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(blobs, strings.Repeat("b", 64)), []byte("of another image"), 0o600))
	_, err := w.build(source.Containers)
	require.NoError(t, err)
	require.Empty(t, w.downloads())

	// A half that does not fit is begun anew, once, and does not speak against the server.
	sum := sha256.Sum256([]byte("the k3s binary"))
	for _, half := range []string{"wrong", "the k3s binary and more"} {
		require.NoError(t, os.WriteFile(filepath.Join(w.options.Downloads, hex.EncodeToString(sum[:])+".part"), []byte(half), 0o600))
		_, err = w.build(source.Server)
		require.NoError(t, err, half)
	}
}

func TestHalvesThatNobodyWantsGo(t *testing.T) {
	w := newWorld(t)
	old, young := filepath.Join(w.options.Downloads, "old.part"), filepath.Join(w.options.Downloads, "young.part")
	for _, half := range []string{old, young} {
		require.NoError(t, os.WriteFile(half, []byte("half"), 0o600))
	}
	monthAgo := time.Now().Add(-30 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(old, monthAgo, monthAgo))
	_, err := w.build(source.Server)
	require.NoError(t, err)
	require.Equal(t, []string{"young.part"}, w.downloads())
}

func TestManifestsThatAreNoneAreNotKept(t *testing.T) {
	for _, body := range []string{"", "<html>please log in</html>", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n"} {
		w := newWorld(t)
		w.Before = on("core-install.yaml", func(rw http.ResponseWriter, _ *http.Request) bool {
			_, _ = rw.Write([]byte(body))
			return true
		})
		_, err := w.build(source.ArgoCD)
		var content *release.ContentError
		require.ErrorAs(t, err, &content, body)
		require.Contains(t, err.Error(), "core-install.yaml")
		require.NotEmpty(t, content.Hint())
		_, err = w.resolve()
		require.ErrorAs(t, err, &content, body)
	}
}

func TestARegistryThatSendsNothing(t *testing.T) {
	for _, where := range []string{"/argoproj/argocd/manifests/", "/argoproj/argocd/blobs/"} {
		w := newWorld(t)
		w.stall = time.Second
		w.Before = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, where) {
				return false
			}
			<-r.Context().Done()
			return true
		}
		_, err := w.build(source.Containers)
		var pull *release.PullError
		require.ErrorAs(t, err, &pull, where)
		require.ErrorContains(t, err, "nothing came for", where)
		require.Equal(t, argoImage, pull.Image)
	}
}

func TestALayerThatIsRefusedIsTold(t *testing.T) {
	w := newWorld(t)
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/library/nginx/blobs/") {
			return false
		}
		rw.WriteHeader(http.StatusForbidden)
		_, _ = rw.Write([]byte(strings.Repeat("<p>no</p>", 5_000)))
		return true
	}
	_, err := w.build(source.Containers)
	var pull *release.PullError
	require.ErrorAs(t, err, &pull)
	require.Contains(t, pull.Hint(), "docker login")
	require.Less(t, len(err.Error()), 500)
}

func TestAddressesAreShownWithoutSecrets(t *testing.T) {
	w := newWorld(t)
	w.options.Mirrors.Releases = strings.Replace(w.options.Mirrors.Releases, "http://", "http://bob:s3cret@", 1) + "/nowhere"
	_, err := w.build(source.ArgoCD)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "s3cret")
	require.Contains(t, err.Error(), "sha256sum-amd64.txt")
}

func TestACutDownloadGoesOn(t *testing.T) {
	w := newWorld(t)
	body := strings.Repeat("k3s", 100_000)
	w.put("k3s-io/k3s", "k3s", "sha256sum-amd64.txt", map[string][]byte{"k3s": []byte(body), "k3s-airgap-images-amd64.tar.zst": w.airgap()})
	var asked []string
	cut := func(rw http.ResponseWriter, r *http.Request) bool {
		asked = append(asked, r.Header.Get("Range"))
		if len(asked) > 1 || !strings.HasPrefix(r.URL.Path, "/stored") {
			return false
		}
		rw.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = rw.Write([]byte(body[:100_000]))
		return true
	}
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/stored") && strings.HasSuffix(r.URL.Path, "/k3s") && cut(rw, r)
	}
	out, err := w.build(source.Server)
	require.NoError(t, err)
	require.Equal(t, []string{"", "bytes=100000-"}, asked)
	data, err := os.ReadFile(filepath.Join(out, source.RootDir, "usr/local/bin/k3s"))
	require.NoError(t, err)
	require.Equal(t, body, string(data))
}

func TestADownloadGoesOnInAnotherRun(t *testing.T) {
	w := newWorld(t)
	body := strings.Repeat("k3s", 100_000)
	w.put("k3s-io/k3s", "k3s", "sha256sum-amd64.txt", map[string][]byte{"k3s": []byte(body), "k3s-airgap-images-amd64.tar.zst": w.airgap()})
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/stored") || !strings.HasSuffix(r.URL.Path, "/k3s") {
			return false
		}
		if r.Header.Get("Range") != "" {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		rw.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = rw.Write([]byte(body[:100_000]))
		return true
	}
	_, err := w.build(source.Server)
	require.Error(t, err)
	var ranges []string
	w.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/stored") && strings.HasSuffix(r.URL.Path, "/k3s") {
			ranges = append(ranges, r.Header.Get("Range"))
		}
		return false
	}
	_, err = w.build(source.Server)
	require.NoError(t, err)
	require.Equal(t, []string{"bytes=100000-"}, ranges)
	require.Empty(t, w.downloads())
}

func TestAServerWithoutRangesStartsOver(t *testing.T) {
	w := newWorld(t)
	first := true
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/stored") || !strings.HasSuffix(r.URL.Path, "/k3s") {
			return false
		}
		rw.Header().Set("Content-Length", "14")
		if first {
			first = false
			_, _ = rw.Write([]byte("the k3"))
			return true
		}
		_, _ = rw.Write([]byte("the k3s binary"))
		return true
	}
	_, err := w.build(source.Server)
	require.NoError(t, err)
	require.False(t, first)
}

func TestACutLayerComesAgainAndOthersDoNot(t *testing.T) {
	w := newWorld(t)
	cut, asked := "", map[string]int{}
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/library/nginx/blobs/") {
			return false
		}
		asked[r.URL.Path]++
		if cut == "" && asked[r.URL.Path] == 1 && len(asked) == 3 {
			cut = r.URL.Path
			_, _ = rw.Write([]byte("half"))
			panic(http.ErrAbortHandler)
		}
		return false
	}
	_, err := w.build(source.Containers)
	require.NoError(t, err)
	require.NotEmpty(t, cut)
	require.Equal(t, 2, asked[cut])
}

func TestMissingFileIsNotTriedAgain(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int32
	w.Before = on("cli_checksums.txt", func(rw http.ResponseWriter, _ *http.Request) bool {
		asked.Add(1)
		rw.WriteHeader(http.StatusNotFound)
		return true
	})
	_, err := w.build(source.ArgoCD)
	var status *release.StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, int32(1), asked.Load())
}

func TestAnImageForAnotherPlatformOnly(t *testing.T) {
	w := newWorld(t)
	ref, err := name.NewTag(w.address+"/library/nginx:1.28-alpine", name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, w.image("arm64", 1)))
	_, err = w.build(source.Containers)
	require.ErrorContains(t, err, "it is for linux/arm64, the guest for linux/amd64")

	list := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: w.image("arm64", 1), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	require.NoError(t, remote.WriteIndex(ref, list))
	_, err = w.build(source.Containers)
	require.ErrorContains(t, err, "nginx:1.28-alpine")
	require.ErrorContains(t, err, "linux/amd64")
}

func TestRegistriesThatRefuse(t *testing.T) {
	for code, hint := range map[int]string{http.StatusForbidden: "docker login", http.StatusNotFound: "no such image"} {
		w := newWorld(t)
		w.Before = on("argocd/manifests/v9", func(rw http.ResponseWriter, _ *http.Request) bool { rw.WriteHeader(code); return true })
		_, err := w.build(source.Containers)
		var pull *release.PullError
		require.ErrorAs(t, err, &pull)
		require.Contains(t, pull.Hint(), hint)
	}
}

func TestReachableGivesUp(t *testing.T) {
	w := newWorld(t)
	done := make(chan struct{})
	defer close(done)
	w.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-done:
		case <-r.Context().Done():
		}
		return true
	}
	s := release.New(w.options)
	require.ErrorContains(t, s.Reachable(t.Context()), "did not answer within 2s")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Reachable(ctx))
}

func TestLock(t *testing.T) {
	w := newWorld(t)
	lock, err := w.resolve()
	require.NoError(t, err)
	require.Len(t, lock.Files, 4)
	require.Len(t, lock.Images, 2+len(w.pins.Images.Lab))
	require.Equal(t, int64(len("the k3s binary")), lock.Files[0].Bytes)
	require.True(t, strings.HasPrefix(lock.Files[0].URL, "https://github.com/k3s-io/k3s/"), "upstream's address, whatever mirror was asked")
	file := filepath.Join(t.TempDir(), "labctl.lock")
	require.NoError(t, lock.Write(file))
	read, err := release.ReadLock(file)
	require.NoError(t, err)
	was, err := json.Marshal(lock)
	require.NoError(t, err)
	is, err := json.Marshal(read)
	require.NoError(t, err)
	require.JSONEq(t, string(was), string(is))
	w.options.Lock = read
	_, err = w.build(source.Containers)
	require.NoError(t, err)
	again, err := w.resolve()
	require.NoError(t, err)
	require.Empty(t, read.Differences(again))

	require.Equal(t, &release.LockedMirrors{Releases: w.options.Mirrors.Releases, Registries: w.options.Mirrors.Registries}, read.Mirrors)
	require.Equal(t, w.options.Mirrors.Releases, read.Mirrors.List()[0])

	// The lock has the checksums: upstream's lists of them are not asked for.
	var lists atomic.Int32
	w.Before = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".txt") {
			return false
		}
		lists.Add(1)
		rw.WriteHeader(http.StatusNotFound)
		return true
	}
	_, err = w.build(source.Containers)
	require.NoError(t, err)
	require.NoError(t, release.New(w.options).Reachable(t.Context()))
	require.Zero(t, lists.Load())
	w.Before = nil

	// A tag that has moved: the locked image is what a build gets, and the check tells.
	old := read.Images[0]
	w.push(argoImage, w.image("amd64", 2))
	dir, err := w.build(source.Containers)
	require.NoError(t, err)
	digest, err := archived(t, dir)[argoImage].Digest()
	require.NoError(t, err)
	require.Equal(t, old.Digest, digest.String())
	w.options.Lock = nil
	now, err := w.resolve()
	require.NoError(t, err)
	require.Len(t, read.Differences(now), 1)
	require.Contains(t, read.Differences(now)[0], argoImage)

	// What only the lock has is told too.
	few := *now
	few.Files, few.Images = now.Files[1:], now.Images[1:]
	require.Equal(t, []string{"k3s " + now.Files[0].Version + ": only in the lock: " + now.Files[0].URL, "image " + argoImage + ": only in the lock"}, now.Differences(&few))

	// A release whose files were exchanged, with their list: refused by the lock.
	w.options.Lock = read
	w.put("argoproj/argo-cd", "argocd", "cli_checksums.txt", map[string][]byte{"argocd-linux-amd64": []byte("another cli")})
	_, err = w.build(source.ArgoCD)
	var mismatch *release.ChecksumError
	require.ErrorAs(t, err, &mismatch)
	require.True(t, mismatch.Locked)
	w.options.Lock = nil
	now, err = w.resolve()
	require.NoError(t, err)
	require.Len(t, read.Differences(now), 2)

	// Manifests, of which upstream publishes no checksum.
	w = newWorld(t)
	w.options.Lock, err = w.resolve()
	require.NoError(t, err)
	w.file("core", []byte(manifests+"# changed\n"))
	_, err = w.build(source.ArgoCD)
	require.ErrorAs(t, err, &mismatch)

	// What is not in the lock is not fetched.
	w = newWorld(t)
	w.options.Lock, err = w.resolve()
	require.NoError(t, err)
	w.options.Lock.Images = w.options.Lock.Images[1:]
	_, err = w.build(source.Containers)
	var unlocked *release.UnlockedError
	require.ErrorAs(t, err, &unlocked)
	w.options.Lock.Files = nil
	_, err = w.build(source.Server)
	require.ErrorAs(t, err, &unlocked)
}

// TestAMirrorOfNothing: a misspelt registry would have the right one asked instead of its mirror, without a word.
func TestAMirrorOfNothing(t *testing.T) {
	w := newWorld(t)
	w.options.Mirrors.Registries["docker.oi"] = "mirror.example"
	s := release.New(w.options)
	release.Hurry(s, w.stall)
	var said []string
	_, err := s.Resolve(t.Context(), "", func(line string) { said = append(said, line) })
	require.NoError(t, err)
	said = slices.DeleteFunc(said, func(line string) bool { return !strings.HasPrefix(line, "no image comes from ") })
	require.Equal(t, []string{"no image comes from docker.oi, which image.registryMirrors has a mirror of; they come from docker.io and public.ecr.aws and quay.io"}, said)
}

func TestALockThatIsAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := release.ReadLock(pipe)
	var refused *release.LockError
	require.ErrorAs(t, err, &refused, "it is not waited for")
	require.EqualError(t, err, "lock file "+pipe+": it is not a regular file")
}

// TestALockBehindALink: what a link leads to is written, and the link stays.
func TestALockBehindALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "labctl.lock"), []byte("old"), 0o644))
	require.NoError(t, os.Symlink("labctl.lock", link))
	require.NoError(t, (&release.Lock{SchemaVersion: 1}).Write(link))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
	_, err = release.ReadLock(filepath.Join(dir, "labctl.lock"))
	require.NoError(t, err)
}

func TestLocksThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	sum := strings.Repeat("a", 64)
	for content, why := range map[string]string{
		"schemaVersion: 9\n":                 "its schema is version 9",
		"resolved: 2026-12-03T00:00:00Z\n":   "it has no schemaVersion",
		"hello":                              "it cannot be read",
		"schemaVersion: 1\nnonsense: true\n": `unknown field "nonsense"`,
		"schemaVersion: 1\nfiles: [{url: x, sha256: abc}]\n":                                                       "x has no sha256",
		"schemaVersion: 1\nimages: [{name: x, digest: abc}]\n":                                                     "image x has no digest",
		"schemaVersion: 1\nfiles: [{url: x, sha256: " + sum + "}, {url: x, sha256: " + sum + "}]\n":                "x is in it twice",
		"schemaVersion: 1\nimages: [{name: x, digest: sha256:" + sum + "}, {name: x, digest: sha256:" + sum + "}]": "image x is in it twice",
	} {
		file := filepath.Join(dir, "labctl.lock")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
		_, err := release.ReadLock(file)
		var bad *release.LockError
		require.ErrorAs(t, err, &bad, content)
		require.Contains(t, err.Error(), file)
		require.Contains(t, err.Error(), why)
	}
	_, err := release.ReadLock(filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "there is no lock file")
}

// TestAnotherVersionsLock: it is refused as what it is, not by the first address that it lacks.
func TestAnotherVersionsLock(t *testing.T) {
	w := newWorld(t)
	lock, err := w.resolve()
	require.NoError(t, err)
	require.NoError(t, lock.Fits(w.pins))
	lock.Files[0].Version = "v1.0.0+k3s1"
	require.EqualError(t, lock.Fits(w.pins), "the lock does not have k3s "+w.pins.Release.Parts["k3s"].Version+", which this labctl is made for, but v1.0.0+k3s1")
	lock.Debian.Suite = "bookworm"
	require.ErrorContains(t, lock.Fits(w.pins), "Debian trixie")
}

func TestVersionsInside(t *testing.T) {
	w := newWorld(t)
	dir, err := w.build(source.ArgoCD)
	require.NoError(t, err)
	inside, err := release.New(w.options).Inside(map[string]string{source.ArgoCD: dir})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"nginx": "1.27-alpine, 1.28-alpine", "redis": redisImage[strings.LastIndex(redisImage, ":")+1:]}, inside)
}

func TestNewer(t *testing.T) {
	w := newWorld(t)
	s := release.New(w.options)
	newer, err := s.Newer(t.Context())
	require.NoError(t, err)
	require.Empty(t, newer)
	w.Latest("k3s-io/k3s", "v9.9.9+k3s1")
	newer, err = s.Newer(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k3s": "v9.9.9+k3s1"}, newer)
}

// The git daemon runs what is in Argo CD's image, as nobody in particular and with no program of the image's own.
func TestGitDaemonImage(t *testing.T) {
	w := newWorld(t)
	dir, err := w.build(source.Containers)
	require.NoError(t, err)
	config, err := archived(t, dir)["docker.io/"+w.pins.Images.Gitd].ConfigFile()
	require.NoError(t, err)
	require.Empty(t, config.Config.User)
	require.Empty(t, config.Config.Entrypoint)
	require.Equal(t, []string{"git", "daemon"}, config.Config.Cmd)
}
