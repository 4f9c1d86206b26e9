package host

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PortFree says whether a program could listen on this TCP port of 127.0.0.1 now.
func PortFree(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	listener.Close()
	return true
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
