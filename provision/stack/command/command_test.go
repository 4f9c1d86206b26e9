package command_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/stack/command"
)

// onPath puts a program called pulumi alone on the path, which tells this version.
func onPath(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "pulumi")
	if version != "" {
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho "+version+"\n"), 0o700))
	}
	t.Setenv("PATH", dir)
	return path
}

// builder is a go that notes what it was asked to do.
type builder struct{ argv []string }

func (b *builder) Run(ctx context.Context, cmd run.Cmd) (run.Result, error) {
	if cmd.Argv[0] != "go" {
		return run.Local{}.Run(ctx, cmd)
	}
	b.argv = cmd.Argv
	for i, word := range cmd.Argv {
		if word == "-o" {
			return run.Result{}, os.WriteFile(cmd.Argv[i+1], nil, 0o700)
		}
	}
	return run.Result{}, nil
}

func TestFind(t *testing.T) {
	modules := filepath.Join("..", "..", "..", "images", "modules")
	b := &builder{}
	f := command.Finder{Modules: modules, Cache: cache.Cache{Dir: t.TempDir()}, Go: "go1.27.3", Runner: b}
	say := func(string) {}

	want := onPath(t, "v"+command.Oldest[1:])
	path, err := f.Find(t.Context(), say)
	require.NoError(t, err)
	require.Equal(t, want, path)
	require.Empty(t, b.argv)

	// An old one, and none, are replaced by one of our own, which is built once.
	for _, version := range []string{"v3.1.0", ""} {
		onPath(t, version)
		path, err = f.Find(t.Context(), say)
		require.NoError(t, err)
		require.FileExists(t, path)
	}
	require.Contains(t, b.argv, "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi")
	require.Contains(t, b.argv[len(b.argv)-4], "version.Version=v3.", "it tells the version it is built from")
	b.argv = nil
	again, err := f.Find(t.Context(), say)
	require.NoError(t, err)
	require.Equal(t, path, again)
	require.Empty(t, b.argv)

	f.Modules = ""
	var missing *command.MissingError
	_, err = f.Find(t.Context(), say)
	require.ErrorAs(t, err, &missing)
	onPath(t, "v3.1.0")
	_, err = f.Find(t.Context(), say)
	require.ErrorContains(t, err, "is v3.1.0, older than "+command.Oldest)
}
