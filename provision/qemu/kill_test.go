package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
)

// actEnv makes the test binary a labctl that does one thing to instance ada, and stops for ever at a point of it.
const actEnv = "LABCTL_TEST_ACT"

type order struct {
	Do, At  string
	Home    layout.Home
	Options struct{ Binary, ImgBinary string }
	Spec    provision.Spec
}

func act() int {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(actEnv)), &o); err != nil {
		return code(err)
	}
	d, err := New(o.Home, Options{Binary: o.Options.Binary, ImgBinary: o.Options.ImgBinary})
	if err != nil {
		return code(err)
	}
	d.kvm = "/no/such/kvm"
	d.hook = func(point string) {
		if point == o.At {
			fmt.Println("at", point)
			select {}
		}
	}
	ctx := context.Background()
	switch o.Do {
	case "create":
		err = d.Create(ctx, o.Spec)
	case "start":
		_, err = d.Start(ctx, o.Spec.Name, nil)
	case "suspend":
		err = d.Suspend(ctx, o.Spec.Name, func(string) {})
	case "renew", "renew and keep":
		keep := ""
		if o.Do != "renew" {
			keep = "ada-old"
		}
		err = d.Renew(ctx, o.Spec, keep, func(context.Context, provision.Endpoint) error { return nil }, nil)
	case "spare":
		o.Spec.Name = "spare-1"
		err = d.MakeSpare(ctx, o.Spec, func(context.Context, provision.Endpoint) error { return nil }, nil)
	case "delete":
		err = d.Delete(ctx, o.Spec.Name)
	}
	return code(err)
}

// act runs a labctl of its own.
func (b *bench) act(t *testing.T, do, at string) *exec.Cmd {
	t.Helper()
	o := order{Do: do, At: at, Home: b.home, Spec: b.spec("ada")}
	o.Options.Binary, o.Options.ImgBinary = b.opts.Binary, b.opts.ImgBinary
	data, err := json.Marshal(o)
	require.NoError(t, err)
	labctl := exec.Command(os.Args[0])
	labctl.Env = append(os.Environ(), actEnv+"="+string(data))
	labctl.Stderr = os.Stderr
	if at == "" {
		require.NoError(t, labctl.Start())
		return labctl
	}
	out, err := labctl.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, labctl.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "at "+at+"\n", line)
	return labctl
}

// killed runs a labctl and ends it the hard way at a point.
func (b *bench) killed(t *testing.T, do, at string) {
	t.Helper()
	labctl := b.act(t, do, at)
	require.NoError(t, labctl.Process.Kill())
	_ = labctl.Wait()
}

