//go:build vm

// Package vm runs labctl itself against real virtual machines: what a learner and a teacher do, and what goes wrong meanwhile. It needs
// `make build`, builds the golden image, from the cache where it can, and uses a state home of its own.
package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/labs"
	ciproof "github.com/cgoa-labs/labctl/labs/catalog/ci/proof"
	revproof "github.com/cgoa-labs/labctl/labs/catalog/rev/proof"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/proof"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/qemu/host"
)

// labctl is the program under test and state its home, the same for all tests: an image is gigabytes.
var labctl, state string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if labctl, err = filepath.Abs("../../bin/labctl"); err != nil {
		panic(err)
	}
	if _, err := os.Stat(labctl); err != nil {
		println("bin/labctl is not built: run `make build`")
		return 1
	}
	// Sockets must fit into a unix address, so the folder is not go test's long one; it has one name, so that what a killed run left is
	// found by the next.
	state = filepath.Join(os.TempDir(), fmt.Sprintf("labctl-vm-%d", os.Getuid()))
	lock := flock.New(state + ".lock")
	if ok, err := lock.TryLock(); err != nil || !ok {
		println("another run of these tests holds " + state + ".lock")
		return 1
	}
	defer func() { _, _ = lock.Unlock(), os.Remove(state+".lock") }()
	if err := clean(); err != nil {
		println(err.Error())
		return 1
	}
	build := exec.Command(labctl, "--state-dir", state, "image", "build")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		println("image build: " + err.Error())
		return 1
	}
	code := m.Run()
	if err := clean(); err != nil {
		println(err.Error())
		return 1
	}
	return code
}

// tidy removes what a test that failed left, so that the next one does not fail because of it.
func tidy() { _ = vacate() }

// clean removes the state home and every machine in it.
func clean() error { return errors.Join(vacate(), os.RemoveAll(state)) }

// vacate removes every machine in the state home, and leaves its images.
func vacate() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var errs []error
	for _, args := range append(downs(), []string{"doctor", "--fix"}) {
		if _, err := os.Stat(state); err != nil {
			break
		}
		if out, err := exec.CommandContext(ctx, labctl, append([]string{"--state-dir", state}, args...)...).CombinedOutput(); err != nil && args[0] == "down" {
			errs = append(errs, fmt.Errorf("%w: %s", err, out))
		}
	}
	return errors.Join(errs...)
}

func downs() [][]string {
	var all [][]string
	for _, name := range instances() {
		all = append(all, []string{"down", name, "--yes"})
	}
	return all
}

