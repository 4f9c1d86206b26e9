// Command bench measures labctl as its users see it and writes the figures as JSON and as a page. Seconds are one machine's; what can be compared
// between machines and days are the ratios, each against the cold boot of the same run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const name = "bench"

type figure struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Ratio is Seconds divided by the cold boot's.
	Ratio float64 `json:"ratio"`
}

type document struct {
	Schema   string             `json:"schema"`
	Time     time.Time          `json:"time"`
	Build    map[string]float64 `json:"imageBuildSeconds"`
	Versions map[string]string  `json:"versions"`
	Figures  []figure           `json:"figures"`
	// Idle is what one clone takes of its host after two minutes in which nobody did anything.
	Idle idle `json:"idle"`
	// Skipped says which figures are missing, and why.
	Skipped []string `json:"skipped,omitempty"`
	// GuestMemoryMiB is what the guest uses when the platform is ready and nothing runs.
	GuestMemoryMiB int `json:"guestMemoryMiB"`
}

type bench struct {
	labctl string
	// state is a state home of its own, always the same, so that what a killed run left is found by the next.
	state string
	doc   document
	// pid is the clone's machine, and said what the last labctl wrote to stderr.
	pid  int
	said string
}

func main() {
	labctl := flag.String("labctl", "bin/labctl", "the program to measure")
	out := flag.String("out", "bench/out/bench.json", "where the figures go")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *labctl, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, labctl, out string) (err error) {
	b := &bench{labctl: labctl, state: filepath.Join(os.TempDir(), fmt.Sprintf("labctl-bench-%d", os.Getuid())), doc: document{Schema: "labctl.dev/bench/v1", Time: time.Now().UTC()}}
	defer func() {
		cleanCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		err = errors.Join(err, b.clean(cleanCtx))
	}()
	if err := b.clean(ctx); err != nil {
		return err
	}
	if err := b.image(ctx); err != nil {
		return err
	}
	if err := b.coldBoot(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		figure string
		args   []string
	}{
		{"verify 8 steps, fresh", []string{"verify", "--lab", "ci", "-i", name}},
		{"solve 8 steps", []string{"solve", "--lab", "ci", "-i", name}},
		{"verify 8 steps, solved", []string{"verify", "--lab", "ci", "-i", name}},
		{"reset lab", []string{"reset", "--lab", "ci", "-i", name, "--yes"}},
		{"stop, keeping the memory", []string{"stop", name}},
		{"start, going on", []string{"start", name}},
		{"down", []string{"down", name, "--yes"}},
	} {
		if err := b.timed(ctx, step.figure, step.args...); err != nil {
			return b.cut(out, err)
		}
	}
	for _, part := range []func(context.Context) error{
		b.clone, b.rest, b.anew, b.spare,
		func(ctx context.Context) error { return b.class(ctx, 4) },
		func(ctx context.Context) error { return b.class(ctx, 8) },
		// Whatever ran, the frozen guest is what it was.
		func(ctx context.Context) error { _, err := b.run(ctx, "image", "inspect", "--verify"); return err },
	} {
		if err := part(ctx); err != nil {
			return b.cut(out, err)
		}
	}
	return b.write(out)
}

// cut writes what was measured before something went wrong.
func (b *bench) cut(out string, why error) error {
	b.doc.Skipped = append(b.doc.Skipped, fmt.Sprintf("what follows %q: %v", b.doc.Figures[len(b.doc.Figures)-1].Name, why))
	return errors.Join(why, b.write(out))
}

// clean removes the state home, with the instances in it.
func (b *bench) clean(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(b.state, "instances")); err == nil {
		if _, err := b.run(ctx, "down", "--all", "--yes"); err != nil {
			return err
		}
	}
	return os.RemoveAll(b.state)
}

