//go:build vm

// With the real Pulumi, which takes minutes to build once: that is why these tests are not among the quick ones.
package stack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/images/cache"
	"github.com/cgoa-labs/labctl/images/versions"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/stack"
	"github.com/cgoa-labs/labctl/provision/stack/command"
)

var pulumi string

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(victim())
	}
	home, err := layout.Default()
	if err == nil {
		var pins versions.Versions
		if pins, err = versions.Load(); err == nil {
			finder := command.Finder{Modules: "../../images/modules", Cache: cache.Cache{Dir: home.Stages()}, Go: pins.Modules.Go, Runner: run.Local{}}
			pulumi, err = finder.Find(context.Background(), func(line string) { fmt.Fprintln(os.Stderr, line) })
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// pretended are instances that are nothing but files.
type pretended struct {
	dir string

	mu   sync.Mutex
	fail map[string]error
	most int
	now  int
}

func (p *pretended) work(name string) (end func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
	p.most = max(p.most, p.now)
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now--
		return p.fail[name]
	}
}

func (p *pretended) up(ctx context.Context, name string) error {
	if err := p.work(name)(); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), os.WriteFile(filepath.Join(p.dir, name), nil, 0o600))
}

func (p *pretended) down(ctx context.Context, name string) error {
	if err := p.work(name)(); err != nil {
		return err
	}
	return errors.Join(ctx.Err(), os.RemoveAll(filepath.Join(p.dir, name)))
}

func (p *pretended) all(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func newStack(t *testing.T) (*stack.Stack, *pretended) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	return &stack.Stack{Home: layout.Home{State: dir}, CLI: pulumi, Parallel: 4, Log: func(line string) { t.Log(line) }}, &pretended{dir: t.TempDir(), fail: map[string]error{}}
}

func specs(names ...string) []provision.Spec {
	all := make([]provision.Spec, len(names))
	for i, name := range names {
		all[i] = provision.Spec{Name: name, Image: "/images/lab", CPUs: 2, MemoryMiB: 3072, DiskGiB: 12}
	}
	return all
}

func TestFleet(t *testing.T) {
	s, vms := newStack(t)
	ctx := t.Context()

	// One that fails stops no other, and is made by the same again.
	full := errors.New("no space left on device")
	vms.fail["bob"] = full
	out, err := s.Up(ctx, specs("alice", "bob", "carol"), vms.up)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": full, "carol": nil}, out)
	require.Equal(t, []string{"alice", "carol"}, vms.all(t))
	delete(vms.fail, "bob")
	out, err = s.Up(ctx, specs("alice", "bob", "carol"), vms.up)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": nil, "carol": nil}, out)

	// Others are added, and those who are not named stay.
	out, err = s.Up(ctx, specs("dave"), vms.up)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"dave": nil}, out)
	require.Equal(t, []string{"alice", "bob", "carol", "dave"}, vms.all(t))

	// One that was removed behind Pulumi's back is made again.
	require.NoError(t, vms.down(ctx, "carol"))
	_, err = s.Up(ctx, specs("carol"), vms.up)
	require.NoError(t, err)
	require.Equal(t, []string{"alice", "bob", "carol", "dave"}, vms.all(t))

	// Some go, with one that was never in the fleet; one that cannot go stays in it.
	require.NoError(t, vms.up(ctx, "eve"))
	vms.fail["bob"] = full
	out, err = s.Down(ctx, []string{"alice", "bob", "eve"}, vms.down)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": full, "eve": nil}, out)
	require.Equal(t, []string{"bob", "carol", "dave"}, vms.all(t))
	delete(vms.fail, "bob")
	out, err = s.Down(ctx, []string{"bob", "carol", "dave"}, vms.down)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"bob": nil, "carol": nil, "dave": nil}, out)
	require.Empty(t, vms.all(t))
	require.LessOrEqual(t, vms.most, 4)
}