// instances are the names below the state home, whatever state they are in.
func instances() []string {
	entries, _ := os.ReadDir(filepath.Join(state, "instances"))
	var names []string
	for _, e := range entries {
		switch waiting := layout.BeforeName(e.Name()); {
		case layout.IsRemoved(e.Name()): // for doctor
		case waiting != "":
			names = append(names, waiting)
		default:
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// result is what one run of labctl left.
type result struct {
	stdout, stderr string
	code           int
}

// cli runs labctl and logs what it said. limit bounds the run.
func cli(t *testing.T, limit time.Duration, args ...string) result {
	t.Helper()
	return cliWith(t, limit, nil, args...)
}

func cliWith(t *testing.T, limit time.Duration, stdin []byte, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, labctl, append([]string{"--state-dir", state}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	res := result{stdout: stdout.String(), stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		res.code = exit.ExitCode()
	case err != nil:
		t.Fatalf("labctl %s: %v", strings.Join(args, " "), err)
	}
	t.Logf("labctl %s: exit code %d after %s\n%s", strings.Join(args, " "), res.code, time.Since(start).Round(100*time.Millisecond), lastLines(res.stderr, 12))
	return res
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// must runs labctl and wants exit code 0.
func must(t *testing.T, limit time.Duration, args ...string) result {
	t.Helper()
	res := cli(t, limit, args...)
	require.Zero(t, res.code, "labctl %s\n%s\n%s", strings.Join(args, " "), res.stdout, res.stderr)
	return res
}

func statusOf(t *testing.T, name string) provision.Status {
	t.Helper()
	var doc struct{ Instances []provision.Status }
	require.NoError(t, json.Unmarshal([]byte(must(t, time.Minute, "status", "-o", "json").stdout), &doc))
	for _, st := range doc.Instances {
		if st.Name == name {
			return st
		}
	}
	return provision.Status{Name: name, Power: provision.Absent}
}

// report runs a lab command and decodes its report, whatever the verdict.
func report(t *testing.T, limit time.Duration, args ...string) labs.Report {
	t.Helper()
	res := cli(t, limit, append(args, "-o", "json")...)
	require.Contains(t, []int{0, 1}, res.code, "%s\n%s", res.stdout, res.stderr)
	var doc struct{ Report labs.Report }
	require.NoError(t, json.Unmarshal([]byte(res.stdout), &doc), res.stdout)
	r := doc.Report
	require.NotEmpty(t, r.State, res.stdout)
	require.Equal(t, res.code == 0, r.State == check.Passed, "exit code and verdict must agree")
	return r
}

func states(r labs.Report) map[int]check.State {
	out := map[int]check.State{}
	for _, s := range r.Steps {
		out[s.Step] = s.State
	}
	return out
}

// explain is what a person needs to see of a report that is not as wanted.
func explain(r labs.Report) string {
	var b strings.Builder
	for _, s := range r.Steps {
		for _, c := range s.Checks {
			if c.State != check.Passed {
				b.WriteString(strings.Join([]string{"step", string(rune('0' + s.Step)), c.ID, string(c.State), "wanted:", c.Wanted, "got:", c.Got, "hint:", c.Hint, "\n"}, " "))
			}
		}
	}
	return b.String() + r.Error
}

const (
	quick  = 5 * time.Minute
	boot   = 20 * time.Minute
	laboro = 15 * time.Minute
)

func TestLearner(t *testing.T) {
	const name = "proof"
	t.Cleanup(tidy)
	t.Run("up", func(t *testing.T) {
		res := must(t, boot, "up", name)
		require.Contains(t, res.stdout, "verify --lab ci", "the next commands are shown")
		st := statusOf(t, name)
		require.Equal(t, provision.Running, st.Power)
		require.NotEmpty(t, st.Frozen, "it is a clone\n%s", res.stderr)
		again := must(t, boot, "up", name)
		require.Equal(t, st.PID, statusOf(t, name).PID, "a second up changes nothing:\n%s", again.stderr)
	})
	if t.Failed() {
		return
	}
	t.Run("contract", func(t *testing.T) { must(t, quick, "doctor", "--guest", name) })
	t.Run("ssh", func(t *testing.T) {
		require.Equal(t, "lab\n", must(t, quick, "ssh", name, "--", "kubectl", "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}{\"\\n\"}").stdout)
		require.Equal(t, 7, cli(t, quick, "ssh", name, "--", "exit 7").code)
		require.Equal(t, name+"\n", must(t, quick, "ssh", name, "--", "hostname").stdout)
	})
	t.Run("twin", func(t *testing.T) { twin(t, name) })
	t.Run("stop and start", func(t *testing.T) {
		const bootID, sleeper = "cat /proc/sys/kernel/random/boot_id", "pgrep -f '[s]leep 86399'"
		must(t, quick, "ssh", name, "--", "nohup sleep 86399 >/dev/null 2>&1 & echo kept > /dev/shm/memory")
		before, process := must(t, quick, "ssh", name, "--", bootID).stdout, must(t, quick, "ssh", name, "--", sleeper).stdout
		must(t, quick, "stop", name)
		st := statusOf(t, name)
		require.Equal(t, provision.Stopped, st.Power)
		require.True(t, st.Suspended)
		must(t, quick, "doctor")
		must(t, quick, "start", name)
		require.Equal(t, before, must(t, quick, "ssh", name, "--", bootID).stdout, "it was not booted")
		require.Equal(t, process, must(t, quick, "ssh", name, "--", sleeper).stdout)
		require.Equal(t, "kept\n", must(t, quick, "ssh", name, "--", "cat /dev/shm/memory").stdout)
	})
	t.Run("isolation", func(t *testing.T) {
		// QEMU would lead the guest's 10.0.2.2 to this.
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		reached := make(chan struct{}, 1)
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_ = conn.Close()
				reached <- struct{}{}
			}
		}()
		port := listener.Addr().(*net.TCPAddr).Port
		require.NotZero(t, cli(t, quick, "ssh", name, "--", fmt.Sprintf("timeout 10 bash -c '</dev/tcp/10.0.2.2/%d'", port)).code, "the host is not reachable from the guest")
		require.Empty(t, reached)
	})
	// Both labs live in one guest: the second is solved beside the first, and reset first.
	for _, p := range proofs {
		t.Run("lab "+p.lab+", fresh", func(t *testing.T) { p.fresh(t, name) })
		t.Run("lab "+p.lab, func(t *testing.T) { p.prove(t, name) })
	}
	for _, p := range slices.Backward(proofs) {
		t.Run("lab "+p.lab+", reset", func(t *testing.T) { p.reset(t, name) })
	}
	t.Run("full disk is an error, not a failure", func(t *testing.T) {
		must(t, quick, "ssh", name, "--", "fallocate -l $(($(df --output=avail -B1 / | tail -n 1) - 50000000)) /root/full; dd if=/dev/zero of=/root/full2 bs=1M status=none; true")
		res := cli(t, quick, "verify", "--lab", "ci", "-o", "json")
		must(t, quick, "ssh", name, "--", "rm -f /root/full /root/full2")
		require.Equal(t, 3, res.code, res.stdout)
		require.NotContains(t, res.stdout, `"state": "failed"`)
	})
	t.Run("made anew", func(t *testing.T) { anew(t, name) })
	t.Run("a new lab", func(t *testing.T) { newLab(t, name) })
	t.Run("QEMU killed", func(t *testing.T) {
		must(t, quick, "ssh", name, "--", "echo kept > /root/work && sync")
		require.NoError(t, syscall.Kill(statusOf(t, name).PID, syscall.SIGKILL))
		require.Eventually(t, func() bool { return statusOf(t, name).Power == provision.Stopped }, time.Minute, time.Second)
		require.Equal(t, 3, cli(t, quick, "verify", "--lab", "ci").code)
		must(t, boot, "start", name)
		require.Equal(t, "kept\n", must(t, quick, "ssh", name, "--", "cat /root/work").stdout)
	})
	t.Run("down", func(t *testing.T) {
		machine, err := host.Identify(statusOf(t, name).PID)
		require.NoError(t, err)
		require.Equal(t, 2, cli(t, quick, "down", "--all").code, "without a terminal it must be told --yes")
		require.True(t, machine.Alive())
		require.Contains(t, must(t, quick, "down", "--all", "--yes").stdout, "leftovers: none")
		// Not by a signal to the PID: where PID 1 is slow to reap, what has ended can still be signalled.
		require.False(t, machine.Alive())
		require.Empty(t, instances())
		require.Equal(t, provision.Absent, statusOf(t, name).Power)
		must(t, quick, "doctor")
	})
}

// twin makes a second clone of the same frozen guest: what must be a guest's own is its own. The second's cluster is to have keys of its own too.
func twin(t *testing.T, name string) {
	const other = "twin"
	frozen := statusOf(t, name).Frozen
	t.Setenv("LABCTL_INSTANCE_ISOLATE", "true") // for new ones
	// Making every pod of a guest anew takes what processors there are: the first guest does not run meanwhile.
	must(t, quick, "stop", name)
	must(t, boot, "up", other)
	require.Equal(t, frozen, statusOf(t, other).Frozen)
	must(t, quick, "start", name)
	pids := []int{statusOf(t, name).PID, statusOf(t, other).PID}
	must(t, quick, "up", name, other)
	require.Equal(t, pids, []int{statusOf(t, name).PID, statusOf(t, other).PID}, "whoever is there stays as it is")
	res := cli(t, quick, "verify", "--lab", "ci", "--all", "-o", "csv")
	require.Equal(t, 1, res.code)
	require.Contains(t, res.stdout, "\n"+name+",ci,failed,0,8,0.000,failed,skipped,")
	require.Contains(t, res.stdout, "\n"+other+",ci,failed,0,8,0.000,failed,skipped,")
	for what, script := range map[string]string{
		"host key":              "cat /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2",
		"machine-id":            "cat /etc/machine-id",
		"hostname":              "hostname",
		"login key":             "cut -d' ' -f2 /root/.ssh/authorized_keys",
		"random bytes":          "head -c 32 /dev/urandom | base64",
		"random uuid":           "cat /proc/sys/kernel/random/uuid",
		"authority":             "openssl x509 -noout -pubkey -in /var/lib/rancher/k3s/server/tls/server-ca.crt",
		"client's authority":    "openssl x509 -noout -pubkey -in /var/lib/rancher/k3s/server/tls/client-ca.crt",
		"service account key":   "openssl pkey -pubout -in /var/lib/rancher/k3s/server/tls/service.key",
		"authority in its pods": "kubectl -n argocd get configmap kube-root-ca.crt -o 'jsonpath={.data.ca\\.crt}'",
		"redis password":        "kubectl -n argocd get secret argocd-redis -o jsonpath={.data.auth}",
	} {
		a := must(t, quick, "ssh", name, "--", script).stdout
		b := must(t, quick, "ssh", other, "--", script).stdout
		require.NotEmpty(t, strings.TrimSpace(a), what)
		require.NotEqual(t, a, b, "two clones have the same %s", what)
	}
	// What one of them signs is worth nothing in the other.
	token := must(t, quick, "ssh", name, "--", "kubectl create token default").stdout
	asWhom := "kubectl get --raw /version --server https://127.0.0.1:6443 --kubeconfig /dev/null --insecure-skip-tls-verify --token " + strings.TrimSpace(token)
	must(t, quick, "ssh", name, "--", asWhom)
	require.NotZero(t, cli(t, quick, "ssh", other, "--", asWhom).code)
	require.NotZero(t, cli(t, quick, "up", name, "--isolate").code, "whoever works with the shared ones keeps them")
	must(t, laboro, "solve", "--lab", "ci", "--step", "1", "-i", other)
	require.Contains(t, must(t, quick, "ssh", other, "--", "dmesg").stdout, "crng reseeded due to virtual machine fork")
	must(t, quick, "ssh", other, "--", "echo mine > /root/mine")
	require.NotZero(t, cli(t, quick, "ssh", name, "--", "cat /root/mine").code, "a clone's disk is its own")
	must(t, quick, "down", other, "--yes")
	must(t, quick, "image", "inspect", "--verify")
}

// anew makes an instance anew and finds the old one kept, with its memory.
func anew(t *testing.T, name string) {
	const identity = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub"
	must(t, quick, "ssh", name, "--", "echo kept > /root/before; echo kept > /dev/shm/before")
	before, old := statusOf(t, name), must(t, quick, "ssh", name, "--", identity).stdout
	// A spare takes its place, and its port.
	var pool struct{ Spares []provision.Status }
	require.NoError(t, json.Unmarshal([]byte(must(t, boot, "pool", "--size", "1", "-o", "json").stdout), &pool))
	require.Len(t, pool.Spares, 1)
	must(t, quick, "doctor")
	var doc struct{ Kept provision.Status }
	require.NoError(t, json.Unmarshal([]byte(must(t, boot, "reset", "--vm", "-i", name, "--keep", "--yes", "-o", "json").stdout), &doc))
	require.True(t, doc.Kept.Suspended)
	require.Equal(t, before.Spec.SSHPort, statusOf(t, name).Spec.SSHPort)
	require.Equal(t, pool.Spares[0].PID, statusOf(t, name).PID, "the spare was taken")
	require.Equal(t, name+"\n", must(t, quick, "ssh", name, "--", "hostname").stdout)
	require.NotEqual(t, old, must(t, quick, "ssh", name, "--", identity).stdout)
	require.NotZero(t, cli(t, quick, "ssh", name, "--", "cat /root/before").code, "nothing of the old one is in the new")
	for _, p := range proofs {
		p.fresh(t, name)
	}
	must(t, quick, "stop", name)
	must(t, quick, "start", doc.Kept.Name)
	require.Equal(t, old, must(t, quick, "ssh", doc.Kept.Name, "--", identity).stdout)
	require.Equal(t, "kept\nkept\n", must(t, quick, "ssh", doc.Kept.Name, "--", "cat /root/before /dev/shm/before").stdout)
	must(t, quick, "down", doc.Kept.Name, "--yes")
	must(t, quick, "start", name)
	must(t, quick, "doctor")
}

// newLab begins a lab in a copy of the source tree, and proves it in a testbed, and beside the others in a real guest. `make proof` tries the others
// in a testbed too, with every answer.
func newLab(t *testing.T, name string) {
	tree := t.TempDir()
	copied, err := exec.Command("sh", "-c", `cd ../.. && git ls-files -z --cached --others --exclude-standard | tar --null -cT - | tar -xC "$1"`, "sh", tree).CombinedOutput()
	require.NoError(t, err, string(copied))
	must(t, quick, "lab", "new", "hello", "--tree", tree)
	require.Equal(t, 2, cli(t, quick, "lab", "new", "hello", "--tree", tree).code, "it is there already")
	var doc struct {
		Labs []struct {
			Tests          bool
			Testbed, Table proof.Table
		}
	}
	res := must(t, boot, "lab", "test", filepath.Join(tree, "labs/catalog/hello"), "--sample", "--testbed", "-i", name, "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(res.stdout), &doc))
	require.Len(t, doc.Labs, 1)
	require.True(t, doc.Labs[0].Tests)
	for _, table := range []proof.Table{doc.Labs[0].Testbed, doc.Labs[0].Table} {
		require.Len(t, table.Rows, 2)
		for _, row := range table.Rows {
			require.True(t, row.Fresh && row.Solved && row.Undone && row.Wrong == 1 && row.Right == 1, "%+v", row)
		}
	}
	require.NoDirExists(t, filepath.Join(state, "testbed"))
	for _, p := range proofs {
		p.fresh(t, name)
	}
}

// labProof is the author's proof of one lab.
type labProof struct {
	lab    string
	sample func() []proof.Case
}

var proofs = []labProof{
	{"ci", ciproof.Sample},
	{"rev", revproof.Sample},
}

func (p labProof) verify(t *testing.T, name string, more ...string) labs.Report {
	t.Helper()
	return report(t, quick, append([]string{"verify", "--lab", p.lab, "-i", name}, more...)...)
}

func (p labProof) passes(t *testing.T, name string) {
	t.Helper()
	r := p.verify(t, name)
	require.Len(t, r.Steps, 8)
	require.Equal(t, check.Passed, r.State, explain(r))
}

// fresh wants a guest in which no step of the lab is done, and none is in error.
func (p labProof) fresh(t *testing.T, name string) {
	r := p.verify(t, name)
	require.Len(t, r.Steps, 8)
	for step, state := range states(r) {
		require.Contains(t, []check.State{check.Failed, check.Skipped}, state, "step %d of a fresh guest\n%s", step, explain(r))
	}
}

func (p labProof) prove(t *testing.T, name string) {
	t.Run("solved step by step", func(t *testing.T) {
		for step := 1; step <= 8; step++ {
			r := report(t, laboro, "solve", "--lab", p.lab, "-i", name, "--step", fmt.Sprint(step))
			require.Equal(t, check.Passed, r.State, explain(r))
		}
		p.passes(t, name)
	})
	if t.Failed() {
		return
	}
	t.Run("answers", func(t *testing.T) { p.answers(t, name) })
}

// reset puts the lab back to its start; the labs before it stay as they are.
func (p labProof) reset(t *testing.T, name string) {
	r := report(t, laboro, "reset", "--lab", p.lab, "-i", name, "--yes")
	require.Equal(t, check.Passed, r.State, "%+v", r.Left)
	require.Empty(t, r.Left)
	p.fresh(t, name)
	if p.lab != proofs[0].lab {
		proofs[0].passes(t, name)
	}
}

// answers makes a few wrong answers and another right one in a guest where all steps pass; `make proof` makes all.
func (p labProof) answers(t *testing.T, name string) {
	for _, c := range p.sample() {
		t.Run(fmt.Sprintf("step %d %s", c.Step, c.Name), func(t *testing.T) {
			shell := func(script string) {
				res := cliWith(t, quick, []byte(script), "ssh", name, "--", "sh -s")
				require.Zero(t, res.code, "%s\n%s", res.stdout, res.stderr)
			}
			shell(c.Before())
			r := p.verify(t, name, "--step", fmt.Sprint(c.Step))
			shell(c.After())
			require.Equal(t, c.Want, r.State, explain(r))
			if c.WantCheck != "" {
				checks := r.Steps[0].Checks
				require.Equal(t, c.WantCheck, checks[len(checks)-1].ID, explain(r))
			}
		})
	}
}
