package testbed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// kubeletPort is a kubelet's port, and kubeletFiles are where its certificate may be: with k3s and with its stand-in.
const kubeletPort = 10250

var kubeletFiles = []string{"/var/lib/rancher/k3s/agent/serving-kubelet", "/var/lib/rancher/k3s/server/tls/serving-kubelet"}

func kubeletCertificate() (tls.Certificate, error) {
	var errs []error
	for _, file := range kubeletFiles {
		cert, err := tls.LoadX509KeyPair(file+".crt", file+".key")
		if err == nil {
			return cert, nil
		}
		errs = append(errs, err)
	}
	return tls.Certificate{}, fmt.Errorf("the kubelet's certificate: %w", errors.Join(errs...))
}

// How long a forwarded connection may say nothing, and take to be made.
const (
	forwardIdle = 10 * time.Minute
	forwardMake = 30 * time.Second
)

// forwards serves the one thing of a kubelet that `argocd --core` needs: port-forward. Every pod's port is this testbed's own, since processes
// have no network of a pod. Nobody outside the testbed can reach it.
type forwards struct{}

// serve answers until ctx ends.
func (f forwards) serve(ctx context.Context, say func(string)) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, f, r.PathValue("pod"), "", options, forwardIdle, forwardMake, portforward.SupportedProtocols)
	})
	cert, err := kubeletCertificate()
	if err != nil {
		return err
	}
	// Forwarding takes the connection over, which HTTP/2 has no way for.
	listener, err := tls.Listen("tcp", fmt.Sprintf("%s:%d", address, kubeletPort), &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); ctx.Err() == nil {
			say("port-forward: " + err.Error())
		}
	}()
	return nil
}

// PortForward implements portforward.PortForwarder.
func (forwards) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	if !slices.ContainsFunc(parts, func(p part) bool { return p.port == int(port) }) {
		return fmt.Errorf("nothing of pod %s really runs here that would have port %d", pod, port)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	for _, way := range []struct {
		to   io.Writer
		from io.Reader
	}{{conn, stream}, {stream, conn}} {
		go func() {
			_, err := io.Copy(way.to, way.from)
			ended <- err
		}()
	}
	err = <-ended
	return errors.Join(err, conn.Close(), stream.Close())
}
