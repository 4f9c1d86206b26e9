package host

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MemoryAvailable is how many bytes of memory new programs can have without swapping, as the kernel estimates it.
func MemoryAvailable() (int64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the host's free memory: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the host's free memory: %w", err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("read the host's free memory: no MemAvailable in /proc/meminfo")
}

// DiskFree is how many bytes this user can still write below path. Where path does not exist yet, its nearest parent that
// does is looked at.
func DiskFree(path string) (int64, error) {
	var fs syscall.Statfs_t
	path = Existing(path)
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("read the free space of %s: %w", path, err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}

// Existing is path, or its nearest parent that exists.
func Existing(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// Owner is the user that a file belongs to.
func Owner(info os.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
