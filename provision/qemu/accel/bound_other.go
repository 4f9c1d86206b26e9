//go:build !linux

package accel

import "os/exec"

func startBound(cmd *exec.Cmd) (wait func() error, err error) { return cmd.Wait, cmd.Start() }
