package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/cgoa-labs/labctl/images/source"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision"
)

// What a build needs of this machine beyond what its driver and source check, in bytes.
const (
	// firstBuildDisk is what the caches hold after a first build: the parts, a disk, a baked disk, the image, and Go's own build cache.
	firstBuildDisk = 20 << 30
	// againDisk is what a build needs whose largest part is cached.
	againDisk = 8 << 30
	// publishDisk is what a baked disk takes once more when it is published.
	publishDisk = 3 << 30
)

// Preflight checks, before any work and changing nothing, that the image can be built here.
func Preflight(ctx context.Context, opts Options) []check.Result {
	ask := func(id, title string, f func() check.Outcome) check.Result {
		return check.Check{ID: id, Title: title, Ask: func(context.Context) (check.Outcome, error) { return f(), nil }}.Run(ctx)
	}
	results := []check.Result{
		ask("build-platform", "platform", func() check.Outcome {
			if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
				return check.Fail("Linux on x86-64", runtime.GOOS+" on "+runtime.GOARCH, "images are built on Linux x86-64")
			}
			return check.Pass("linux/amd64")
		}),
		ask("build-root", "privileges", func() check.Outcome {
			if os.Geteuid() != 0 {
				return check.Fail("root", fmt.Sprintf("user id %d", os.Geteuid()), "run labctl as root, such as with `sudo make up`: the files that a guest is made of belong to many users")
			}
			return check.Pass("root")
		}),
		ask("build-disk", "free disk for the build", func() check.Outcome { return freeDisk(opts) }),
	}
	for _, program := range []string{agentProgram, probeProgram} {
		results = append(results, ask("build-"+program, program, func() check.Outcome {
			path := filepath.Join(opts.GuestDir, program)
			if _, err := os.Stat(path); err != nil {
				return check.Fail(path, err.Error(), "run `make build`, or set guestDir to the folder that has it")
			}
			return check.Pass(path)
		}))
	}
	for _, tool := range []source.MissingToolError{{Program: "mke2fs", Package: "e2fsprogs"}, {Program: "tar", Package: "tar"}, {Program: "mmdebstrap", Package: "mmdebstrap"}} {
		results = append(results, ask("build-"+tool.Program, tool.Program, func() check.Outcome {
			path, err := lookTool(tool.Program)
			if err != nil {
				return check.Fail("", tool.Error(), tool.Hint())
			}
			return check.Pass(path)
		}))
	}
	if opts.Source != nil {
		results = append(results, opts.Source.Preflight(ctx)...)
	}
	// The first boot needs what every machine needs, after half an hour of other work.
	for _, r := range opts.NewDriver(opts.Home).Preflight(ctx, provision.Spec{Name: bakeName, CPUs: bakeCPUs, MemoryMiB: bakeMemoryMiB, DiskGiB: minDiskGiB}) {
		// There is no image yet to check, and a port is taken when it is needed.
		if r.State == check.Passed && r.ID != "memory" || r.ID == "image" || r.ID == "ssh-port" {
			continue
		}
		r.ID, r.Title = "build-"+r.ID, r.Title+" for the first boot"
		results = append(results, r)
	}
	return results
}

func freeDisk(opts Options) check.Outcome {
	need := int64(againDisk)
	if opts.Source == nil {
		need = firstBuildDisk
	} else if s, err := newState(opts); err != nil {
		need = firstBuildDisk
	} else if _, ok := s.cache.Lookup(source.Server, s.keys[source.Server]); !ok {
		need = firstBuildDisk
	} else if _, ok := s.cache.Lookup(stageBake, s.recipe); ok {
		need = publishDisk
	}
	dir := opts.Home.Cache
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return check.Fail("", err.Error(), "")
	}
	free := int64(fs.Bavail) * int64(fs.Bsize)
	got := fmt.Sprintf("%d GiB free at %s", free>>30, dir)
	if free < need {
		return check.Fail(fmt.Sprintf("%d GiB", need>>30), got, "free some space, or set cacheDir and stateDir to a larger disk")
	}
	return check.Pass(got)
}
