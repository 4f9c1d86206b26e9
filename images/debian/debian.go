// Package debian makes Debian root file systems from packages, with mmdebstrap.
package debian

import (
	"context"
	"fmt"
	"strings"

	"github.com/cgoa-labs/labctl/provision/run"
)

// Recipe changes when the way root file systems are made changes in a way that Options do not show.
const Recipe = "1"

// Options say what a root file system holds.
type Options struct {
	// Suite is a Debian release, such as "trixie".
	Suite string
	// Mirror is a package mirror's URL; empty means the tool's default for the suite.
	Mirror   string
	Packages []string
	// Customize are shell lines run on this machine as root after the packages are in place; "$1" is the root folder.
	Customize []string
	// Out is the archive to write.
	Out string
}

// unneeded is what nobody reads in a guest or a container. Copyright files stay: licences ask for them.
var unneeded = []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*"}

// Bootstrap writes a root file system as an uncompressed tar archive. It needs root and reaches the mirror.
func Bootstrap(ctx context.Context, runner run.Runner, opts Options) error {
	argv := []string{"mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", "--include=" + strings.Join(opts.Packages, ",")}
	for _, path := range unneeded {
		argv = append(argv, "--dpkgopt=path-exclude="+path)
	}
	argv = append(argv, "--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=force-unsafe-io",
		`--aptopt=Acquire::Languages "none"`, `--aptopt=Acquire::Retries "3"`, `--aptopt=APT::Install-Recommends "false"`)
	for _, line := range opts.Customize {
		argv = append(argv, "--customize-hook="+line)
	}
	argv = append(argv, "--customize-hook="+`rm -rf "$1/var/cache/apt" "$1/var/lib/apt/lists" "$1/var/cache/debconf" && mkdir -p "$1/var/lib/apt/lists" "$1/var/cache/apt" "$1/var/cache/debconf"`)
	argv = append(argv, opts.Suite, opts.Out)
	if opts.Mirror != "" {
		argv = append(argv, opts.Mirror)
	}
	if _, err := runner.Run(ctx, run.Cmd{Argv: argv, Env: []string{"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}}); err != nil {
		return fmt.Errorf("make a Debian %s root: %w", opts.Suite, err)
	}
	return nil
}
