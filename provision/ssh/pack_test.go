package ssh

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// writes keeps what is written and how it came.
type writes struct {
	bytes.Buffer
	sizes []int
}

func (w *writes) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return w.Buffer.Write(p)
}

// TestPackWritesInLargePieces: each write becomes a packet that an emulated guest has to decrypt.
func TestPackWritesInLargePieces(t *testing.T) {
	var content bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&content, "line %d of a file that shrinks when it is packed\n", i*7919)
	}
	var out writes
	require.NoError(t, pack(&out, bytes.NewReader(content.Bytes())))
	require.Greater(t, len(out.sizes), 3)
	for _, size := range out.sizes[:len(out.sizes)-1] {
		require.GreaterOrEqual(t, size, 32<<10)
	}
	r, err := gzip.NewReader(&out.Buffer)
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content.Bytes(), got))

	broken := errors.New("broken")
	require.ErrorIs(t, pack(io.Discard, iotest.ErrReader(broken)), broken)
}
