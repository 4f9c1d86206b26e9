// Package cache keeps the result of each build stage under a digest of everything that went into it, so that a stage runs again
// only when its inputs changed, and a killed build resumes where it stopped.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Key is the digest of a stage's inputs, in hex.
type Key string

// Hash builds a Key. The order of calls matters.
type Hash struct {
	h   io.Writer
	sum func() string
	err error
}

// NewHash starts a key for one stage.
func NewHash(stage string) *Hash {
	h := sha256.New()
	hash := &Hash{h: h, sum: func() string { return hex.EncodeToString(h.Sum(nil)) }}
	return hash.Strings("stage", stage)
}

// Strings adds values; each is framed, so that ("ab","c") and ("a","bc") differ.
func (h *Hash) Strings(values ...string) *Hash {
	for _, v := range values {
		fmt.Fprintf(h.h, "%d:%s,", len(v), v)
	}
	return h
}

// Tree adds every regular file below dir, by relative name, executable bit and content.
func (h *Hash) Tree(dir string) *Hash {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		h.err = errors.Join(h.err, err)
		return h
	}
	sort.Strings(files)
	for _, file := range files {
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			h.err = errors.Join(h.err, err)
			return h
		}
		h.Strings(rel).File(file)
	}
	return h
}

// File adds a file's content and whether it is executable.
func (h *Hash) File(path string) *Hash {
	f, err := os.Open(path)
	if err != nil {
		h.err = errors.Join(h.err, err)
		return h
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		fmt.Fprintf(h.h, "%d:%t:", info.Size(), info.Mode()&0o100 != 0)
		_, err = io.Copy(h.h, f)
	}
	h.err = errors.Join(h.err, err)
	return h
}

// Key is the digest of what was added, or the first error.
func (h *Hash) Key() (Key, error) { return Key(h.sum()), h.err }

// Cache is the folder of stage results.
type Cache struct {
	Dir string
	// Abandon, where it is set, ends what a killed stage may have left running in its half-made folder, before that is removed.
	Abandon func(ctx context.Context, half string) error
}

// keep is how many results of one stage stay: those of both sources, of a cloud image, and the one before, so that going back is cheap.
const keep = 4

// lockPoll is how often a wait for another build looks again.
const lockPoll = 200 * time.Millisecond

// Dir is where the result of a stage with this key is, whether or not it is there.
func (c Cache) path(stage string, key Key) string {
	return filepath.Join(c.Dir, stage+"-"+string(key[:16]))
}

// Lookup returns the result's folder and whether it is there.
func (c Cache) Lookup(stage string, key Key) (string, bool) {
	path := c.path(stage, key)
	_, err := os.Stat(path)
	return path, err == nil
}

// Get returns the folder with the stage's result. When it is not there, make fills an empty folder, which then takes the result's
// place at once: what is there is always whole. Two processes that want the same stage wait for each other. fresh says
// whether make ran; waiting is called once when another process holds the stage.
func (c Cache) Get(ctx context.Context, stage string, key Key, waiting func(), make func(ctx context.Context, dir string) error) (dir string, fresh bool, err error) {
	if path, ok := c.Lookup(stage, key); ok {
		return path, false, touch(path)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", false, err
	}
	lock := c.stageLock(stage)
	ok, err := lock.TryLock()
	if err == nil && !ok {
		if waiting != nil {
			waiting()
		}
		_, err = lock.TryLockContext(ctx, lockPoll)
	}
	if err != nil {
		return "", false, fmt.Errorf("lock stage %s: %w", stage, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	path := c.path(stage, key)
	if _, statErr := os.Stat(path); statErr == nil {
		return path, false, touch(path)
	}
	// What a killed build left is in the way of nobody else: the lock is ours.
	if err := c.clear(ctx, stage); err != nil {
		return "", false, err
	}
	tmp, err := os.MkdirTemp(c.Dir, stage+half)
	if err != nil {
		return "", false, err
	}
	if err := make(ctx, tmp); err != nil {
		return "", false, errors.Join(err, RemoveAll(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", false, errors.Join(err, RemoveAll(tmp))
	}
	return path, true, c.prune(stage)
}

const half = ".tmp-"

// clear removes the half-made folders of a stage, whose lock the caller holds.
func (c Cache) clear(ctx context.Context, stage string) error {
	halves, err := filepath.Glob(filepath.Join(c.Dir, stage+half+"*"))
	if err != nil {
		return err
	}
	for _, dir := range halves {
		if c.Abandon != nil {
			if err := c.Abandon(ctx, dir); err != nil {
				return err
			}
		}
		if err := RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// Halves are the half-made folders that no build works on.
func (c Cache) Halves() ([]string, error) {
	all, err := filepath.Glob(filepath.Join(c.Dir, "*"+half+"*"))
	if err != nil {
		return nil, err
	}
	var idle []string
	for _, dir := range all {
		lock := c.stageLock(stageOf(dir))
		if ok, err := lock.TryLock(); err == nil && ok {
			idle = append(idle, dir)
			_ = lock.Unlock()
		}
	}
	return idle, nil
}

// Clear removes the half-made folders of the stage that dir, one of Halves, belongs to, unless a build has begun with it since.
func (c Cache) Clear(ctx context.Context, dir string) error {
	lock := c.stageLock(stageOf(dir))
	ok, err := lock.TryLock()
	if err != nil || !ok {
		return err
	}
	return errors.Join(c.clear(ctx, stageOf(dir)), lock.Unlock())
}

func stageOf(dir string) string {
	stage, _, _ := strings.Cut(filepath.Base(dir), half)
	return stage
}

func (c Cache) stageLock(stage string) *flock.Flock {
	return flock.New(filepath.Join(c.Dir, stage+".lock"), flock.SetPermissions(0o600))
}

func touch(path string) error {
	now := time.Now()
	return os.Chtimes(path, now, now)
}

// prune removes all but the newest results of a stage.
func (c Cache) prune(stage string) error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	type result struct {
		path string
		used time.Time
	}
	var results []result
	for _, e := range entries {
		name, digest, ok := cutLast(e.Name(), "-")
		if !ok || name != stage || len(digest) != 16 || !e.IsDir() {
			continue
		}
		if info, err := e.Info(); err == nil {
			results = append(results, result{filepath.Join(c.Dir, e.Name()), info.ModTime()})
		}
	}
	sort.Slice(results, func(i, j int) bool { return results[i].used.After(results[j].used) })
	for i, r := range results {
		if i >= keep {
			if err := RemoveAll(r.path); err != nil {
				return err
			}
		}
	}
	return nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// RemoveAll removes a tree that may hold read-only folders.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
