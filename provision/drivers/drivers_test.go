package drivers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/drivers"
	"github.com/cgoa-labs/labctl/provision/qemu"
)

func TestNew(t *testing.T) {
	for _, name := range []string{"", "qemu"} {
		d, err := drivers.New(name, layout.Home{}, drivers.Options{})
		require.NoError(t, err)
		require.Equal(t, "qemu", d.Info().Name)
	}
	_, err := drivers.New("hyperkit", layout.Home{}, drivers.Options{})
	var bad *provision.SpecError
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, `the driver is "hyperkit", but must be qemu`)
	_, err = drivers.New("qemu", layout.Home{}, drivers.Options{QEMU: qemu.Options{Accelerator: "warp"}})
	require.Error(t, err, "the driver's own checks apply")
}