// run runs labctl in the bench's own state home; verify's verdict, whatever it is, is no failure of the measurement.
func (b *bench) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.labctl, append([]string{"--state-dir", b.state}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	out, err := cmd.Output()
	b.said = said.String()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 && args[0] == "verify" {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("labctl %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

func (b *bench) image(ctx context.Context) error {
	if _, err := b.run(ctx, "image", "build"); err != nil {
		return err
	}
	out, err := b.run(ctx, "image", "list", "-o", "json")
	if err != nil {
		return err
	}
	var list struct {
		Images []struct {
			Metadata struct {
				BuildSeconds map[string]float64 `json:"buildSeconds"`
				Versions     map[string]string  `json:"versions"`
			} `json:"metadata"`
		} `json:"images"`
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list.Images) == 0 {
		return fmt.Errorf("image list: %w: %s", err, out)
	}
	b.doc.Build, b.doc.Versions = list.Images[0].Metadata.BuildSeconds, list.Images[0].Metadata.Versions
	return nil
}

// upTimes is how long one up took.
type upTimes struct {
	started              time.Time
	frozen               string
	pid                  int
	ssh, platform, whole float64
}

func (b *bench) up(ctx context.Context, flags ...string) (upTimes, error) {
	begin := time.Now()
	out, err := b.run(ctx, append([]string{"up", name, "-o", "json"}, flags...)...)
	if err != nil {
		return upTimes{}, err
	}
	var up struct {
		Instance struct {
			Started time.Time
			Frozen  string
			PID     int
		}
		Timings []struct {
			Stage   string
			Seconds float64
		}
	}
	if err := json.Unmarshal(out, &up); err != nil {
		return upTimes{}, err
	}
	seconds := map[string]float64{}
	for _, t := range up.Timings {
		seconds[t.Stage] = t.Seconds
	}
	t := upTimes{
		started: up.Instance.Started, frozen: up.Instance.Frozen, pid: up.Instance.PID,
		ssh: seconds["start "+name], platform: seconds["start "+name] + seconds["platform ready"], whole: time.Since(begin).Seconds(),
	}
	if t.platform == 0 {
		return t, fmt.Errorf("up tells no times: %s", out)
	}
	return t, nil
}

// clone measures an instance that need not boot.
func (b *bench) clone(ctx context.Context) error {
	t, err := b.up(ctx)
	if err != nil {
		return err
	}
	if t.frozen == "" {
		return errors.New("the instance was booted, not cloned")
	}
	b.add("clone to SSH", t.ssh, b.base())
	b.add("clone to platform ready", t.platform, b.base())
	b.add("up of a clone, all of it", t.whole, b.base())
	b.pid = t.pid
	return nil
}

// anew measures an instance made anew, with nothing ready for it.
func (b *bench) anew(ctx context.Context) error {
	return b.timed(ctx, "reset --vm", "reset", "--vm", "-i", name, "--yes")
}

// spare measures spares, and what is taken from them.
func (b *bench) spare(ctx context.Context) error {
	const one = "pool --size 1"
	if err := b.timed(ctx, "a spare made", strings.Fields(one)...); err != nil {
		return err
	}
	if err := b.timed(ctx, "reset --vm, by a spare", "reset", "--vm", "-i", name, "--yes"); err != nil {
		return err
	}
	for _, args := range []string{one, "down " + name + " --yes"} {
		if _, err := b.run(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	t, err := b.up(ctx)
	if err != nil {
		return err
	}
	b.add("spare to SSH", t.ssh, b.base())
	b.add("spare to platform ready", t.platform, b.base())
	b.add("up by a spare, all of it", t.whole, b.base())
	_, err = b.run(ctx, "down", name, "--yes")
	return err
}

// class measures several instances at once, as far as this host has room for them.
func (b *bench) class(ctx context.Context, n int) error {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", name, i+1)
	}
	begin := time.Now()
	_, err := b.run(ctx, append([]string{"up"}, names...)...)
	var exit *exec.ExitError
	// What has no room is refused before anything of it is begun.
	begun, _ := filepath.Glob(filepath.Join(b.state, "instances", name+"*"))
	if errors.As(err, &exit) && exit.ExitCode() == 3 && len(begun) == 0 {
		b.doc.Skipped = append(b.doc.Skipped, fmt.Sprintf("up of %d: %s", n, lastWords(b.said)))
		return nil
	}
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("up of %d at once", n), time.Since(begin).Seconds(), b.base())
	begin = time.Now()
	_, err = b.run(ctx, "down", "--all", "--yes")
	b.add(fmt.Sprintf("down of %d", n), time.Since(begin).Seconds(), b.base())
	return err
}

func (b *bench) coldBoot(ctx context.Context) error {
	t, err := b.up(ctx, "--cold")
	if err != nil {
		return err
	}
	// The image's node was Ready already, so it is the first report of this boot that counts.
	ready, err := b.run(ctx, "ssh", name, "--", "kubectl", "get", "node", "lab", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastHeartbeatTime}`)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(ready)))
	if err != nil {
		return err
	}
	if at.Before(t.started) {
		return fmt.Errorf("the node has not reported since the start: last at %s", at)
	}
	used, err := b.run(ctx, "ssh", name, "--", "free -m | awk '/^Mem:/{print $3}'")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(string(used), &b.doc.GuestMemoryMiB); err != nil {
		return err
	}
	b.add("power-on to SSH", t.ssh, t.platform)
	b.add("power-on to node Ready", at.Sub(t.started).Seconds(), t.platform)
	b.add("power-on to platform ready (cold boot)", t.platform, t.platform)
	b.add("up of a cold boot, all of it", t.whole, t.platform)
	return nil
}

func (b *bench) add(name string, seconds, base float64) {
	b.doc.Figures = append(b.doc.Figures, figure{Name: name, Seconds: round(seconds), Ratio: round(seconds / base)})
}

func round(x float64) float64 { return float64(int(x*1000+0.5)) / 1000 }

func (b *bench) base() float64 {
	for _, f := range b.doc.Figures {
		if f.Ratio == 1 && strings.HasSuffix(f.Name, "(cold boot)") {
			return f.Seconds
		}
	}
	return 1
}

func (b *bench) timed(ctx context.Context, figureName string, args ...string) error {
	begin := time.Now()
	if _, err := b.run(ctx, args...); err != nil {
		return err
	}
	b.add(figureName, time.Since(begin).Seconds(), b.base())
	return nil
}

func (b *bench) write(out string) error {
	data, err := json.MarshalIndent(b.doc, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(out, append(data, '\n'), 0o644); err != nil {
		return err
	}
	at := strings.TrimSuffix(out, filepath.Ext(out)) + ".html"
	if err := writePage(at, b.doc); err != nil {
		return err
	}
	for _, f := range b.doc.Figures {
		fmt.Printf("%-42s %8.1f s  %6.2f x cold boot\n", f.Name, f.Seconds, f.Ratio)
	}
	for _, f := range []struct {
		what  string
		value string
	}{
		{"guest memory in use", fmt.Sprintf("%d MiB", b.doc.GuestMemoryMiB)},
		{"an idle clone: private memory", fmt.Sprintf("%d MiB", b.doc.Idle.PrivateMiB)},
		{"an idle clone: the guest's part of it", fmt.Sprintf("%d MiB", b.doc.Idle.GuestMiB)},
		{"an idle clone: its share of all memory", fmt.Sprintf("%d MiB", b.doc.Idle.ShareMiB)},
		{"an idle clone: processor", fmt.Sprintf("%.2f of a core", b.doc.Idle.Cores)},
	} {
		fmt.Printf("%-42s %12s\n", f.what, f.value)
	}
	for _, why := range b.doc.Skipped {
		fmt.Printf("not measured: %s\n", why)
	}
	fmt.Printf("figures in %s, plotted in %s\n", out, at)
	return nil
}
