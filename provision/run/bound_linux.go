package run

import (
	"os/exec"
	"runtime"
	"syscall"
)

// StartBound starts cmd, in a process group of its own, so that the kernel ends it when this program dies, however it does: nobody else
// would. wait waits for its end, and must be called once.
func StartBound(cmd *exec.Cmd) (wait func() error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
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