func TestInterrupted(t *testing.T) {
	s, vms := newStack(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by Ctrl-C")
	out, err := s.Up(ctx, specs("alice", "bob"), func(ctx context.Context, name string) error {
		if name == "bob" {
			cancel(stopped)
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return vms.up(ctx, name)
	})
	require.ErrorIs(t, err, stopped)
	require.Error(t, out["bob"])
	out, err = s.Up(t.Context(), specs("alice", "bob"), vms.up)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": nil}, out)
}

// victimEnv makes the test binary a labctl that is killed while it works on a fleet.
const victimEnv = "LABCTL_TEST_VICTIM"

func victim() int {
	s := &stack.Stack{Home: layout.Home{State: os.Getenv(victimEnv)}, CLI: os.Getenv("LABCTL_TEST_PULUMI"), Parallel: 4}
	_, err := s.Up(context.Background(), specs("alice", "bob", "carol"), func(ctx context.Context, name string) error {
		if name == "bob" {
			fmt.Println("at bob")
			select {}
		}
		return nil
	})
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func TestKilled(t *testing.T) {
	s, vms := newStack(t)
	labctl := exec.Command(os.Args[0])
	labctl.Env = append(os.Environ(), victimEnv+"="+s.Home.State, "LABCTL_TEST_PULUMI="+pulumi)
	labctl.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := labctl.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, labctl.Start())
	buf := make([]byte, 6)
	_, err = out.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "at bob", string(buf))
	require.NoError(t, labctl.Process.Kill())
	_ = labctl.Wait()

	// The same again, and then down.
	result, err := s.Up(t.Context(), specs("alice", "bob", "carol"), vms.up)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": nil, "carol": nil}, result)
	result, err = s.Down(t.Context(), []string{"alice", "bob", "carol"}, vms.down)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": nil, "carol": nil}, result)
	require.Empty(t, vms.all(t))
}

// TestPulumiKilled: what ends Pulumi ends no labctl.
func TestPulumiKilled(t *testing.T) {
	s, vms := newStack(t)
	var once sync.Once
	_, err := s.Up(t.Context(), specs("alice", "bob"), func(ctx context.Context, name string) error {
		once.Do(func() {
			for _, pid := range childrenOf(t, os.Getpid()) {
				require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		})
		<-ctx.Done() // the call ends with the caller
		return context.Cause(ctx)
	})
	var failed *stack.Error
	require.ErrorAs(t, err, &failed)
	result, err := s.Up(t.Context(), specs("alice", "bob"), vms.up)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"alice": nil, "bob": nil}, result)
}

// childrenOf are the processes that all threads of a process began.
func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var child int
		if n, _ := fmt.Sscan(string(data), &child); n == 1 {
			pids = append(pids, child)
		}
	}
	return pids
}

// TestMany: a large fleet goes up, fails in part, goes on and goes down; a thousand with PROOF=all.
func TestMany(t *testing.T) {
	s, vms := newStack(t)
	s.Log, s.Parallel = nil, 32
	many := 200
	if os.Getenv("PROOF") == "all" {
		many = 1000
	}
	var names []string
	for n := range many {
		names = append(names, fmt.Sprintf("learner%04d", n))
	}
	for n := 0; n < many; n += 10 {
		vms.fail[names[n]] = errors.New("the machine ended early")
	}
	start := time.Now()
	step := func(what string) { t.Logf("%s after %s", what, time.Since(start).Round(time.Second)) }
	out, err := s.Up(t.Context(), specs(names...), vms.up)
	require.NoError(t, err)
	step("up")
	failed := 0
	for _, err := range out {
		if err != nil {
			failed++
		}
	}
	require.Equal(t, many/10, failed)
	require.Len(t, vms.all(t), many-many/10)
	clear(vms.fail)
	out, err = s.Up(t.Context(), specs(names...), vms.up)
	require.NoError(t, err)
	require.Len(t, out, many)
	require.Len(t, vms.all(t), many)
	step("up again")
	_, err = s.Down(t.Context(), names, vms.down)
	require.NoError(t, err)
	require.Empty(t, vms.all(t))
	step("down")
}
