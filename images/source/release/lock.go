package release

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/renameio/v2"
	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images/versions"
)

// Lock says what a build may fetch, down to the byte.
type Lock struct {
	SchemaVersion int       `json:"schemaVersion"`
	Resolved      time.Time `json:"resolved"`
	// Mirrors are what was asked instead of upstream, which says nothing of what upstream has; nil where upstream itself was asked.
	Mirrors *LockedMirrors `json:"mirrors,omitempty"`
	// Debian is where the guest's Debian packages come from: the suite, and the mirror where one is set, such as a snapshot's.
	Debian LockedDebian  `json:"debian"`
	Files  []LockedFile  `json:"files"`
	Images []LockedImage `json:"images"`
}

// LockedMirrors are the mirrors that a lock was written from.
type LockedMirrors struct {
	Releases   string            `json:"releases,omitempty"`
	Registries map[string]string `json:"registries,omitempty"`
}

// List names the mirrors.
func (m LockedMirrors) List() []string {
	var all []string
	if m.Releases != "" {
		all = append(all, m.Releases)
	}
	for _, registry := range slices.Sorted(maps.Keys(m.Registries)) {
		all = append(all, registry+"="+m.Registries[registry])
	}
	return all
}

// LockedDebian is a suite of Debian's and a mirror of it.
type LockedDebian struct {
	Suite  string `json:"suite"`
	Mirror string `json:"mirror,omitempty"`
}

func (d LockedDebian) String() string { return strings.TrimSpace(d.Suite + " " + d.Mirror) }

