// Command upstream is a local stand-in for the hosts that image builds from releases fetch from: k3s's and Argo CD's releases, and container
// registries. It serves what the modules source has built on this machine, under upstream's names and in upstream's layouts, so that
// `labctl image build --source release` can be tried, to the end, where upstream cannot be reached. What it serves is not upstream's.
//
//	go run ./test/upstream            # prints the settings that lead labctl here, and serves until Ctrl-C
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/source/modules"
	"github.com/cgoa-labs/labctl/images/source/release/upstream"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/provision/run"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) (err error) {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	modulesDir := flag.String("modules-dir", "images/modules", "folder of the nested modules that the parts were built from")
	home, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cacheDir := flag.String("cache-dir", filepath.Join(home, "labctl"), "labctl's cache, where the built parts are")
	flag.Parse()
	pins, err := versions.Load()
	if err != nil {
		return err
	}
	parts, err := built(*modulesDir, layout.Home{Cache: *cacheDir}, pins)
	if err != nil {
		return err
	}
	// Beside the parts, so that nothing large is copied.
	dir, err := os.MkdirTemp(*cacheDir, "upstream-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	host, err := upstream.New(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: host}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	address := listener.Addr().String()
	fmt.Fprintln(os.Stderr, "upstream: laying out what the modules source built, under upstream's names ...")
	if err := host.Fill(address, dir, parts, pins); err != nil {
		return errors.Join(err, server.Close())
	}
	var mirrors []string
	for _, registry := range []string{"docker.io", "quay.io", "public.ecr.aws"} {
		mirrors = append(mirrors, registry+"=http://"+address)
	}
	fmt.Printf("export LABCTL_IMAGE_RELEASE_MIRROR=http://%s\nexport LABCTL_IMAGE_REGISTRY_MIRRORS=%s\n", address, strings.Join(mirrors, ","))
	fmt.Fprintln(os.Stderr, "upstream: serving stand-ins; Ctrl-C ends it")
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-ended:
		return err
	}
}

// built are the folders of the modules source's parts in the cache.
func built(modulesDir string, home layout.Home, pins versions.Versions) (upstream.Parts, error) {
	dir, err := filepath.Abs(modulesDir)
	if err != nil {
		return nil, err
	}
	parts, keys, stages := upstream.Parts{}, map[string]cache.Key{}, cache.Cache{Dir: home.Stages()}
	for _, part := range modules.New(dir, "", pins, run.Local{}).Parts() {
		key, err := part.Key(keys)
		if err != nil {
			return nil, err
		}
		keys[part.Name] = key
		folder, ok := stages.Lookup(part.Name, key)
		if !ok {
			return nil, fmt.Errorf("part %s is not built; `labctl image build --source modules` builds it", part.Name)
		}
		parts[part.Name] = folder
	}
	return parts, nil
}
