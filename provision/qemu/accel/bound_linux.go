package accel

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startBound starts cmd so that the kernel ends it when labctl dies: a probe that hangs under a broken KVM would otherwise
// burn a core for ever, with nobody to end it.
func startBound(cmd *exec.Cmd) (wait func() error, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, waited, reap := make(chan error), make(chan error), make(chan struct{})
	go func() {
		// The kernel watches the thread that started the process, so that thread has to stay until the end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		<-reap
		waited <- cmd.Wait()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return func() error { close(reap); return <-waited }, nil
}
