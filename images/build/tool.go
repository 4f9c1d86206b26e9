package build

import (
	"os"
	"os/exec"
	"path/filepath"
)

// lookTool finds a program on the path, or where Debian keeps those for administrators.
func lookTool(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		path := filepath.Join(dir, program)
		if _, statErr := os.Stat(path); statErr == nil {
			return path, nil
		}
	}
	return "", err
}