// LockedFile is one file of a release. URL is upstream's, also where a mirror was asked.
type LockedFile struct {
	Part    string `json:"part"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// LockedImage is one container image for the guest's platform.
type LockedImage struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Bytes is what its layers take, compressed.
	Bytes int64 `json:"bytes"`
}

const lockSchema = 1

// UnlockedError says that a build wants what the lock does not have.
type UnlockedError struct{ What string }

func (e *UnlockedError) Error() string { return "the lock does not have " + e.What }

// Hint is the next action.
func (e *UnlockedError) Hint() string {
	return "write it anew with `labctl image lock`, or build without a lock"
}

// LockError says that a lock cannot be used.
type LockError struct {
	File string
	Err  error
}

func (e *LockError) Error() string {
	if errors.Is(e.Err, os.ErrNotExist) {
		return "there is no lock file " + e.File
	}
	return fmt.Sprintf("lock file %s: %v", e.File, e.Err)
}

func (e *LockError) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *LockError) Hint() string {
	return "`labctl image lock` writes one; the setting image.lock says which a build uses"
}

// ReadLock reads a lock. The error is *LockError.
func ReadLock(file string) (*Lock, error) {
	fail := func(err error) (*Lock, error) { return nil, &LockError{File: file, Err: err} }
	opened, err := layout.Open(file)
	if err != nil {
		return fail(errors.Unwrap(err)) // LockError names the file
	}
	defer opened.Close()
	data, err := io.ReadAll(opened)
	if err != nil {
		return fail(err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return fail(errors.New("it is empty"))
	}
	var l Lock
	if err := yaml.UnmarshalStrict(data, &l); err != nil {
		return fail(fmt.Errorf("it cannot be read: %s", strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: json: ")))
	}
	switch l.SchemaVersion {
	case lockSchema:
	case 0:
		return fail(errors.New("it has no schemaVersion"))
	default:
		return fail(fmt.Errorf("its schema is version %d, this labctl reads version %d", l.SchemaVersion, lockSchema))
	}
	urls, names := map[string]bool{}, map[string]bool{}
	for _, f := range l.Files {
		if urls[f.URL] {
			return fail(fmt.Errorf("%s is in it twice", f.URL))
		}
		urls[f.URL] = true
		if f.SHA256 != strings.ToLower(f.SHA256) {
			return fail(fmt.Errorf("the sha256 of %s is in capitals", f.URL))
		}
		if digest, err := hex.DecodeString(f.SHA256); err != nil || len(digest) != sha256.Size {
			return fail(fmt.Errorf("%s has no sha256", f.URL))
		}
	}
	for _, i := range l.Images {
		if names[i.Name] {
			return fail(fmt.Errorf("image %s is in it twice", i.Name))
		}
		names[i.Name] = true
		hexDigest, prefixed := strings.CutPrefix(i.Digest, "sha256:")
		if digest, err := hex.DecodeString(hexDigest); !prefixed || err != nil || len(digest) != sha256.Size {
			return fail(fmt.Errorf("image %s has no digest", i.Name))
		}
	}
	return &l, nil
}

// Write writes the lock to a file, whole or not at all.
func (l *Lock) Write(file string) error {
	data, err := yaml.Marshal(l)
	if err != nil {
		return err
	}
	return renameio.WriteFile(layout.Follow(file), append([]byte("# What an image build from releases may fetch. Written by `labctl image lock`.\n"), data...), 0o644)
}

// fingerprint goes into the keys of what is built.
func (l *Lock) fingerprint() string {
	if l == nil {
		return ""
	}
	return fmt.Sprint(l.Files, l.Images)
}

// file is the sha256 of a locked file.
func (l *Lock) file(url string) (string, error) {
	i := slices.IndexFunc(l.Files, func(f LockedFile) bool { return f.URL == url })
	if i < 0 {
		return "", &UnlockedError{What: url}
	}
	return l.Files[i].SHA256, nil
}

// Fits wants a lock that was written for the pinned versions: with another labctl's every part would be refused, one after the other.
func (l *Lock) Fits(pins versions.Versions) error {
	if l.Debian.Suite != pins.Modules.DebianSuite {
		return &UnlockedError{What: "Debian " + pins.Modules.DebianSuite + ", which this labctl is made for"}
	}
	for _, f := range l.Files {
		if pin := pins.Release.Parts[f.Part].Version; pin != "" && f.Version != pin {
			return &UnlockedError{What: fmt.Sprintf("%s %s, which this labctl is made for, but %s", f.Part, pin, f.Version)}
		}
	}
	return nil
}

// image is the digest of a locked image; empty without a lock.
func (l *Lock) image(name string) (string, error) {
	if l == nil {
		return "", nil
	}
	i := slices.IndexFunc(l.Images, func(i LockedImage) bool { return i.Name == name })
	if i < 0 {
		return "", &UnlockedError{What: "image " + name}
	}
	return l.Images[i].Digest, nil
}

// Resolve finds out what upstream has now under the pinned versions. Nothing of it is kept.
func (s *Source) Resolve(ctx context.Context, debianMirror string, progress func(string)) (*Lock, error) {
	l := &Lock{SchemaVersion: lockSchema, Resolved: time.Now().UTC().Truncate(time.Second), Debian: LockedDebian{Suite: s.Pins.Modules.DebianSuite, Mirror: debianMirror}}
	if s.Mirrors.Releases != "" || len(s.Mirrors.Registries) > 0 {
		l.Mirrors = &LockedMirrors{Releases: s.Mirrors.Releases, Registries: s.Mirrors.Registries}
	}
	fetch := s.fetch.telling(progress)
	for _, release := range []struct {
		part  string
		sums  string
		files []string
	}{
		{"k3s", s.k3s(k3sSums), []string{s.k3s(k3sBinary), s.k3s(k3sImages)}},
		{"argocd", s.argo(argoSums), []string{s.argo(argoCLI)}},
	} {
		sums, err := fetch.sums(ctx, s.at(release.sums))
		if err != nil {
			return nil, err
		}
		for _, url := range release.files {
			progress(path.Base(url))
			want := sums[path.Base(url)]
			if want == "" {
				return nil, &ContentError{URL: s.at(release.sums), Err: fmt.Errorf("it has no sha256 for %s", path.Base(url))}
			}
			size, err := fetch.size(ctx, s.at(url))
			if err != nil {
				return nil, err
			}
			l.Files = append(l.Files, LockedFile{Part: release.part, Version: s.Pins.Release.Parts[release.part].Version, URL: url, Bytes: size, SHA256: want})
		}
	}
	core, err := s.manifests(ctx, progress)
	if err != nil {
		return nil, err
	}
	l.Files = append(l.Files, LockedFile{Part: "argocd", Version: s.Pins.Release.Parts["argocd"].Version, URL: s.core(), Bytes: int64(len(core)), SHA256: digestBytes(core)})
	names, err := s.wanted(core, progress)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		progress(name)
		locked, err := s.resolveImage(ctx, name, progress)
		if err != nil {
			return nil, err
		}
		l.Images = append(l.Images, locked)
	}
	return l, nil
}

func (s *Source) resolveImage(ctx context.Context, name string, progress func(string)) (LockedImage, error) {
	img, err := s.pull(ctx, name, progress, func(int64) {})
	if err != nil {
		return LockedImage{}, err
	}
	digest, err := img.Digest()
	if err != nil {
		return LockedImage{}, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return LockedImage{}, err
	}
	locked := LockedImage{Name: name, Digest: digest.String()}
	for _, layer := range manifest.Layers {
		locked.Bytes += layer.Size
	}
	return locked, nil
}

// Differences say, one a line, what upstream has now and the lock has not, and the other way round.
func (l *Lock) Differences(now *Lock) []string {
	var all []string
	if l.Debian != now.Debian {
		all = append(all, fmt.Sprintf("Debian: from %s to %s", l.Debian, now.Debian))
	}
	for _, f := range now.Files {
		i := slices.IndexFunc(l.Files, func(o LockedFile) bool { return o.URL == f.URL })
		switch {
		case i < 0:
			all = append(all, fmt.Sprintf("%s %s: not in the lock: %s", f.Part, f.Version, f.URL))
		case l.Files[i].Bytes != f.Bytes:
			all = append(all, fmt.Sprintf("%s %s: %s has %d bytes, not %d", f.Part, f.Version, path.Base(f.URL), f.Bytes, l.Files[i].Bytes))
		case l.Files[i].SHA256 != f.SHA256:
			all = append(all, fmt.Sprintf("%s %s: %s has changed, from sha256 %s to %s", f.Part, f.Version, path.Base(f.URL), l.Files[i].SHA256, f.SHA256))
		}
	}
	for _, img := range now.Images {
		i := slices.IndexFunc(l.Images, func(o LockedImage) bool { return o.Name == img.Name })
		switch {
		case i < 0:
			all = append(all, "image "+img.Name+": not in the lock")
		case l.Images[i].Digest != img.Digest:
			all = append(all, fmt.Sprintf("image %s: from %s to %s", img.Name, l.Images[i].Digest, img.Digest))
		}
	}
	for _, f := range l.Files {
		if !slices.ContainsFunc(now.Files, func(o LockedFile) bool { return o.URL == f.URL }) {
			all = append(all, fmt.Sprintf("%s %s: only in the lock: %s", f.Part, f.Version, f.URL))
		}
	}
	for _, img := range l.Images {
		if !slices.ContainsFunc(now.Images, func(o LockedImage) bool { return o.Name == img.Name }) {
			all = append(all, "image "+img.Name+": only in the lock")
		}
	}
	return all
}

// Newer are, by part, the newest versions that upstream has released, where they are not the pinned ones.
func (s *Source) Newer(ctx context.Context) (map[string]string, error) {
	newer := map[string]string{}
	for part, project := range map[string]string{"k3s": k3sProject, "argocd": argoProject} {
		latest, err := s.fetch.redirect(ctx, s.at(releaseHost+"/"+project+"/releases/latest"))
		if err != nil {
			return nil, err
		}
		if version := path.Base(latest); version != s.Pins.Release.Parts[part].Version {
			newer[part] = version
		}
	}
	return newer, nil
}

// size is how long the file at url is, in bytes.
func (f fetcher) size(ctx context.Context, url string) (size int64, err error) {
	err = f.retry(ctx, func() error {
		res, err := f.head(ctx, f.client, url)
		if err == nil {
			size = res.ContentLength
		}
		if err == nil && size < 0 {
			err = backoff.Permanent(&ContentError{URL: url, Err: errors.New("the server does not say how long it is")})
		}
		return err
	})
	return size, err
}

// redirect is where the server sends those who ask for url.
func (f fetcher) redirect(ctx context.Context, url string) (to string, err error) {
	client := *f.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	err = f.retry(ctx, func() error {
		res, err := f.head(ctx, &client, url)
		if err != nil {
			return err
		}
		location, err := res.Location()
		if err != nil || !strings.Contains(location.Path, "/releases/tag/") {
			return &ContentError{URL: url, Err: errors.New("it leads to no release")}
		}
		to = location.Path
		return nil
	})
	return to, err
}

func (f fetcher) head(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.stall, fmt.Errorf("%s: no answer for %s", url, f.stall))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, &FetchError{URL: url, Err: cmp.Or(context.Cause(ctx), bare(err))}
	}
	if err := res.Body.Close(); err != nil {
		return nil, err
	}
	return res, refusal(url, res)
}

func digestBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
