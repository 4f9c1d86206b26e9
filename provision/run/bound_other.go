//go:build !linux

package run

import "os/exec"

// StartBound starts cmd. Here it outlives this program.
func StartBound(cmd *exec.Cmd) (wait func() error, err error) { return cmd.Wait, cmd.Start() }
