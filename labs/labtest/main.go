package labtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// toolsDir is where the guest's programs are built; Main makes it.
var toolsDir string

// Main is for TestMain: it makes room for the programs that guests call, runs the tests and returns the exit code.
func Main(m *testing.M) int {
	var err error
	if toolsDir, err = os.MkdirTemp("", "labtest"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(toolsDir) }()
	return m.Run()
}

// buildTools builds the programs once for all guests, and returns their one file.
var buildTools = sync.OnceValues(func() (string, error) {
	if toolsDir == "" {
		return "", fmt.Errorf("TestMain must call labtest.Main")
	}
	path := filepath.Join(toolsDir, "tools")
	build := exec.Command("go", "build", "-o", path, "github.com/cgoa-labs/labctl/labs/labtest/tools")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the guest's programs: %w\n%s", err, out)
	}
	return path, nil
})
