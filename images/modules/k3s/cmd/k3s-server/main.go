// Command k3s-server is a single-node Kubernetes server in one process: datastore, API server, controller manager,
// scheduler, kubelet and kube-proxy, with containerd as its only child. It keeps k3s's paths, so that what is written for k3s
// works on it. It is labctl's stand-in for k3s where k3s's own release cannot be had.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	do := run
	if len(os.Args) > 1 && os.Args[1] == "certificate" {
		do = func(context.Context) error { return certificate(os.Args[2:]) }
	}
	if err := do(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "k3s:", err)
		klog.Flush()
		os.Exit(1)
	}
	klog.Flush()
}

func run(ctx context.Context) error {
	logrus.SetLevel(logrus.WarnLevel)
	cfg, err := loadConfig(os.Args[1:])
	if err != nil {
		return err
	}
	for _, dir := range []string{cfg.serverDir(), cfg.agentDir(), filepath.Join(cfg.serverDir(), "db"), cfg.manifestDir(), cfg.imageDir(), cfg.tlsDir(), cfg.credDir(), filepath.Dir(kubeconfigPath), runtimeDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	pki, err := ensurePKI(cfg, time.Now())
	if err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := writeKubeconfigs(cfg, pki); err != nil {
		return fmt.Errorf("kubeconfigs: %w", err)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A component that ends takes the server with it; systemd starts it again.
	spawn := func(name string, f func(context.Context) error) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			err := f(ctx)
			if ctx.Err() == nil {
				if err == nil {
					err = errors.New("ended")
				}
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		}()
		return done
	}

	components, err := newComponents(cfg, pki)
	if err != nil {
		return err
	}
	etcd, err := startDatastore(ctx, cfg)
	if err != nil {
		return fmt.Errorf("datastore: %w", err)
	}
	end := func() {}
	if !cfg.DisableAgent {
		containerd := spawn("containerd", func(ctx context.Context) error { return runContainerd(ctx, cfg) })
		// containerd ends last: it is given its time to put its database away.
		end = func() { <-containerd }
	}
	spawn("kube-apiserver", func(ctx context.Context) error { return components.apiServer(ctx, etcd) })

	admin, err := waitForAPI(ctx, 10*time.Minute)
	if err != nil {
		return err
	}
	spawn("kube-controller-manager", components.controllerManager)
	spawn("kube-scheduler", components.scheduler)
	if !cfg.DisableAgent {
		if err := waitForContainerd(ctx, 5*time.Minute); err != nil {
			return err
		}
		if err := importImages(ctx, cfg); err != nil {
			return err
		}
		spawn("kubelet", components.kubelet)
		spawn("kube-proxy", components.kubeProxy)
	}
	spawn("deploy", func(ctx context.Context) error { return deployManifests(ctx, cfg, admin) })

	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		klog.Background().Error(err, "Telling systemd that the server is ready")
	}
	<-ctx.Done()
	end()
	return context.Cause(ctx)
}
