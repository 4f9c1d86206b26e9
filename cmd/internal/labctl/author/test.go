package author

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/factory"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/image"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/labrun"
	"github.com/cgoa-labs/labctl/cmd/internal/labctl/up"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/cmd/internal/ui/page"
	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/proof"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/testbed"
)

// options are the arguments of lab test.
type options struct {
	testbed, vm, sample, keep, skipTests bool
	instance, table                      string
	format                               ui.Format
}

// own is the instance that lab test makes for itself.
const own = "lab-test"

// tested is what became of one lab.
type tested struct {
	Lab string `json:"lab"`
	// Tests says whether the tests of the lab's package passed; they hold the proof as far as it goes without a cluster.
	Tests bool `json:"tests"`
	// Skipped says that the tests were not run, as asked.
	Skipped bool   `json:"testsSkipped,omitempty"`
	Output  string `json:"output,omitempty"`
	// Testbed and Table are what the proofs in a testbed and in an instance found, where they were asked for.
	Testbed *proof.Table `json:"testbed,omitempty"`
	Table   *proof.Table `json:"table,omitempty"`
	Error   string       `json:"error,omitempty"`
}

// found is what a proof found in one kind of guest.
type found struct {
	where string
	*proof.Table
}

// proofs are those that were begun.
func (t tested) proofs() []found {
	return slices.DeleteFunc([]found{{"in a testbed", t.Testbed}, {"in a real instance", t.Table}}, func(f found) bool { return f.Table == nil })
}

func (t tested) misjudged() int {
	n := 0
	for _, f := range t.proofs() {
		n += len(f.Misjudged)
	}
	return n
}

func (t tested) good() bool { return (t.Tests || t.Skipped) && t.Error == "" && t.misjudged() == 0 }

// verdict is what the test comes to, in words.
func (t tested) verdict() string {
	switch {
	case !t.Tests && !t.Skipped:
		return "its tests failed"
	case t.Error != "":
		return "not proved to the end: " + t.Error
	case t.misjudged() > 0:
		return fmt.Sprintf("%d verdicts are wrong", t.misjudged())
	case len(t.proofs()) == 0:
		return "its tests passed"
	}
	return "judges as it must"
}

// tests is the result of lab test as JSON.
type tests struct {
	Schema  string      `json:"schema"`
	Labs    []tested    `json:"labs"`
	Timings []ui.Timing `json:"timings"`
}

// NewTest is the command lab test.
func NewTest(f *factory.Factory) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "test DIR...",
		Short: "Prove that a lab judges as it must",
		Long: `Prove labs of labctl's source tree, each by its folder. Their tests run first: the author's proof in a stand-in for a guest, with real git and
real scripts before an API server that pretends.

With --testbed the proof also runs in a testbed, within minutes: the golden image's own Kubernetes, Argo CD and git daemon, as processes of this
machine (Linux, as root). No kubelet is there, so that pods are only said to run. With --vm it runs in a real instance of its own, called
` + own + `, which is removed again; what befalls real guests is tried there too. Where the two disagree, the VM is right.

Either way no step may pass in a guest without the lab, each must pass once it is solved and fail once its work is taken away, every wrong
answer must be refused by the right check, every other right answer taken, and the reset must leave nothing.

It ends with exit code 1 where anything is misjudged.`,
		Example: `  labctl lab test labs/catalog/hello
  labctl lab test labs/catalog/hello --testbed
  labctl lab test labs/catalog/hello --vm
  labctl lab test labs/catalog/ci labs/catalog/rev --vm --sample`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Misused(cmd, "which lab? Give its folder, such as labs/catalog/hello")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.instance != "" && o.keep:
				return cli.Misused(cmd, "--keep is about the instance that the command makes; the one that -i names stays anyway")
			case o.keep && !o.vm:
				return cli.Misused(cmd, "--keep goes with --vm")
			case o.table != "" && !o.vm && !o.testbed && o.instance == "":
				return cli.Misused(cmd, "--table goes with --testbed, --vm or -i: it is written from what they showed")
			}
			return o.run(cmd.Context(), f, args)
		},
	}
	cmd.Flags().BoolVar(&o.testbed, "testbed", false, "prove it in a testbed: the image's Kubernetes and Argo CD as processes of this machine")
	cmd.Flags().BoolVar(&o.vm, "vm", false, "prove it in an instance, made for this and removed again")
	f.InstanceFlag(cmd, &o.instance)
	cmd.Flags().Lookup("instance").Usage = "prove it in this `INSTANCE`, where the lab must be at its start, and leave it so"
	cmd.Flags().BoolVar(&o.skipTests, "skip-tests", false, "only the proof that is asked for: leave out the tests of the labs' packages")
	cmd.Flags().BoolVar(&o.sample, "sample", false, "only one answer of each kind for each step")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "with --vm: leave the instance as it is at the end")
	cmd.Flags().StringVar(&o.table, "table", "", "also write the table into a Markdown `FILE`")
	_ = cmd.MarkFlagFilename("table", "md")
	ui.AddFormat(cmd, &o.format)
	return cmd
}

