package testbed

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// isolate gives a command namespaces of its own.
func isolate(cmd *exec.Cmd) error {
	if os.Getuid() != 0 {
		return errors.New("a testbed needs root: it mounts the image's files and has a network of its own")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	return nil
}
