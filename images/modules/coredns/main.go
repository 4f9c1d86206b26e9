// Command coredns is CoreDNS with the plugins that a cluster's DNS needs, and no others: most of upstream's plugins
// bring a cloud's client library each.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// The order is the order in which a query passes the plugins; it follows upstream's plugin.cfg.
	dnsserver.Directives = []string{"reload", "health", "ready", "errors", "cache", "loop", "kubernetes"}
	coremain.Run()
}
