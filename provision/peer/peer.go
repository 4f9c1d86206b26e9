// Package peer tells whose program is at the other end of a connection on this machine.
package peer

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// tables are the kernel's lists of TCP sockets.
var tables = []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}

// IsOwn says whether the program at the other end of a loopback connection runs as the same user as this one. Where that cannot
// be found out, it does not.
func IsOwn(conn net.Conn) bool {
	local, errA := netip.ParseAddrPort(conn.LocalAddr().String())
	remote, errB := netip.ParseAddrPort(conn.RemoteAddr().String())
	if errA != nil || errB != nil || !remote.Addr().IsLoopback() || !remote.Addr().Unmap().Is4() {
		return false
	}
	return slices.ContainsFunc(tables, func(path string) bool {
		file, err := os.Open(path)
		if err != nil {
			return false
		}
		defer file.Close()
		uid, found := owner(bufio.NewScanner(file), remote, local)
		return found && uid == os.Getuid()
	})
}

// established is the state of a connection whose both ends are open.
const established = "01"

// owner finds the user of the socket whose own address is local and whose other end is remote.
func owner(table *bufio.Scanner, local, remote netip.AddrPort) (uid int, found bool) {
	for table.Scan() {
		fields := strings.Fields(table.Text())
		// A socket that its program has closed belongs to nobody, and is listed as root's.
		if len(fields) < 10 || fields[3] != established || fields[9] == "0" || !is(fields[1], local) || !is(fields[2], remote) {
			continue
		}
		uid, err := strconv.Atoi(fields[7])
		return uid, err == nil
	}
	return 0, false
}

// is compares an address as the kernel lists it: 32-bit words in the processor's order, then the port.
func is(field string, want netip.AddrPort) bool {
	address := want.Addr().Unmap().As4()
	port := fmt.Sprintf(":%04X", want.Port())
	v4 := fmt.Sprintf("%02X%02X%02X%02X", address[3], address[2], address[1], address[0])
	return field == v4+port || field == "0000000000000000FFFF0000"+v4+port
}
