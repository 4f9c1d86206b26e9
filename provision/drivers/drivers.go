// Package drivers makes a driver by its name.
package drivers

import (
	"fmt"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu"
)

// Options hold each driver's options; only those of the driver that is made are used.
type Options struct{ QEMU qemu.Options }

// New makes the driver of this name for the instances below home; an empty name means the default, QEMU. It returns
// *provision.SpecError for a name that is none.
func New(name string, home layout.Home, opts Options) (provision.Driver, error) {
	switch name {
	case "", qemu.Name:
		d, err := qemu.New(home, opts.QEMU)
		if err != nil {
			return nil, err // and no interface around a nil pointer
		}
		return d, nil
	}
	return nil, &provision.SpecError{Field: "the driver", Got: fmt.Sprintf("%q", name), Want: qemu.Name}
}
