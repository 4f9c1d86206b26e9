package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/images/versions"
)

// host serves files by path, behind a redirect as upstream's release host does.
type host struct {
	files map[string]string
	// before answers first and says whether it did.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.before != nil && h.before(w, r) {
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/stored"); ok {
		if body, ok := h.files[rest]; ok {
			_, _ = w.Write([]byte(body))
			return
		}
	}
	if _, ok := h.files[r.URL.Path]; ok {
		http.Redirect(w, r, "/stored"+r.URL.EscapedPath(), http.StatusFound)
		return
	}
	http.NotFound(w, r)
}

func sum(body string) string {
	s := sha256.Sum256([]byte(body))
	return hex.EncodeToString(s[:])
}

func serve(t *testing.T, h *host) *Source {
	t.Helper()
	pins, err := versions.Load()
	require.NoError(t, err)
	k3s := "/k3s-io/k3s/releases/download/" + pins.Release.Parts["k3s"].Version + "/"
	argo := "/argoproj/argo-cd/releases/download/" + pins.Release.Parts["argocd"].Version + "/"
	files := map[string]string{
		k3s + k3sBinary: "the k3s binary", k3s + k3sImages: "the images", argo + argoCLI: "the cli",
		k3s + k3sSums:   fmt.Sprintf("%s  k3s\n%s  %s\n", sum("the k3s binary"), sum("the images"), k3sImages),
		argo + argoSums: fmt.Sprintf("%s  %s\n", sum("the cli"), argoCLI),
	}
	for path, body := range h.files {
		for name := range files {
			if strings.HasSuffix(name, "/"+path) {
				files[name] = body
			}
		}
	}
	h.files = files
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s := New(Hosts{Releases: server.URL, Raw: server.URL}, pins, server.Client())
	s.fetch.pause = time.Millisecond
	return s
}

func fetchPart(t *testing.T, s *Source, name string) (string, error) {
	t.Helper()
	for _, part := range s.Parts() {
		if part.Name == name {
			out := t.TempDir()
			return out, part.Build(t.Context(), nil, out, func(string) {})
		}
	}
	t.Fatalf("no part %s", name)
	return "", nil
}

func noScraps(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		require.NotContains(t, path, ".fetch-")
		return err
	}))
}

func TestFetchesByChecksum(t *testing.T) {
	s := serve(t, &host{})
	require.NoError(t, s.Reachable(t.Context()))
	out, err := fetchPart(t, s, source.Server)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(out, source.RootDir, "usr/local/bin/kubectl"))
	require.NoError(t, err)
	require.Equal(t, "the k3s binary", string(data))
	out, err = fetchPart(t, s, source.ArgoCD)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(out, source.RootDir, "usr/local/bin/argocd"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	noScraps(t, out)
}

func TestChecksumMismatchKeepsNothing(t *testing.T) {
	s := serve(t, &host{files: map[string]string{"k3s": "something else"}})
	out, err := fetchPart(t, s, source.Server)
	var mismatch *ChecksumError
	require.ErrorAs(t, err, &mismatch)
	require.Contains(t, mismatch.URL, "/k3s")
	require.NoFileExists(t, filepath.Join(out, source.RootDir, "usr/local/bin/k3s"))
	noScraps(t, out)
}

func TestUnlistedFileIsRefused(t *testing.T) {
	s := serve(t, &host{files: map[string]string{k3sSums: sum("the k3s binary") + "  k3s\n"}})
	_, err := fetchPart(t, s, source.Server)
	require.ErrorContains(t, err, "no sha256 for "+k3sImages)
}

func TestTransientFailuresAreTriedAgain(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		var refused atomic.Int32
		s := serve(t, &host{before: func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/k3s") && refused.Add(1) <= 2 {
				w.WriteHeader(code)
				return true
			}
			return false
		}})
		_, err := fetchPart(t, s, source.Server)
		require.NoError(t, err)
	}
}

func TestCutConnectionStartsOver(t *testing.T) {
	var cut atomic.Bool
	s := serve(t, &host{before: func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/stored") && strings.HasSuffix(r.URL.Path, "/k3s") && cut.CompareAndSwap(false, true) {
			w.Header().Set("Content-Length", "14")
			_, _ = w.Write([]byte("the k3"))
			return true
		}
		return false
	}})
	_, err := fetchPart(t, s, source.Server)
	require.NoError(t, err)
	require.True(t, cut.Load())
}

func TestMissingFileIsNotTriedAgain(t *testing.T) {
	var asked atomic.Int32
	s := serve(t, &host{before: func(w http.ResponseWriter, r *http.Request) bool {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
		return true
	}})
	_, err := fetchPart(t, s, source.ArgoCD)
	var status *StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, int32(1), asked.Load())
}

func TestReachableGivesUp(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, &host{before: func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}})
	defer close(release)
	require.ErrorContains(t, s.Reachable(t.Context()), "did not answer within 2s")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Reachable(ctx))
}

func TestContainersAreSaidToBeMissing(t *testing.T) {
	s := serve(t, &host{})
	_, err := fetchPart(t, s, source.Containers)
	var incomplete *IncompleteError
	require.ErrorAs(t, err, &incomplete)
	failed := 0
	for _, r := range s.Preflight(t.Context()) {
		if r.State != "passed" {
			failed++
		}
	}
	require.Equal(t, 1, failed)
	keys := map[cache.Key]bool{}
	for _, part := range s.Parts() {
		key, err := part.Key(nil)
		require.NoError(t, err)
		require.False(t, keys[key], "two parts share a key")
		keys[key] = true
	}
}
