package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/sqlite"
	"github.com/k3s-io/kine/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"
)

// startDatastore serves kine's etcd API over sqlite on a unix socket and returns the endpoint. kine's own endpoint package
// is not used because it links every database driver that kine has.
func startDatastore(ctx context.Context, cfg config) (string, error) {
	dir := filepath.Join(cfg.serverDir(), "db")
	var wg sync.WaitGroup
	_, backend, err := sqlite.New(ctx, &wg, &drivers.Config{
		// The start-up VACUUM would rewrite the whole database at each boot.
		DataSourceName:   filepath.Join(dir, "state.db") + "?" + sqlite.DefaultParams + "&_kine_disable_startup_vacuum",
		CompactInterval:  5 * time.Minute,
		CompactTimeout:   5 * time.Second,
		CompactMinRetain: 1000,
		CompactBatchSize: 1000,
		PollBatchSize:    500,
		// Writers in this process wake the poll loop themselves; the interval only bounds a missed wake-up.
		PollInterval: 5 * time.Second,
	})
	if err != nil {
		return "", err
	}
	if err := backend.Start(ctx); err != nil {
		return "", err
	}
	socket := filepath.Join(dir, "kine.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return "", err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return "", err
	}
	const maxMessage = 64 << 20
	srv := grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
	)
	server.New(backend, "unix", 5*time.Second, "3.6.11").Register(srv)
	go func() {
		<-ctx.Done()
		srv.Stop()
	}()
	go func() {
		if err := srv.Serve(listener); err != nil && ctx.Err() == nil {
			klog.Background().Error(err, "The datastore stopped serving")
			klog.FlushAndExit(klog.ExitFlushTimeout, 1)
		}
	}()
	return "unix://" + socket, nil
}
