// Package plan puts the components in order: what goes onto a guest's disk before its first boot.
package plan

import (
	"fmt"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/bootstrap/argocd"
	"github.com/cgoa-labs/labctl/bootstrap/gitd"
	"github.com/cgoa-labs/labctl/bootstrap/guestos"
	"github.com/cgoa-labs/labctl/bootstrap/k3s"
)

// Options say what the platform is made of.
type Options struct {
	Images bootstrap.Images
	// ArgoCore is upstream's core-install.yaml. Without it the component is left out: what remains is text of this program alone.
	ArgoCore []byte
	// StandIn says that the server is labctl's stand-in for k3s.
	StandIn bool
	// Cloud says that the guest is for other hypervisors: cloud-init gives it its identity.
	Cloud bool
}

// Components are the platform's components, in the order in which they come up.
func Components(opts Options) ([]bootstrap.Component, error) {
	var out []bootstrap.Component
	add := func(name string, files []bootstrap.File, err error) error {
		if err != nil {
			return fmt.Errorf("component %s: %w", name, err)
		}
		out = append(out, bootstrap.Component{Name: name, Files: files})
		return nil
	}
	own := guestos.Files()
	if opts.Cloud {
		own = guestos.CloudFiles()
	}
	if err := add("guest", own, nil); err != nil {
		return nil, err
	}
	files, err := k3s.Files(opts.Images, opts.StandIn)
	if err := add("k3s", files, err); err != nil {
		return nil, err
	}
	files, err = gitd.Files(opts.Images)
	if err := add("gitd", files, err); err != nil {
		return nil, err
	}
	if opts.ArgoCore == nil {
		return out, nil
	}
	files, err = argocd.Files(opts.ArgoCore)
	if err := add("argocd", files, err); err != nil {
		return nil, err
	}
	return out, nil
}
