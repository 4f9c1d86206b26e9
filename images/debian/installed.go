package debian

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
)

// statusFile is where a Debian system keeps what is installed, below its root.
const statusFile = "var/lib/dpkg/status"

// OnDisk reads names and versions of the packages on a disk with one ext4 file system, without mounting it.
func OnDisk(ctx context.Context, disk string) (map[string]string, error) {
	program, err := exec.LookPath("debugfs")
	if err != nil {
		program = path.Join("/usr/sbin", "debugfs") // not on every user's path
	}
	cmd := exec.CommandContext(ctx, program, "-R", "cat /"+statusFile, disk)
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	err = cmd.Run()
	packages, parseErr := installed(&out)
	if err = errors.Join(err, parseErr); err != nil {
		return nil, fmt.Errorf("read the packages on %s: %w: %s", disk, err, strings.TrimSpace(trouble.String()))
	}
	return packages, nil
}

// InArchive reads names and versions of the packages in a root file system's tar archive.
func InArchive(file string) (packages map[string]string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("read the packages in %s: %w", file, err)
		}
		if strings.TrimPrefix(header.Name, "./") == statusFile {
			return installed(archive)
		}
	}
}

// installed reads dpkg's status file.
func installed(status io.Reader) (map[string]string, error) {
	packages := map[string]string{}
	name := ""
	lines := bufio.NewScanner(status)
	lines.Buffer(nil, 1<<20) // a package's dependencies are one line
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "Package: "); ok {
			name = value
		} else if value, ok := strings.CutPrefix(lines.Text(), "Version: "); ok && name != "" {
			packages[name] = value
		} else if lines.Text() == "" {
			name = ""
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(packages) == 0 {
		return nil, errors.New("there is no /" + statusFile)
	}
	return packages, nil
}
