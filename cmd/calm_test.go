package cmd_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	_ "github.com/cgoa-labs/labctl/cmd/internal/labctl/wire" // with all libraries of the real program
)

// No library that labctl is made of may ask the terminal anything: where no answer comes it waits for seconds, and it swallows what was typed.
func TestNothingAsksTheTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)

	self, err := os.Executable()
	require.NoError(t, err)
	cmd := &exec.Cmd{
		Path: self, Args: []string{"labctl", "version"}, Env: append(os.Environ(), "TERM=xterm-256color", "HOME="+t.TempDir()),
		Stdin: tty, Stdout: tty, Stderr: tty, SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, tty.Close())
	screen, _ := io.ReadAll(master) // it ends with an error when the last one hangs up
	require.NoError(t, cmd.Wait())
	require.Contains(t, string(screen), "labctl ")
	require.NotContains(t, string(screen), "\x1b")
}
