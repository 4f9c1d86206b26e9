package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

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

FILE is the setting image.lock, or else labctl.lock in this folder. A lock that is there is written anew; it keeps its Debian mirror unless
--apt-mirror names another. Debian packages are pinned by such a mirror only, that of a snapshot.

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
	debian := f.Settings().Image.AptMirror
	old, err := replaceable(file)
	if err != nil {
		return err
	}
	kept := old != nil && debian == "" && old.Debian.Mirror != ""
	if kept {
		debian = old.Debian.Mirror
	}
	if err := writable(filepath.Dir(file)); err != nil {
		return err
	}
	lock, err := resolve(ctx, f, debian)
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
		table.Row("image "+path.Base(l.Name), ui.Bytes(l.Bytes), short(l.Digest), l.Name)
	}
	table.Write(f.Out)
	u := f.UI()
	u.Note("written to %s; `labctl image build --source release --lock %s` takes nothing else", file, file)
	if lock.Mirrors != nil {
		u.Note("it has what the mirrors serve, not what upstream does: %s", strings.Join(lock.Mirrors.List(), ", "))
	}
	switch {
	case kept:
		u.Note("Debian's packages still come from %s; --apt-mirror names another mirror", debian)
	case debian == "":
		u.Note("Debian's packages are not pinned: --apt-mirror with a snapshot's address does that")
	}
	return nil
}

// replaceable is the lock that is in the place of a new one, nil for none. Nothing but a lock may be written over.
func replaceable(file string) (*release.Lock, error) {
	if file == "-" {
		return nil, &cli.UsageError{Msg: "a lock is written to a file", Fix: "name one; -o json prints what is written"}
	}
	old, err := release.ReadLock(file)
	var unusable *release.LockError
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.As(err, &unusable):
		return nil, &cli.UsageError{Msg: fmt.Sprintf("%s is there and is no lock of this labctl's: %v", file, bare(unusable.Err)), Fix: "name another FILE, or move it away"}
	case err != nil:
		return nil, err
	}
	info, err := os.Stat(file)
	if err == nil && info.Mode().Perm()&0o200 == 0 {
		err = &cli.UsageError{Msg: file + " is write-protected", Fix: fmt.Sprintf("name another FILE, or allow it with `chmod u+w %s`", file)}
	}
	return old, err
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

func resolve(ctx context.Context, f *factory.Factory, debianMirror string) (*release.Lock, error) {
	upstream, err := f.Upstream()
	if err != nil {
		return nil, err
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	var lock *release.Lock
	err = stage.Bare(stage.One(ctx, progress.Sink(""), "resolve", func(ctx context.Context, say func(string)) error {
		lock, err = upstream.Resolve(ctx, debianMirror, say)
		return err
	}))
	return lock, err
}

func checkLock(ctx context.Context, f *factory.Factory, file string, format ui.Format) error {
	have, err := release.ReadLock(file)
	if err != nil {
		return err
	}
	now, err := resolve(ctx, f, cmp.Or(f.Settings().Image.AptMirror, have.Debian.Mirror)) // without the setting a build takes the lock's
	if err != nil {
		return err
	}
	upstream, err := f.Upstream()
	if err != nil {
		return err
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
	who := "upstream has"
	if now.Mirrors != nil {
		who = "the mirrors have"
	}
	switch {
	case code == cli.OK && newerErr != nil:
		f.UI().Print("%s has what %s now", file, who)
	case code == cli.OK:
		f.UI().Print("%s has what %s now, and nothing newer is released", file, who)
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
