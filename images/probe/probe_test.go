package probe_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cavaliergopher/cpio"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images/probe"
)

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	program := strings.Repeat("program", 1001)
	require.NoError(t, probe.Write(&out, strings.NewReader(program)))

	archive := cpio.NewReader(bytes.NewReader(out.Bytes()))
	for _, want := range []struct {
		name string
		mode cpio.FileMode
		data string
	}{{"dev", cpio.TypeDir | 0o755, ""}, {"dev/console", cpio.TypeChar | 0o600, ""}, {"init", cpio.TypeReg | 0o755, program}} {
		hdr, err := archive.Next()
		require.NoError(t, err)
		require.Equal(t, want.name, hdr.Name)
		require.Equal(t, want.mode, hdr.Mode)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.Equal(t, want.data, string(data))
	}
	_, err := archive.Next()
	require.ErrorIs(t, err, io.EOF)
	// rdev of dev/console is 5:1; the reader does not give it.
	at := bytes.Index(out.Bytes(), []byte("dev/console\x00")) - 110
	require.Equal(t, "070701", string(out.Bytes()[at:at+6]))
	require.Equal(t, "0000000500000001", string(out.Bytes()[at+78:at+94]))
}

// TestCpioReadsIt asks another implementation, where there is one.
func TestCpioReadsIt(t *testing.T) {
	tool, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio program on this machine")
	}
	path := filepath.Join(t.TempDir(), "probe.img")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, probe.Write(f, strings.NewReader("#!/bin/sh\n")))
	require.NoError(t, f.Close())
	out, err := exec.Command(tool, "-itv", "-F", path).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `crw-------.*5, +1 .*dev/console`, string(out))
	require.Regexp(t, `-rwxr-xr-x.*init`, string(out))
}

func TestWriteReportsBrokenEnds(t *testing.T) {
	broken := errors.New("broken")
	require.ErrorIs(t, probe.Write(io.Discard, iotest.ErrReader(broken)), broken)
	for _, room := range []int{0, 130, 300} {
		require.Error(t, probe.Write(&full{room: room}, strings.NewReader(strings.Repeat("x", 1000))), "%d bytes of room", room)
	}
}

type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}
