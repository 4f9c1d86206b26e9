package session

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/limits"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
)

// look tells the guest's time, that of the last thing anybody did, and how many are logged in: gc.sh DIRECTORIES.
//
//go:embed gc_look.sh
var look string

// warn writes a line to all who are logged in.
//
//go:embed gc_warn.sh
var warn string

// gcDocument is the result of gc as JSON.
type gcDocument struct {
	Schema    string               `json:"schema"`
	Instances []watched            `json:"instances"`
	Swept     []provision.Leftover `json:"swept"`
}

// watched is a running instance with limits, and what was done about it.
type watched struct {
	Name string `json:"name"`
	// Limit is the one that is reached first, and LeftSeconds how long that is away.
	Limit       limits.Kind `json:"limit,omitempty"`
	LeftSeconds int64       `json:"leftSeconds"`
	// Done is "stopped", "warned", or empty.
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// NewGC is the command gc.
func NewGC(f *factory.Factory) *cobra.Command {
	var format ui.Format
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Stop what has run or idled too long, and remove what was left over",
		Long: `Stop instances that have run longer than their --ttl, or in which nobody has done anything for their --idle, keeping memory and work: start goes
on where they were. Nothing is ever removed but what killed commands left over. Whoever is logged in is warned at least --grace before; where nobody
is logged in, nobody is waited for.

It is made to be run from cron, and says nothing where there is nothing to do:

  */2 * * * *  labctl gc`,
		Example: "  labctl up alice --ttl 4h --idle 30m\n  labctl gc\n  labctl gc -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if grace < 0 {
				return cli.Misused(cmd, fmt.Sprintf("--grace: %s is no time to wait", grace))
			}
			return gc(cmd.Context(), f, grace, format)
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Minute, "how long before they are stopped learners are warned, a `TIME`")
	ui.AddFormat(cmd, &format)
	return cmd
}

func gc(ctx context.Context, f *factory.Factory, grace time.Duration, format ui.Format) error {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	all, err := driver.List(ctx)
	if err != nil {
		return fmt.Errorf("list the instances: %w", err)
	}
	doc := gcDocument{Schema: ui.Schema("gc"), Instances: []watched{}, Swept: []provision.Leftover{}}
	release, alone, err := onlyOne(f)
	if err != nil {
		return err
	}
	defer release()
	if alone {
		doc.Instances = watchAll(ctx, f, driver, all, grace)
		if doc.Swept, err = sweep(ctx, driver); err != nil {
			return err
		}
	}
	u := f.UI()
	if format == ui.JSON {
		err = u.JSON(doc)
	} else {
		printGC(u, doc)
	}
	switch failed := countErrors(doc.Instances); {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed > 0:
		return &factory.SomeFailedError{What: "looked after", Failed: failed, All: len(doc.Instances)}
	}
	return nil
}

// onlyOne takes gc's own lock. alone is false where another gc is at work, which does all there is to do.
func onlyOne(f *factory.Factory) (release func(), alone bool, err error) {
	path := f.Home().Lock("host", "gc")
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return func() {}, false, nil // nothing was ever made here
	}
	lock := flock.New(path, flock.SetPermissions(0o600))
	if alone, err = lock.TryLock(); err != nil {
		return nil, false, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = lock.Unlock() }, alone, nil
}

func watchAll(ctx context.Context, f *factory.Factory, driver provision.Driver, all []provision.Status, grace time.Duration) []watched {
	list := []watched{}
	byName := map[string]int{}
	var names []string
	for _, st := range all {
		if st.Power != provision.Running || st.Waiting != nil {
			continue
		}
		w := watched{Name: st.Name}
		l, err := limits.Load(f.Home().Instance(st.Name))
		w.Error, w.Hint = factory.Told(err)
		if err == nil && l.None() {
			continue
		}
		if err == nil {
			names = append(names, st.Name)
		}
		byName[st.Name] = len(list)
		list = append(list, w)
	}
	var mu sync.Mutex
	failed := f.Each(ctx, names, func(ctx context.Context, name string) error {
		st, err := driver.Status(ctx, name)
		if err != nil {
			return err
		}
		w, err := watch(ctx, f, driver, st, grace)
		mu.Lock()
		defer mu.Unlock()
		list[byName[name]] = w
		return err
	})
	for name, err := range failed {
		w := &list[byName[name]]
		w.Name = name
		w.Error, w.Hint = factory.Told(err)
	}
	return list
}

