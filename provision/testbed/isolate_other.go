//go:build !linux

package testbed

import (
	"errors"
	"os/exec"
)

func isolate(*exec.Cmd) error {
	return errors.New("a testbed needs Linux, whose programs the guest's are; prove the lab in an instance instead, with --vm")
}
