// Package bootstrap is the contract of the platform inside a guest: the names, paths and addresses that labs stand on,
// whatever source the guest was made from, and what a component is.
package bootstrap

// The guest contract's fixed names. Labs and guides use them literally.
const (
	NodeName        = "lab"
	NodeIP          = "10.0.2.15"
	Kubeconfig      = "/etc/rancher/k3s/k3s.yaml"
	K3sConfig       = "/etc/rancher/k3s/config.yaml"
	ManifestDir     = "/var/lib/rancher/k3s/server/manifests"
	ImageDir        = "/var/lib/rancher/k3s/agent/images"
	ContainerdRoot  = "/var/lib/rancher/k3s/agent/containerd"
	ArgoNamespace   = "argocd"
	GitNamespace    = "gitsrv"
	GitDaemon       = "gitd"
	GitPort         = 9418
	GitRoot         = "/srv/bare"
	GitHost         = "gitd.gitsrv.svc.cluster.local"
	ClusterDNS      = "10.43.0.10"
	AgentPort       = "org.labctl.agent.0"
	LabBinDir       = "/usr/local/lib/labctl"
	GuestInfo       = "/etc/labctl/guest.json"
	DefaultProject  = "default"
	DefaultGitName  = "Learner"
	DefaultGitEmail = "learner@lab.example"
)

// File is one file that a component puts into the guest's disk before it first boots.
type File struct {
	// Path is absolute inside the guest.
	Path    string
	Content []byte
	// Mode is the file's permission bits, such as 0o600.
	Mode uint32
}

// Images are the names of the container images that components use.
type Images struct {
	Pause, CoreDNS, Gitd string
	// Lab are the images that labs deploy.
	Lab []string
}

// Component is one thing that bootstrap brings up.
type Component struct {
	Name string
	// Files are written into the disk at build time.
	Files []File
}
