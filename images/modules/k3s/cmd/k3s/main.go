// Command k3s is the small front door of the modules source's stand-in for k3s. Like k3s's own binary it holds no
// server: it runs the right program of /var/lib/rancher/k3s/data/current/bin, by its first argument or by the name it
// was called with, so that `kubectl` starts without loading a whole Kubernetes server.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	binDir     = "/var/lib/rancher/k3s/data/current/bin"
	kubeconfig = "/etc/rancher/k3s/k3s.yaml"
)

// version is set at link time.
var version = "unset"

var programs = map[string]string{
	"server": "k3s-server", "kubectl": "kubectl", "crictl": "crictl", "ctr": "ctr", "certificate": "k3s-server", "check-config": "",
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if name == "k3s" {
		if len(args) == 0 || args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
			fmt.Printf("k3s %s (labctl's stand-in, built from Go modules)\n\nUsage: k3s server | certificate | kubectl | crictl | ctr | --version\n", version)
			return
		}
		if args[0] == "-v" || args[0] == "--version" {
			fmt.Printf("k3s version %s (labctl stand-in, built from Go modules; not the k3s project's release)\n", version)
			return
		}
		name, args = args[0], args[1:]
	}
	program := programs[name]
	if program == "" {
		fmt.Fprintf(os.Stderr, "k3s: this stand-in has no command %q (it has server, certificate, kubectl, crictl and ctr)\n", name)
		os.Exit(2)
	}
	path := filepath.Join(binDir, program)
	env := os.Environ()
	if name == "certificate" {
		args = append([]string{name}, args...)
	}
	switch program {
	case "kubectl":
		if os.Getenv("KUBECONFIG") == "" {
			env = append(env, "KUBECONFIG="+kubeconfig)
		}
	case "crictl":
		if os.Getenv("CONTAINER_RUNTIME_ENDPOINT") == "" {
			env = append(env, "CONTAINER_RUNTIME_ENDPOINT=unix:///run/k3s/containerd/containerd.sock", "IMAGE_SERVICE_ENDPOINT=unix:///run/k3s/containerd/containerd.sock")
		}
	case "ctr":
		if os.Getenv("CONTAINERD_ADDRESS") == "" {
			env = append(env, "CONTAINERD_ADDRESS=/run/k3s/containerd/containerd.sock", "CONTAINERD_NAMESPACE=k8s.io")
		}
	}
	err := syscall.Exec(path, append([]string{program}, args...), env)
	fmt.Fprintf(os.Stderr, "k3s: cannot run %s: %v\n", path, err)
	os.Exit(1)
}