func (b *bench) requireNothingLeft(t *testing.T) {
	t.Helper()
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestKilledInCreate(t *testing.T) {
	for _, at := range []string{"create:folder", "create:record", "create:keys", "create:disk"} {
		t.Run(at, func(t *testing.T) {
			t.Run("the same command finishes it", func(t *testing.T) {
				b := newBench(t, "")
				b.killed(t, "create", at)
				left, err := b.Leftovers(t.Context())
				require.NoError(t, err)
				require.Len(t, left, 1)
				require.Equal(t, kindFolder, left[0].Kind)
				require.NoError(t, b.Create(t.Context(), b.spec("ada")))
				b.requireNothingLeft(t)
				_, err = b.Start(t.Context(), "ada", nil)
				require.NoError(t, err)
				b.requireNothingLeft(t)
			})
			t.Run("it can be swept", func(t *testing.T) {
				b := newBench(t, "")
				b.killed(t, "create", at)
				left, err := b.Leftovers(t.Context())
				require.NoError(t, err)
				require.NoError(t, b.Sweep(t.Context(), left))
				b.requireNothingLeft(t)
				require.Equal(t, provision.Absent, b.power(t, "ada"))
				require.NoDirExists(t, string(b.home.Instance("ada")))
				locks, err := filepath.Glob(b.home.Lock("instance", "*"))
				require.NoError(t, err)
				require.Empty(t, locks)
			})
			t.Run("it can be deleted", func(t *testing.T) {
				b := newBench(t, "")
				b.killed(t, "create", at)
				require.NoError(t, b.Delete(t.Context(), "ada"))
				b.requireNothingLeft(t)
			})
		})
	}
}

func TestKilledInStart(t *testing.T) {
	for at, machines := range map[string]int{"start:recorded": 0, "start:launched": 1, "start:personalised": 1} {
		t.Run(at, func(t *testing.T) {
			t.Run("the same command finishes it", func(t *testing.T) {
				b := newBench(t, "")
				require.NoError(t, b.Create(t.Context(), b.spec("ada")))
				b.killed(t, "start", at)
				require.Equal(t, machines, b.machines(t))
				s, err := b.Status(t.Context(), "ada")
				require.NoError(t, err)
				if machines == 1 {
					require.Equal(t, provision.Running, s.Power, "it is found although its record may not name it")
					require.Contains(t, s.Reason, "interrupted")
				}
				var stages []string
				_, err = b.Start(t.Context(), "ada", func(stage string) { stages = append(stages, stage) })
				require.NoError(t, err)
				require.Equal(t, 1, b.machines(t))
				require.Equal(t, machines == 1, strings.Contains(strings.Join(stages, "\n"), "go on with the machine"))
				after, err := b.Status(t.Context(), "ada")
				require.NoError(t, err)
				require.Empty(t, after.Reason)
				b.requireNothingLeft(t)
			})
			t.Run("it can be stopped", func(t *testing.T) {
				b := newBench(t, "")
				require.NoError(t, b.Create(t.Context(), b.spec("ada")))
				b.killed(t, "start", at)
				require.NoError(t, b.Stop(t.Context(), "ada"))
				require.Zero(t, b.machines(t))
				require.Equal(t, provision.Stopped, b.power(t, "ada"))
				b.requireNothingLeft(t)
			})
			t.Run("it can be deleted", func(t *testing.T) {
				b := newBench(t, "")
				require.NoError(t, b.Create(t.Context(), b.spec("ada")))
				b.killed(t, "start", at)
				require.NoError(t, b.Delete(t.Context(), "ada"))
				require.Zero(t, b.machines(t))
				b.requireNothingLeft(t)
			})
		})
	}
}

// TestAMachineThatDoesNotAnswerIsReplaced: going on with an interrupted start is for machines that are well.
func TestAMachineThatDoesNotAnswerIsReplaced(t *testing.T) {
	b := newBench(t, "paused,no-quit")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	b.killed(t, "start", "start:launched")
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	t.Setenv(misbehave, "")
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	after, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	require.NotEqual(t, s.PID, after.PID)
	require.Equal(t, 1, b.machines(t))
}

func TestKilledInDelete(t *testing.T) {
	for _, at := range []string{"delete:stopped", "delete:moved"} {
		t.Run(at, func(t *testing.T) {
			b := newBench(t, "")
			require.NoError(t, b.Create(t.Context(), b.spec("ada")))
			_, err := b.Start(t.Context(), "ada", nil)
			require.NoError(t, err)
			b.killed(t, "delete", at)
			require.Zero(t, b.machines(t))
			if at == "delete:stopped" {
				require.Equal(t, provision.Stopped, b.power(t, "ada"), "it is still whole")
				require.NoError(t, b.Delete(t.Context(), "ada"))
				b.requireNothingLeft(t)
				return
			}
			require.Equal(t, provision.Absent, b.power(t, "ada"))
			left, err := b.Leftovers(t.Context())
			require.NoError(t, err)
			require.Len(t, left, 2, "the folder on its way out and the lock")
			require.NoError(t, b.Sweep(t.Context(), left))
			b.requireNothingLeft(t)
			entries, err := os.ReadDir(b.home.Instances())
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
}

func TestKilledQEMU(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	s, err := b.Status(t.Context(), "ada")
	require.NoError(t, err)
	p, err := host.Identify(s.PID)
	require.NoError(t, err)
	require.NoError(t, b.kill("ada", p))
	require.Equal(t, provision.Stopped, b.power(t, "ada"))
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 2, "its sockets")
	require.NoError(t, b.Sweep(t.Context(), left))
	b.requireNothingLeft(t)
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)

	// Again, without a sweep.
	s, err = b.Status(t.Context(), "ada")
	require.NoError(t, err)
	p, err = host.Identify(s.PID)
	require.NoError(t, err)
	require.NoError(t, b.kill("ada", p))
	_, err = b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	b.requireNothingLeft(t)
}

// TestMachinesWithoutAnInstance: the folder was removed by hand while the machine ran.
func TestMachinesWithoutAnInstance(t *testing.T) {
	b := newBench(t, "")
	require.NoError(t, b.Create(t.Context(), b.spec("ada")))
	_, err := b.Start(t.Context(), "ada", nil)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(string(b.home.Instance("ada"))))
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 2)
	require.Equal(t, kindProcess, left[0].Kind)
	require.NotZero(t, left[0].PID)

	// A list that is out of date ends nobody else.
	self, err := host.Identify(os.Getpid())
	require.NoError(t, err)
	stale := left[0]
	stale.PID = self.PID
	require.NoError(t, b.Sweep(t.Context(), []provision.Leftover{stale}))
	require.Equal(t, 1, b.machines(t))

	require.NoError(t, b.Sweep(t.Context(), left))
	require.Zero(t, b.machines(t))
	b.requireNothingLeft(t)
}

// TestWorkInProgressIsNoLeftover: doctor may run beside a labctl that is at work.
func TestWorkInProgressIsNoLeftover(t *testing.T) {
	b := newBench(t, "")
	labctl := b.act(t, "create", "create:disk")
	b.requireNothingLeft(t)
	require.NoError(t, b.Sweep(t.Context(), []provision.Leftover{{Kind: kindFolder, Path: string(b.home.Instance("ada"))}}))
	require.DirExists(t, string(b.home.Instance("ada")))
	require.NoError(t, labctl.Process.Kill())
	_ = labctl.Wait()
	left, err := b.Leftovers(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 1)
}