// watch warns the learner of an instance, or stops it, where that is due.
func watch(ctx context.Context, f *factory.Factory, driver provision.Driver, st provision.Status, grace time.Duration) (watched, error) {
	w := watched{Name: st.Name}
	dir := f.Home().Instance(st.Name)
	l, err := limits.Load(dir)
	if err != nil || st.Power != provision.Running {
		return w, err
	}
	now := time.Now()
	ran, idled, people := now.Sub(st.Started), time.Duration(0), 1
	guest, err := f.Connect(ctx, st)
	switch {
	case err == nil:
		defer func() { _ = guest.Close() }()
		if idled, people, err = lastDone(ctx, f, st, guest, now); err != nil {
			return w, err
		}
	case l.TTLSeconds > 0 && l.TTL() <= ran:
		// Its time is over, and nobody can be told.
	case l.IdleSeconds > 0 && ran > f.Settings().Timeouts.Boot:
		return w, err // how long it has idled cannot be asked, which stops nobody
	default:
		return w, nil // it may still be coming up
	}
	kind, left := l.Next(ran, idled)
	w.Limit, w.LeftSeconds = kind, int64(left.Seconds())
	warned := l.WarnedOf == kind && l.Warned.After(st.Started)
	switch {
	case left > grace:
		if l.WarnedOf != "" { // the learner has come back
			l.Warned, l.WarnedOf = time.Time{}, ""
			return w, l.Save(dir)
		}
		return w, nil
	case !warned && people > 0 && guest != nil:
		in := max(left, grace)
		if err := tell(ctx, f, guest, st.Name, in); err != nil {
			return w, err
		}
		w.Done = "warned"
		l.Warned, l.WarnedOf = now, kind
		return w, l.Save(dir)
	case left > 0 || warned && people > 0 && now.Sub(l.Warned) < grace:
		return w, nil
	}
	if s, ok := driver.(provision.Suspender); ok {
		err = s.Suspend(ctx, st.Name, func(string) {})
	} else {
		err = driver.Stop(ctx, st.Name)
	}
	if err != nil {
		return w, err
	}
	w.Done = "stopped"
	l.Warned, l.WarnedOf = time.Time{}, ""
	return w, l.Save(dir)
}

// lastDone is how long ago anybody did something in the guest, and how many are logged in.
func lastDone(ctx context.Context, f *factory.Factory, st provision.Status, guest run.Runner, now time.Time) (idled time.Duration, people int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("the guest did not answer within %s", askTime))
	defer cancel()
	res, err := guest.Run(ctx, run.Cmd{Argv: []string{"sh", "-s", "--", "/dev/pts", "/root", "/srv/bare"}, Stdin: strings.NewReader(look)})
	if err != nil {
		return 0, 0, err
	}
	var numbers [3]int64
	words := strings.Fields(string(res.Stdout))
	for i := range numbers {
		if len(words) != len(numbers) {
			return 0, 0, fmt.Errorf("the guest's answer cannot be read: %s", run.Tail(res.Stdout, 100))
		}
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("the guest's answer cannot be read: %s", run.Tail(res.Stdout, 100))
		}
	}
	// By the guest's own clock, which may differ.
	idled = time.Duration(max(0, numbers[0]-numbers[1])) * time.Second
	last := st.Started
	for _, s := range labrun.Standings(f.Home().Instance(st.Name)) {
		if s.Time.After(last) {
			last = s.Time
		}
	}
	return min(idled, max(0, now.Sub(last))), int(numbers[2]), nil
}

// askTime bounds a question to a guest.
const askTime = time.Minute

// tell warns everybody who is logged in to a guest.
func tell(ctx context.Context, f *factory.Factory, guest run.Runner, name string, in time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("the guest did not answer within %s", askTime))
	defer cancel()
	form := map[string]string{
		"en": "This machine will be stopped in %s. Memory and work are kept: `labctl start %s` goes on here.",
		"ja": "このマシンは %s 後に停止します。メモリと作業は保存され、`labctl start %s` で続きから再開できます。",
		"ko": "이 머신은 %s 뒤에 멈춥니다. 메모리와 작업은 보존되며 `labctl start %s` 로 이어서 할 수 있습니다.",
		"zh": "此机器将在 %s 后停止。内存和工作都会保留：`labctl start %s` 可从这里继续。",
	}[f.Language()]
	text := fmt.Sprintf(form, ui.Took(in), name)
	_, err := guest.Run(ctx, run.Cmd{Argv: []string{"sh", "-s", "--", "/dev/pts", text}, Stdin: strings.NewReader(warn)})
	return err
}

// sweep removes what killed commands left over; what somebody works on just now is none.
func sweep(ctx context.Context, driver provision.Driver) ([]provision.Leftover, error) {
	left, err := driver.Leftovers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for what is left over: %w", err)
	}
	if len(left) == 0 {
		return []provision.Leftover{}, nil
	}
	err = driver.Sweep(ctx, left)
	if busy := (*provision.BusyError)(nil); errors.As(err, &busy) {
		return []provision.Leftover{}, nil
	}
	return left, err
}

func countErrors(list []watched) (n int) {
	for _, w := range list {
		if w.Error != "" {
			n++
		}
	}
	return n
}

func printGC(u *ui.UI, doc gcDocument) {
	for _, w := range doc.Instances {
		why := map[limits.Kind]string{limits.TTL: "it has run as long as it may", limits.Idle: "nobody has done anything in it"}[w.Limit]
		switch {
		case w.Error != "":
			u.Print("%s  %s", w.Name, w.Error)
		case w.Done == "stopped":
			u.Print("%s  stopped: %s; `labctl start %s` goes on where it was", w.Name, why, w.Name)
		case w.Done == "warned":
			u.Print("%s  its learner was warned that it will be stopped", w.Name)
		}
	}
	for _, l := range doc.Swept {
		u.Print("removed: %s %s (%s)", l.Kind, l.Path, l.Why)
	}
}
