package modules

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/debian"
)

// appPackages are in the one layer that Argo CD, redis, gitd and the nginx stand-ins share.
var appPackages = []string{"ca-certificates", "git", "nginx-light", "openssh-client", "redis-server", "tini"}

const debianLayer = "layer.tar"

// Inside implements source.Source.
func (s *Source) Inside(dirs map[string]string) (map[string]string, error) {
	packages, err := debian.InArchive(filepath.Join(dirs[partDebian], debianLayer))
	if err != nil {
		return nil, err
	}
	return map[string]string{"git": packages["git"], "nginx": packages["nginx-light"], "redis": packages["redis-server"]}, nil
}

func (s *Source) debianKey(map[string]cache.Key) (cache.Key, error) {
	return cache.NewHash(partDebian).Strings(debian.Recipe, s.pins.Modules.DebianSuite, s.mirror, strings.Join(appPackages, " ")).Key()
}

func (s *Source) buildDebian(ctx context.Context, _ map[string]string, out string, report func(string)) error {
	report(strings.Join(appPackages, ", "))
	return debian.Bootstrap(ctx, s.runner, debian.Options{
		Suite: s.pins.Modules.DebianSuite, Mirror: s.mirror, Packages: appPackages, Out: filepath.Join(out, debianLayer),
		// The layer is written by its owner's number; the names below exist in every container made from it.
		Customize: []string{
			`chroot "$1" useradd --uid 999 --gid 0 --no-create-home --home-dir /home/argocd --shell /usr/sbin/nologin argocd`,
			`mkdir -p "$1/home/argocd" "$1/app/config" && chown 999:0 "$1/home/argocd" && chmod 0775 "$1/home/argocd"`,
			`rm -rf "$1/var/log"/* "$1/var/lib/redis" && ln -sf /dev/stdout "$1/var/log/nginx.log"`,
		},
	})
}
