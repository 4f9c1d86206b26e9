// Package ground is what every lab's checks stand on: where things are in the guest, what has been read of them in one pass of
// verification, and a stage on which a learner's programs are tried.
package ground

import (
	"fmt"
	"path/filepath"

	"github.com/cgoa-labs/labctl/bootstrap"
)

// Places are a lab's places in the guest; tests have their own.
type Places struct {
	// Lab is the lab's id. Its scratch folders and its repository are named after it.
	Lab string
	// Home is root's home; Work the lab's folder in it; GitRoot where bare repositories are.
	Home, Work, GitRoot string
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Scratch is where verify keeps its scratch folders: on the guest's disk, outside Copied.
	Scratch string
	// Copied are the folders that a learner's program may write to without effect while it is verified.
	Copied []string
	// GitURL is how Argo CD reads the lab's bare repository.
	GitURL string
	// Lock is the lab's lock file.
	Lock string
}

// Guest are the lab's places by the guest contract.
func Guest(lab string) Places {
	return Places{
		Lab: lab, Home: "/root", Work: "/root/cgoa-" + lab, GitRoot: bootstrap.GitRoot, Kubeconfig: bootstrap.Kubeconfig,
		Scratch: "/var/tmp", Copied: []string{"/root", "/srv", "/tmp", "/opt", "/home", "/var/log"},
		GitURL: URL(lab),
		Lock:   "/run/labctl/lab-" + lab + ".lock",
	}
}

// URL is where the cluster's git daemon serves a lab's bare repository.
func URL(lab string) string {
	return fmt.Sprintf("git://%s:%d/%s.git", bootstrap.GitHost, bootstrap.GitPort, lab)
}

// Bare and the others are files that every lab has.
func (p Places) Bare() string      { return filepath.Join(p.GitRoot, p.Lab+".git") }
func (p Places) Clone() string     { return filepath.Join(p.Work, "repo") }
func (p Places) AdminCopy() string { return filepath.Join(p.Work, "kubeconfig") }
func (p Places) Hook() string      { return filepath.Join(p.Bare(), "hooks", "pre-receive") }
func (p Places) Report() string    { return filepath.Join(p.Work, "report.json") }

// ScratchPrefix starts the names of the lab's scratch folders.
func (p Places) ScratchPrefix() string { return "labctl-verify-" + p.Lab }
