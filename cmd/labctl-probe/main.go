// Command labctl-probe is the only program of a tiny guest. It says that the guest came up, and powers off.
package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cgoa-labs/labctl/images/probe"
)

func main() {
	fmt.Println(probe.Word)
	// Restarting is for a machine that cannot power off; whoever started it runs it without restarts.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
