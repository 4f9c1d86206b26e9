package peer

import (
	"bufio"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsOwn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	server, err := listener.Accept()
	require.NoError(t, err)
	defer server.Close()
	require.True(t, IsOwn(server))
	require.True(t, IsOwn(client))

	tables = []string{"/no/such/table"}
	t.Cleanup(func() { tables = []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} })
	require.False(t, IsOwn(server), "what cannot be found out is nobody's")
}

func TestOwner(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 112 1
   2: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 113 1
   3: 0000000000000000FFFF00000100007F:C002 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 114 1
`
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port) }
	for port, want := range map[uint16]int{0xC001: 1000, 0xC002: 1001} {
		uid, found := owner(bufio.NewScanner(strings.NewReader(table)), at(port), at(0x1F90))
		require.True(t, found)
		require.Equal(t, want, uid)
	}
	// What was closed is nobody's, although it is listed as root's.
	const closed = `   0: 0100007F:C001 0100007F:1F90 04 00000000:00000000 00:00000000 00000000     0        0 0 1
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 0 1
`
	_, found := owner(bufio.NewScanner(strings.NewReader(closed)), at(0xC001), at(0x1F90))
	require.False(t, found)
	_, found = owner(bufio.NewScanner(strings.NewReader(table)), at(0xC003), at(0x1F90))
	require.False(t, found)
}