// source is a lab in the source tree.
type source struct {
	tree, id string
	program  labrun.Program
	document proof.Document
}

// find finds a lab by its folder.
func find(dir string) (source, error) {
	tree, err := findTree(dir)
	if err != nil {
		return source{}, err
	}
	at, err := filepath.Abs(dir)
	if err != nil {
		return source{}, err
	}
	id := filepath.Base(at)
	if filepath.Join(tree, catalogDir, id) != at {
		return source{}, &cli.UsageError{Msg: dir + " is no lab's folder", Fix: "labs are the folders below " + catalogDir + ", such as " + catalogDir + "/ci"}
	}
	for _, need := range []string{at, filepath.Join(tree, "cmd", "lab-"+id, "main.go")} {
		if there, err := exists(need); err != nil {
			return source{}, err
		} else if !there {
			return source{}, &cli.UsageError{Msg: "there is no " + need, Fix: "begin a lab with `labctl lab new`"}
		}
	}
	return source{tree: tree, id: id}, nil
}

func (o options) run(ctx context.Context, f *factory.Factory, dirs []string) error {
	if o.skipTests && !o.testbed && !o.vm && o.instance == "" {
		return &cli.UsageError{Msg: "--skip-tests leaves nothing to do", Fix: "say where to prove the lab: --testbed, --vm or -i INSTANCE"}
	}
	var sources []source
	for _, dir := range dirs {
		s, err := find(dir)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	progress := f.UI().NewProgress()
	defer progress.Close()
	if os.Getuid() != 0 {
		progress.Note("you are not root: tests that need a sandbox are skipped; --vm needs none")
	}
	doc := tests{Schema: ui.Schema("lab-test")}
	results := make([]tested, len(sources))
	for i := range sources {
		if err := o.without(ctx, f, &sources[i], &results[i], progress); err != nil {
			return err
		}
	}
	var trouble error
	if o.testbed {
		trouble = inTestbed(ctx, f, sources, results, progress)
	}
	if trouble == nil && (o.vm || o.instance != "") {
		trouble = o.within(ctx, f, sources, results, progress)
	}
	progress.Close()
	doc.Labs, doc.Timings = results, progress.Timings()
	if o.table != "" && trouble == nil {
		if err := page.File(o.table, markdown(results, o.sample)); err != nil {
			return err
		}
	}
	if o.format == ui.JSON {
		if err := f.UI().JSON(doc); err != nil {
			return err
		}
	} else {
		print(f.UI(), doc)
	}
	if trouble != nil {
		return trouble
	}
	for _, r := range results {
		if !r.good() {
			return cli.Exit(cli.CheckFailed)
		}
	}
	return nil
}

// without runs a lab's tests and builds its program.
func (o options) without(ctx context.Context, f *factory.Factory, s *source, result *tested, progress *ui.Progress) error {
	result.Lab = s.id
	env := slices.Clone(goSettings)
	if !o.sample {
		env = append(env, "PROOF=all")
	}
	return stage.Run(ctx, s, progress.Sink(""), stage.Stage[source]{
		Name: "tests of lab " + s.id,
		Run: func(ctx context.Context, s *source, _ func(string)) error {
			if o.skipTests {
				result.Skipped = true
				return stage.ErrCached
			}
			res, err := run.Local{}.Run(ctx, run.Cmd{Argv: []string{"go", "test", "-count=1", "./" + catalogDir + "/" + s.id + "/..."}, Dir: s.tree, Env: env})
			var exit *run.ExitError
			switch {
			case err == nil:
				result.Tests = true
			case errors.As(err, &exit) && ctx.Err() == nil:
				result.Output = string(res.Stdout) + string(res.Stderr) // a verdict on the lab, not trouble
			default:
				return err
			}
			return nil
		},
	}, stage.Stage[source]{
		Name: "build lab-" + s.id,
		Run: func(ctx context.Context, s *source, _ func(string)) error {
			if !result.Tests && !result.Skipped {
				return stage.ErrCached // what fails without a guest need not be tried in one
			}
			bin := filepath.Join(s.tree, "bin")
			if err := build(ctx, s.tree, bin+"/", "./cmd/lab-"+s.id); err != nil {
				return err
			}
			var err error
			if s.program, err = labrun.Locate(bin, labrun.Known{ID: s.id}); err != nil {
				return err
			}
			res, err := run.Local{}.Run(ctx, run.Cmd{Argv: []string{s.program.Path, "proof"}})
			if err != nil {
				return err
			}
			if err := json.Unmarshal(res.Stdout, &s.document); err != nil || s.document.Schema != proof.Schema || s.document.Lab != s.id {
				return fmt.Errorf("lab-%s does not tell its proof: %w", s.id, errors.Join(err, errors.New("its answer is of another kind")))
			}
			if o.sample {
				s.document.Trials, s.document.Disturbances = proof.Sample(s.document.Trials), nil
			}
			return nil
		},
	})
}

// goSettings build by the toolchain that made labctl, whatever the user's settings are.
var goSettings = []string{"CGO_ENABLED=0", "GOTOOLCHAIN=" + runtime.Version(), "GOFLAGS=-buildvcs=false -trimpath"}

// build builds a program of the tree into to.
func build(ctx context.Context, tree, to, program string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	argv := []string{"go", "build", "-ldflags", "-s -w -X " + Module + "/cmd/internal/cli.Version=" + cli.Version, "-o", to, program}
	_, err := run.Local{}.Run(ctx, run.Cmd{Argv: argv, Dir: tree, Env: goSettings})
	return err
}

// within proves the labs in an instance: the one that was named, or one made for this.
func (o options) within(ctx context.Context, f *factory.Factory, sources []source, results []tested, progress *ui.Progress) (err error) {
	driver, err := f.Driver()
	if err != nil {
		return err
	}
	name := o.instance
	if name == "" {
		name = own
		if err := removeOwn(ctx, f, driver, progress); err != nil {
			return err
		}
		var programs []labrun.Program
		for _, s := range sources {
			programs = append(programs, s.program)
		}
		defer func() {
			if o.keep {
				return
			}
			// Also after Ctrl-C: nothing may be left behind.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, removeOwn(ctx, f, driver, progress))
		}()
		if err := up.Bring(ctx, f, own, programs, progress); err != nil {
			return err
		}
	}
	st, err := f.Pick(ctx, name)
	if err != nil {
		return err
	}
	guest, err := f.Connect(ctx, st)
	if err != nil {
		return err
	}
	defer func() { _ = guest.Close() }()
	return prove(ctx, f, guest, name, sources, func(i int, table *proof.Table) *tested {
		if table != nil {
			results[i].Table = table
		}
		return &results[i]
	}, progress)
}

// inTestbed proves the labs in a testbed, which is made from the image and ends with the proof.
func inTestbed(ctx context.Context, f *factory.Factory, sources []source, results []tested, progress *ui.Progress) (err error) {
	img, err := image.Ensure(ctx, f, progress)
	if err != nil {
		return err
	}
	program := filepath.Join(sources[0].tree, "bin", "labctl-testbed")
	var bed *testbed.Testbed
	if err := stage.One(ctx, progress.Sink(""), "testbed", func(ctx context.Context, detail func(string)) (err error) {
		detail("build labctl-testbed")
		if err := build(ctx, sources[0].tree, program, "./cmd/labctl-testbed"); err != nil {
			return err
		}
		bed, err = testbed.Start(ctx, testbed.Options{Program: program, Image: img.Dir, Home: f.Home(), Say: detail})
		return err
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	quiet := slices.Clone(sources)
	for i := range quiet {
		// They stop and start what only a machine has.
		quiet[i].document.Disturbances = nil
	}
	return prove(ctx, f, bed, "a testbed", quiet, func(i int, table *proof.Table) *tested {
		if table != nil {
			results[i].Testbed = table
		}
		return &results[i]
	}, progress)
}

// prove proves the labs in a guest, one after the other. keep is given each lab's table, or nil where there is none, and returns what is
// known of the lab.
func prove(ctx context.Context, f *factory.Factory, guest labrun.Guest, place string, sources []source, keep func(int, *proof.Table) *tested, progress *ui.Progress) error {
	for i, s := range sources {
		err := stage.One(ctx, progress.Sink(""), "prove lab "+s.id+" in "+place, func(ctx context.Context, detail func(string)) error {
			table, err := proof.Run(ctx, proved{f, guest, s.program}, s.document, detail)
			keep(i, &table)
			return err
		})
		if err != nil {
			// What was not proved to the end proves nothing.
			for n := i; n < len(sources); n++ {
				keep(n, nil).Error, _ = factory.Told(stage.Bare(err))
			}
			return err
		}
	}
	return nil
}

// removeOwn removes the instance of an earlier lab test, and no other's.
func removeOwn(ctx context.Context, f *factory.Factory, driver provision.Driver, progress *ui.Progress) error {
	st, err := driver.Status(ctx, own)
	if err != nil || st.Power == provision.Absent {
		return err
	}
	mark := f.Home().Instance(own).Proving()
	if there, err := exists(mark); err != nil {
		return err
	} else if !there {
		return &cli.UsageError{Msg: "there is an instance " + own + " that `labctl lab test` did not make", Fix: "remove it with `labctl down " + own + "`, or prove the lab in another with -i"}
	}
	return stage.One(ctx, progress.Sink(""), "remove "+own, func(ctx context.Context, _ func(string)) error { return driver.Delete(ctx, own) })
}

// proved is a guest in which a lab is proved by its program.
type proved struct {
	f       *factory.Factory
	guest   labrun.Guest
	program labrun.Program
}

func (p proved) call(ctx context.Context, call labrun.Call) (labs.Report, error) {
	call.Language = p.f.Language()
	return p.program.Run(ctx, p.guest, call, nil)
}

func (p proved) Verify(ctx context.Context, step int) (labs.Report, error) {
	return p.call(ctx, labrun.Call{Action: "verify", Step: step, Timeout: p.f.Settings().Timeouts.Verify})
}

// Solve wants the step to pass: the reference solution is no answer to be judged.
func (p proved) Solve(ctx context.Context, step int) (labs.Report, error) {
	r, err := p.call(ctx, labrun.Call{Action: "solve", Step: step, Timeout: p.f.Settings().Timeouts.Solve})
	if err == nil && r.State == check.Error {
		err = fmt.Errorf("step %d was not solved: %s", step, r.Error)
	}
	return r, err
}

func (p proved) Reset(ctx context.Context) (labs.Report, error) {
	return p.call(ctx, labrun.Call{Action: "reset", Timeout: p.f.Settings().Timeouts.Solve})
}

func (p proved) Shell(ctx context.Context, script string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, scriptTime, fmt.Errorf("the script did not end within %s", scriptTime))
	defer cancel()
	_, err := p.guest.Run(ctx, run.Cmd{Argv: []string{"sh", "-s"}, Stdin: strings.NewReader(script)})
	return err
}

// scriptTime bounds an answer's script.
const scriptTime = 5 * time.Minute

// columns of the table, for people and in Markdown.
var columns = []string{"STEP", "FRESH", "SOLVED", "UNDONE", "WRONG REFUSED", "RIGHT TAKEN", "TIME", "TITLE"}

func cells(r proof.Row) []string {
	yes := func(good bool) string {
		if good {
			return "yes"
		}
		return "NO"
	}
	undone := yes(r.Undone)
	if r.WrongTried+r.RightTried == 0 && !r.Undone {
		undone = "-" // its trials were not begun
	}
	return []string{fmt.Sprint(r.Step), yes(r.Fresh), yes(r.Solved), undone, fmt.Sprintf("%d/%d", r.Wrong, r.WrongTried), fmt.Sprintf("%d/%d", r.Right, r.RightTried),
		ui.Took(time.Duration(r.Millis) * time.Millisecond), r.Title}
}

func print(u *ui.UI, doc tests) {
	for _, l := range doc.Labs {
		if l.Output != "" {
			u.Print("%s", strings.TrimRight(l.Output, "\n"))
		}
		for _, f := range l.proofs() {
			u.Print("lab %s, %s:", l.Lab, f.where)
			var table ui.Table
			table.Row(columns...)
			for _, row := range f.Rows {
				table.Row(cells(row)...)
			}
			table.Write(u.Out)
			if f.DisturbedTried > 0 {
				u.Print("not misled by %d of %d disturbances: %s", len(f.Disturbed), f.DisturbedTried, strings.Join(f.Disturbed, ", "))
			}
			for _, m := range f.Misjudged {
				u.Print("%s", u.Result.Bad(m.String()))
			}
		}
		verdict := u.Result.Bad
		if l.good() {
			verdict = u.Result.Good
		}
		u.Print("lab %s: %s", l.Lab, verdict(l.verdict()))
	}
}

// markdown is the table for the documents.
func markdown(results []tested, sample bool) []byte {
	var b bytes.Buffer
	b.WriteString("# The author's proof\n\nWritten by `labctl lab test --table`. How to read it: [verdicts](verdicts.md).\n\n")
	what := "every answer of its catalogue"
	if sample {
		what = "one answer of each kind for each step"
	}
	for _, l := range results {
		for _, f := range l.proofs() {
			fmt.Fprintf(&b, "## Lab %s %s\n\nWith %s: %d verdicts misjudged. A verify of all steps took %s.\n\n", l.Lab, f.where, what, len(f.Misjudged), ui.Took(time.Duration(f.Millis)*time.Millisecond))
			head := make([]string, len(columns))
			for i, c := range columns {
				head[i] = strings.ToLower(c)
			}
			fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(columns)))
			for _, row := range f.Rows {
				fmt.Fprintf(&b, "| %s |\n", strings.Join(cells(row), " | "))
			}
			if f.DisturbedTried > 0 {
				fmt.Fprintf(&b, "\nWork that is right was never called wrong under %d of %d disturbances: %s.\n", len(f.Disturbed), f.DisturbedTried, strings.Join(f.Disturbed, ", "))
			}
			for _, m := range f.Misjudged {
				fmt.Fprintf(&b, "\n- %s\n", m)
			}
			b.WriteString("\n")
		}
	}
	return b.Bytes()
}
