//go:build vm

package vm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/provision"
)

// kill is one command that does not come to its end: labctl, or the guest's QEMU, is killed some time after it began.
type kill struct {
	command []string
	delay   time.Duration
	victim  string
}

// everyday are the kills of `make test`: while the memory is saved, and while a new machine comes up in the place of an instance that waits.
func everyday(name string) []kill {
	return []kill{
		{[]string{"stop", name}, 1500 * time.Millisecond, "labctl"},
		{[]string{"reset", "--vm", "-i", name, "--yes"}, 8 * time.Second, "labctl"},
	}
}

// random are the kills of `make proof`. SEED repeats a run.
func random(t *testing.T, name string) (all []kill) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SEED=%d", seed)
	source := rand.New(rand.NewPCG(seed, 0))
	commands := [][]string{{"up", name}, {"stop", name}, {"start", name}, {"reset", "--vm", "-i", name, "--keep", "--yes"}, {"reset", "--vm", "-i", name, "--yes"}}
	for range 50 {
		k := kill{commands[source.IntN(len(commands))], time.Duration(source.Int64N(int64(9 * time.Second))), "labctl"}
		if source.IntN(4) == 0 {
			k.victim = "QEMU"
		}
		all = append(all, k)
	}
	return all
}

// TestKills kills labctl, or the guest's QEMU, in the middle of its commands. Whatever was interrupted, the same command again must come to an
// end, the learner's work must be there, and nothing may be left over.
func TestKills(t *testing.T) {
	const name = "killed"
	kills := everyday(name)
	if os.Getenv("PROOF") == "all" {
		kills = random(t, name)
	}
	t.Cleanup(tidy)
	must(t, boot, "up", name)
	work := 0
	for i, k := range kills {
		// The work that must not be lost is new each time.
		usable(t, name)
		work++
		must(t, quick, "ssh", name, "--", fmt.Sprintf("echo %d > /root/work && sync", work))
		if k.command[0] == "up" || k.command[0] == "start" {
			must(t, quick, "stop", name)
		}
		t.Logf("%d: %s killed after %s of %s", i, k.victim, k.delay.Round(10*time.Millisecond), strings.Join(k.command, " "))
		before := kept(t, name)
		ended := killDuring(t, name, k)
		lookAfter(t, name, k.command, work, before, ended)
	}
	must(t, boot, "down", "--all", "--yes")
	must(t, quick, "doctor")
	require.Empty(t, instances())
	left, err := exec.Command("pgrep", "-f", "qemu-system.*"+state).Output()
	var none *exec.ExitError
	require.ErrorAs(t, err, &none, "machines are left: %s", left)
	require.Equal(t, 1, none.ExitCode())
}

// killDuring runs a command until its victim is killed. It says whether the command had come to its end by then.
func killDuring(t *testing.T, name string, k kill) (ended bool) {
	t.Helper()
	cmd := exec.Command(labctl, append([]string{"--state-dir", state}, k.command...)...)
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err == nil
	case <-time.After(k.delay):
	}
	if k.victim == "QEMU" {
		if pid := recordedPID(name); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case err := <-done:
			return err == nil
		case <-time.After(boot):
			t.Fatalf("labctl %s does not end after its QEMU was killed", strings.Join(k.command, " "))
		}
	}
	_ = cmd.Process.Kill()
	<-done
	return false
}

// recordedPID is the process in an instance's record, which need not be whole at the moment.
func recordedPID(name string) int {
	data, err := os.ReadFile(filepath.Join(state, "instances", name, "instance.json"))
	if err != nil {
		return 0
	}
	var record struct{ Run struct{ PID int } }
	if json.Unmarshal(data, &record) != nil {
		return 0
	}
	return record.Run.PID
}

// kept are the instances that earlier resets kept.
func kept(t *testing.T, name string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, other := range instances() {
		if other != name {
			all[other] = true
		}
	}
	return all
}

// usable starts an instance that is off, or whose making anew was interrupted: a machine may run in its place, but none that can be worked in.
func usable(t *testing.T, name string) {
	t.Helper()
	if st := statusOf(t, name); st.Power != provision.Running || st.Waiting != nil {
		must(t, boot, "start", name)
	}
}

// lookAfter runs the command again where it may not have ended, and looks for the learner's work.
func lookAfter(t *testing.T, name string, command []string, work int, before map[string]bool, ended bool) {
	t.Helper()
	reset, keeps := command[0] == "reset", slices.Contains(command, "--keep")
	// A reset that did not end is not asked again: it would throw away what is looked for here.
	if !reset && !ended {
		must(t, boot, command...)
	}
	usable(t, name)
	res := cli(t, quick, "ssh", name, "--", "cat /root/work")
	mine := res.code == 0 && strings.TrimSpace(res.stdout) == fmt.Sprint(work)
	if !reset {
		require.True(t, mine, "the work is lost: %s", res.stdout)
		return
	}
	// Either the old one is there, or the new one is whole and, where it was asked for, the old one kept.
	if !mine {
		require.NotZero(t, res.code, "neither the old instance nor a new one: %s", res.stdout)
		if keeps {
			found := false
			for other := range kept(t, name) {
				if !before[other] {
					must(t, quick, "stop", name)
					must(t, boot, "start", other)
					found = strings.TrimSpace(must(t, quick, "ssh", other, "--", "cat /root/work").stdout) == fmt.Sprint(work)
				}
			}
			require.True(t, found, "the instance that was to be kept is not there")
		}
	}
	for other := range kept(t, name) {
		must(t, quick, "down", other, "--yes")
	}
	// The lock of the name under which the old one was to be kept is all that may be left, and gc takes it away.
	if keeps {
		must(t, quick, "gc")
	}
	must(t, quick, "doctor")
}
