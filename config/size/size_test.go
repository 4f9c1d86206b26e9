package size_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/size"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]string{"3GiB": "3GiB", "3072MiB": "3GiB", "1.5GiB": "1536MiB", "2g": "2GiB", "2 Ti": "2TiB", "512M": "512MiB", "0GiB": "0B"} {
		n, err := size.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, n.String(), text)
	}
	for _, text := range []string{"", "GiB", "-1GiB", "3", "3GB", "3 parsecs", "99999999999999TiB", "1e3GiB"} {
		_, err := size.Parse(text)
		require.Error(t, err, text)
	}
}
