package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"
)

// The paths that k3s uses and that labs, guests and people rely on.
const (
	configPath     = "/etc/rancher/k3s/config.yaml"
	kubeconfigPath = "/etc/rancher/k3s/k3s.yaml"
	dataDir        = "/var/lib/rancher/k3s"
	runtimeDir     = "/run/k3s/containerd"
	containerdSock = runtimeDir + "/containerd.sock"
	binDir         = dataDir + "/data/current/bin"
)

// config is the part of k3s's config.yaml that this server understands. Anything else in the file is refused, so that
// a setting is never silently without effect.
type config struct {
	NodeName            string   `json:"node-name"`
	NodeIP              string   `json:"node-ip"`
	WriteKubeconfigMode string   `json:"write-kubeconfig-mode"`
	ClusterCIDR         string   `json:"cluster-cidr"`
	ServiceCIDR         string   `json:"service-cidr"`
	ClusterDNS          string   `json:"cluster-dns"`
	ClusterDomain       string   `json:"cluster-domain"`
	TLSSAN              []string `json:"tls-san"`
	PauseImage          string   `json:"pause-image"`
	// DisableAgent leaves the node's part away: containerd, kubelet and kube-proxy.
	DisableAgent bool `json:"disable-agent"`
	// Disable is accepted for k3s's sake: this server packs none of the add-ons that k3s would.
	Disable        []string `json:"disable"`
	APIServerArgs  []string `json:"kube-apiserver-arg"`
	ControllerArgs []string `json:"kube-controller-manager-arg"`
	SchedulerArgs  []string `json:"kube-scheduler-arg"`
	KubeletArgs    []string `json:"kubelet-arg"`
	ProxyArgs      []string `json:"kube-proxy-arg"`
}

func (config) serverDir() string   { return filepath.Join(dataDir, "server") }
func (config) agentDir() string    { return filepath.Join(dataDir, "agent") }
func (config) tlsDir() string      { return filepath.Join(dataDir, "server", "tls") }
func (config) credDir() string     { return filepath.Join(dataDir, "server", "cred") }
func (config) manifestDir() string { return filepath.Join(dataDir, "server", "manifests") }
func (config) imageDir() string    { return filepath.Join(dataDir, "agent", "images") }

func loadConfig(args []string) (config, error) {
	cfg := config{
		NodeIP: "10.0.2.15", WriteKubeconfigMode: "0600", ClusterCIDR: "10.42.0.0/16", ServiceCIDR: "10.43.0.0/16",
		ClusterDNS: "10.43.0.10", ClusterDomain: "cluster.local", PauseImage: "rancher/mirrored-pause:3.6",
	}
	if len(args) > 0 {
		return cfg, fmt.Errorf("server takes no flags here (got %q): write settings to %s", args[0], configPath)
	}
	data, err := os.ReadFile(configPath)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return cfg, err
	}
	if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
		return cfg, fmt.Errorf("%s: %w", configPath, err)
	}
	if cfg.NodeName == "" {
		if cfg.NodeName, err = os.Hostname(); err != nil {
			return cfg, err
		}
	}
	if net.ParseIP(cfg.NodeIP) == nil {
		return cfg, fmt.Errorf("%s: node-ip %q is not an address", configPath, cfg.NodeIP)
	}
	if _, err := strconv.ParseUint(cfg.WriteKubeconfigMode, 8, 9); err != nil {
		return cfg, fmt.Errorf("%s: write-kubeconfig-mode %q is not an octal mode", configPath, cfg.WriteKubeconfigMode)
	}
	return cfg, nil
}
