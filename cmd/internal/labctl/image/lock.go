package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/images/source/release"
)

// defaultLock is the lock file where neither the command line nor a setting names one.
const defaultLock = "labctl.lock"

func newLock(f *factory.Factory) *cobra.Command {
	var check bool
	var format ui.Format
	cmd := &cobra.Command{
		Use:   "lock [FILE]",
		Short: "Write down, to the byte, what a build from releases may take",
		Long: `Ask upstream, or its mirrors, what it has under the versions that this labctl is made for, and write it to FILE: each file's address, size and
sha256, each container image's digest for the guest's platform, and the time. A build with --lock FILE, or the setting image.lock, takes
nothing else.

FILE is the setting image.lock, or else labctl.lock in this folder. A lock that is there is written anew.

With --check nothing is written: what upstream has now is held against FILE, and what it has released since is named. The exit code is 1
where anything differs.`,
		Example: `  labctl image lock
  labctl image lock --check
  labctl image build --source release --lock labctl.lock`,
		Args: cli.OptionalArg("the name of a FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := f.Settings().Image.Lock
			if len(args) > 0 {
				file = args[0]
			}
			if file == "" {
				file = defaultLock
			}
			if check {
				return checkLock(cmd.Context(), f, file, format)
			}
			return writeLock(cmd.Context(), f, file, format)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing, and say what upstream has that FILE has not")
	factory.Setting(cmd, "image.aptMirror", "apt-mirror", "URL", "where Debian packages come from, such as a snapshot's address")
	ui.AddFormat(cmd, &format)
	return cmd
}

func writeLock(ctx context.Context, f *factory.Factory, file string, format ui.Format) error {
	// Only a lock may be written over.
	if _, err := release.ReadLock(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &cli.UsageError{Msg: fmt.Sprintf("%s is there and is no lock of this labctl's", file), Fix: "name another FILE, or move it away"}
	}
	if err := writable(filepath.Dir(file)); err != nil {
		return err
	}
	lock, err := resolve(ctx, f)
	if err != nil {
		return err
	}
	if err := lock.Write(file); err != nil {
		return err
	}
	if format == ui.JSON {
		return f.UI().JSON(struct {
			Schema string        `json:"schema"`
			File   string        `json:"file"`
			Lock   *release.Lock `json:"lock"`
		}{ui.Schema("image-lock"), file, lock})
	}
	var table ui.Table
	table.Row("PART", "SIZE", "SHA256", "FROM")
	for _, l := range lock.Files {
		table.Row(l.Part+" "+l.Version, ui.Bytes(l.Bytes), short(l.SHA256), l.URL)
	}
	for _, l := range lock.Images {
		table.Row("image", ui.Bytes(l.Bytes), short(l.Digest), l.Name)
	}
	table.Write(f.Out)
	f.UI().Note("written to %s; `labctl image build --source release --lock %s` takes nothing else", file, file)
	return nil
}

// bare is a file's error without the file's name.
func bare(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// writable wants a folder that files can be made in, before any work is done for them.
func writable(dir string) error {
	probe, err := os.CreateTemp(dir, ".labctl-*")
	if err != nil {
		return &cli.UsageError{Msg: fmt.Sprintf("cannot write into %s: %v", dir, bare(err)), Fix: "name a folder that is there and that you may write into"}
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func resolve(ctx context.Context, f *factory.Factory) (*release.Lock, error) {
	upstream, err := f.Upstream()
	if err != nil {
		return nil, err
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	var lock *release.Lock
	err = stage.Bare(stage.One(ctx, progress.Sink(""), "resolve", func(ctx context.Context, say func(string)) error {
		lock, err = upstream.Resolve(ctx, f.Settings().Image.AptMirror, say)
		return err
	}))
	return lock, err
}

func checkLock(ctx context.Context, f *factory.Factory, file string, format ui.Format) error {
	have, err := release.ReadLock(file)
	if err != nil {
		return err
	}
	now, err := resolve(ctx, f)
	if err != nil {
		return err
	}
	upstream, err := f.Upstream()
	if err != nil {
		return err
	}
	if f.Settings().Image.AptMirror == "" {
		now.Debian.Mirror = have.Debian.Mirror // a build takes the lock's
	}
	differences := have.Differences(now)
	newer, newerErr := upstream.Newer(ctx)
	if newerErr != nil {
		// A mirror need not know what is newest.
		f.UI().Note("what is newer is not known: %v", newerErr)
	}
	code := cli.OK
	if len(differences)+len(newer) > 0 {
		code = cli.CheckFailed
	}
	if format == ui.JSON {
		if err := f.UI().JSON(struct {
			Schema      string            `json:"schema"`
			File        string            `json:"file"`
			Differences []string          `json:"differences"`
			Newer       map[string]string `json:"newer,omitempty"` // left out where it is not known
		}{ui.Schema("image-lock-check"), file, append([]string{}, differences...), newer}); err != nil {
			return err
		}
		return cli.Exit(code)
	}
	for _, d := range differences {
		f.UI().Print("%s", d)
	}
	for _, part := range slices.Sorted(maps.Keys(newer)) {
		f.UI().Print("%s: %s has been released; this labctl is made for %s", part, newer[part], versionIn(now, part))
	}
	switch {
	case code == cli.OK && newerErr != nil:
		f.UI().Print("%s has what upstream has now", file)
	case code == cli.OK:
		f.UI().Print("%s has what upstream has now, and nothing newer is released", file)
	}
	return cli.Exit(code)
}

func versionIn(lock *release.Lock, part string) string {
	for _, l := range lock.Files {
		if l.Part == part {
			return l.Version
		}
	}
	return "another version"
}
