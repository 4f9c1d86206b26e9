// Package images is the contract of golden images: what one is made from, what it consists of and how it is proven whole.
package images

import (
	"fmt"
	"time"

	"github.com/cgoa-labs/labctl/config/layout"
)

// Schema is the version of an image's metadata document.
const Schema = "labctl.dev/image/v1"

// SourceName says where an image's parts come from.
type SourceName string

// The sources. Auto takes Release where upstream's release host answers within two seconds, else Modules.
const (
	Auto    SourceName = "auto"
	Release SourceName = "release"
	Modules SourceName = "modules"
)

// Image is one golden image on this host.
type Image struct {
	Dir      layout.ImageDir `json:"dir"`
	Metadata Metadata        `json:"metadata"`
}

// Metadata describes a golden image. It is written last, so that its presence means that the image is whole.
type Metadata struct {
	Schema  string     `json:"schema"`
	Name    string     `json:"name"`
	Created time.Time  `json:"created"`
	Source  SourceName `json:"source"`
	// Digest is the sha256 over names, sizes and digests of Files: the image's identity.
	Digest string `json:"digest"`
	// Recipe is the digest of everything the image was made from; an equal recipe needs no new build.
	Recipe string `json:"recipe"`
	Files  []File `json:"files"`
	// Versions names each part and its version, such as "kubernetes": "v1.37.0".
	Versions map[string]string `json:"versions"`
	// StandIns names the parts that take another's place, each with what it really is.
	StandIns map[string]string `json:"standIns,omitempty"`
	// Containers are the container images that the guest holds, as containerd names them, with their digests.
	Containers map[string]string `json:"containers,omitempty"`
	// KernelArgs is the guest kernel's command line.
	KernelArgs string `json:"kernelArgs"`
	// MinMemoryMiB and MinDiskGiB are the least that a guest of this image needs.
	MinMemoryMiB int `json:"minMemoryMiB"`
	MinDiskGiB   int `json:"minDiskGiB"`
	// BuildSeconds is how long each stage took when it was last really run.
	BuildSeconds map[string]float64 `json:"buildSeconds,omitempty"`
}

// File is one file of an image.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// NotFoundError says that there is no image of this name.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no image %q", e.Name) }

// Hint is the next action.
func (e *NotFoundError) Hint() string {
	return "`labctl image list` shows those that are here, `labctl image build` makes one"
}

// DamagedError says that an image's file is not what its metadata says.
type DamagedError struct{ Name, File, Want, Got string }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("image %q is damaged: %s should be %s but is %s", e.Name, e.File, e.Want, e.Got)
}

// Hint is the next action.
func (e *DamagedError) Hint() string {
	return "remove the instances made from it with `labctl down`, since their disks stand on its files, then run `labctl image build --force`"
}
