package images_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images"
)

func TestRead(t *testing.T) {
	home := layout.Home{State: t.TempDir()}
	dir := home.Image("golden")
	_, err := images.Read(dir)
	var none *images.NotFoundError
	require.ErrorAs(t, err, &none)
	require.Equal(t, "golden", none.Name)

	require.NoError(t, os.MkdirAll(string(dir), 0o700))
	write := func(text string) { require.NoError(t, os.WriteFile(dir.Metadata(), []byte(text), 0o600)) }
	write("{")
	_, err = images.Read(dir)
	var damaged *images.DamagedError
	require.ErrorAs(t, err, &damaged)
	require.Equal(t, "image.json", damaged.File)

	write(`{"schema": "labctl.dev/image/v99"}`)
	_, err = images.Read(dir)
	var other *images.SchemaError
	require.ErrorAs(t, err, &other)
	require.ErrorContains(t, err, "v99")

	write(`{"schema": "labctl.dev/image/v1", "name": "golden", "digest": "sha256:ab", "kernelArgs": "quiet"}`)
	meta, err := images.Read(dir)
	require.NoError(t, err)
	require.Equal(t, "sha256:ab", meta.Digest)
	require.Equal(t, "quiet", meta.KernelArgs)
}
