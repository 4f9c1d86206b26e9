package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// PortFree says whether a program could listen on this TCP port of 127.0.0.1 now. It takes the port without listening on it, so that two that
// ask at the same moment are not in each other's way, nor in the way of who begins to listen.
func PortFree(port int) bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return false
	}
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}

// PortOwner names the program that listens on a TCP port, such as "nginx (pid 12)"; empty where it cannot be told.
func PortOwner(port int) string {
	var inodes []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err == nil {
			inodes = append(inodes, listeners(string(data), port)...)
		}
	}
	for _, inode := range inodes {
		want := "socket:[" + inode + "]"
		links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, link := range links {
			if got, err := os.Readlink(link); err != nil || got != want {
				continue
			}
			pid := strings.Split(link, "/")[2]
			name, err := os.ReadFile("/proc/" + pid + "/comm")
			if err != nil {
				return "pid " + pid
			}
			return fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), pid)
		}
	}
	return ""
}

// listeners picks the inodes of the sockets that listen on port out of a table in the form of /proc/net/tcp.
func listeners(table string, port int) []string {
	const local, state, inode, listening = 1, 3, 9, "0A"
	var inodes []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) <= inode || fields[state] != listening {
			continue
		}
		_, hex, ok := strings.Cut(fields[local], ":")
		if got, err := strconv.ParseUint(hex, 16, 16); ok && err == nil && int(got) == port {
			inodes = append(inodes, fields[inode])
		}
	}
	return inodes
}
