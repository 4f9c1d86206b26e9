package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"

	"github.com/cgoa-labs/labctl/provision/run"
)

// cli runs Pulumi's command line for the Automation API, which would leave it behind where labctl is killed.
type cli struct {
	path    string
	version semver.Version
	// signaled says that a signal that was not ours ended it.
	signaled atomic.Bool
}

var _ auto.PulumiCommand = (*cli)(nil)

func newCommand(ctx context.Context, path string) (*cli, error) {
	c := &cli{path: path}
	out, _, _, err := c.Run(ctx, "", nil, nil, nil, nil, "version")
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	if c.version, err = semver.ParseTolerant(strings.TrimSpace(out)); err != nil {
		return nil, fmt.Errorf("read the version of %s: %w", path, err)
	}
	return c, nil
}

func (c *cli) Version() semver.Version { return c.version }

// grace is how long Pulumi has to end after it was interrupted: it waits for what is under way.
const grace = 30 * time.Second

// Run implements auto.PulumiCommand.
func (c *cli) Run(ctx context.Context, dir string, stdin io.Reader, stdouts, stderrs []io.Writer, env []string, args ...string) (string, string, int, error) {
	const unknown = -2 // what the Automation API says of it
	if err := ctx.Err(); err != nil {
		return "", "", unknown, context.Cause(ctx)
	}
	cmd := exec.Command(c.path, append([]string{"--non-interactive"}, args...)...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, stdin, append(environment(), env...)
	cmd.Env = append(cmd.Env, "PULUMI_AUTOMATION_API=true", "PATH="+filepath.Dir(c.path)+":"+os.Getenv("PATH"))
	var stdout, stderr run.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(append(stdouts, &stdout)...), io.MultiWriter(append(stderrs, &stderr)...)
	cmd.WaitDelay = 5 * time.Second
	wait, err := run.StartBound(cmd)
	if err != nil {
		return "", "", unknown, err
	}
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		}
		select {
		case <-ended:
		case <-time.After(grace):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}()
	err = wait()
	close(ended)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
		if code < 0 && ctx.Err() == nil {
			c.signaled.Store(true)
		}
	} else if err != nil {
		code = unknown
	}
	return string(stdout.Bytes()), string(stderr.Bytes()), code, err
}

// environment is labctl's own without what its user set for another Pulumi.
func environment() []string {
	var kept []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "PULUMI_") {
			kept = append(kept, pair)
		}
	}
	return kept
}
