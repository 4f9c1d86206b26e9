package versions

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoad(t *testing.T) {
	v, err := Load()
	require.NoError(t, err)
	for _, part := range []string{"kubernetes", "kine", "containerd", "crictl", "coredns", "argocd"} {
		require.NotEmpty(t, v.Modules.Parts[part].Version, part)
		require.NotEmpty(t, v.Modules.Parts[part].Module, part)
	}
	require.NotEmpty(t, v.Release.Parts["k3s"].Version)
	require.Equal(t, []string{"nginx:1.27-alpine", "nginx:1.28-alpine"}, v.Images.Lab)
}
