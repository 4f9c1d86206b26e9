// Package stack keeps a fleet as a Pulumi stack on this machine: one resource an instance. What making and removing an instance
// means is the caller's; Pulumi says in which order, how many at once, and remembers who is in the fleet.
package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/cgoa-labs/labctl/config/layout"
	"github.com/cgoa-labs/labctl/provision"
	"github.com/cgoa-labs/labctl/provision/run"
	"github.com/cgoa-labs/labctl/provision/state"
)

const (
	project  = "labctl"
	fleet    = "fleet"
	provider = "labctl"
	kind     = provider + ":index:Instance"
)

// Do makes or finishes the instance of a name and returns when it is ready, or removes it. It is called for several instances at once, and
// may be called for what is done already.
type Do = func(ctx context.Context, name string) error

// Stack is the fleet's stack.
type Stack struct {
	// Home holds the stack's state.
	Home layout.Home
	// CLI is the path of the Pulumi command line; see the package command.
	CLI string
	// Parallel is how many instances are worked on at once, at least 1.
	Parallel int
	// Log is told what Pulumi says, line by line, for the debug log; Note what people should know. Both may be nil.
	Log, Note func(line string)
}

// ErrNotReached says of an instance that Pulumi ended before its turn came.
var ErrNotReached = errors.New("its turn did not come")

// Up makes the instances of these specs, or finishes them, and adds them to the fleet. One that fails stops no other. The outcomes
// are what became of each, nil where all went well. The error is set where Pulumi itself failed, or ctx ended; what had not been
// done by then is ErrNotReached.
func (s *Stack) Up(ctx context.Context, specs []provision.Spec, up Do) (map[string]error, error) {
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = spec.Name
	}
	program := func(ctx *pulumi.Context) error {
		for _, spec := range specs {
			var res pulumi.CustomResourceState
			if err := ctx.RegisterResource(kind, spec.Name, inputs(spec), &res); err != nil {
				return err
			}
		}
		return nil
	}
	return s.run(ctx, names, &server{up: up, names: names}, program, func(ctx context.Context, st auto.Stack, _ []string) error {
		_, err := st.Up(ctx, optup.Target(urns(names)), optup.Parallel(max(1, s.Parallel)), optup.ContinueOnError(), optup.SuppressOutputs(), optup.ProgressStreams(s.log()), optup.ErrorProgressStreams(s.log()))
		return err
	})
}

// Down removes the instances of these names and takes them out of the fleet; those that never were in it are removed as well.
func (s *Stack) Down(ctx context.Context, names []string, down Do) (map[string]error, error) {
	p := &server{down: down, names: names}
	return s.run(ctx, names, p, func(*pulumi.Context) error { return nil }, func(ctx context.Context, st auto.Stack, members []string) error {
		var mine []string
		for _, name := range names {
			if slices.Contains(members, name) {
				mine = append(mine, name)
			} else if err := p.work(ctx, name, down); err != nil {
				s.say(err.Error())
			}
		}
		if len(mine) == 0 {
			return nil
		}
		_, err := st.Destroy(ctx, optdestroy.Target(urns(mine)), optdestroy.Parallel(max(1, s.Parallel)), optdestroy.ContinueOnError(), optdestroy.SuppressOutputs(), optdestroy.ProgressStreams(s.log()), optdestroy.ErrorProgressStreams(s.log()))
		return err
	})
}

func inputs(spec provision.Spec) pulumi.Map {
	return pulumi.Map{
		"image": pulumi.String(filepath.Base(string(spec.Image))), "imageDigest": pulumi.String(spec.ImageDigest),
		"cpus": pulumi.Int(spec.CPUs), "memoryMiB": pulumi.Int(spec.MemoryMiB), "diskGiB": pulumi.Int(spec.DiskGiB),
	}
}

func urns(names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = fmt.Sprintf("urn:pulumi:%s::%s::%s::%s", fleet, project, kind, name)
	}
	return all
}

// run does one thing to the stack, with the provider beside it. Only one labctl at a time does.
func (s *Stack) run(ctx context.Context, names []string, p *server, program pulumi.RunFunc, do func(context.Context, auto.Stack, []string) error) (map[string]error, error) {
	dir := s.Home.Fleet()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keep the fleet: %w", err)
	}
	lock, err := state.Store{Home: s.Home}.Lock(ctx, s.Home.Lock("host", "fleet"), "the fleet", func(pid int) {
		s.note(fmt.Sprintf("waiting for another labctl (pid %d) to finish with the fleet", pid))
	})
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve Pulumi: %w", err)
	}
	stop := p.serve(ctx, &ownUser{listener})
	defer stop()
	cmd, err := newCommand(ctx, s.CLI)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	st, members, err := s.open(ctx, cmd, dir, program, listener.Addr().(*net.TCPAddr).Port)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	err = do(ctx, st, members)
	stop() // nothing is at work after this
	outcomes, told := p.outcomes(names)
	switch {
	case ctx.Err() != nil:
		return outcomes, context.Cause(ctx)
	case err != nil && (!told || cmd.signaled.Load() || noneFailed(outcomes)):
		return outcomes, s.explain(ctx, err)
	case err == nil && !told:
		return outcomes, &Error{Err: ErrNotReached}
	}
	return outcomes, nil // an error of Pulumi only repeats those of the instances
}

func noneFailed(outcomes map[string]error) bool {
	for _, err := range outcomes {
		if err != nil {
			return false
		}
	}
	return true
}

// open makes the workspace of the stack, as a labctl that was ended may have left it, and lists who is in the fleet.
func (s *Stack) open(ctx context.Context, cmd *cli, dir string, program pulumi.RunFunc, port int) (auto.Stack, []string, error) {
	var none auto.Stack
	home, work, backend := filepath.Join(dir, "home"), filepath.Join(dir, "work"), filepath.Join(dir, "backend")
	for _, d := range []string{home, work, backend} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return none, nil, err
		}
	}
	// Whoever has our lock is alone: these are of a labctl that was killed, and its Pulumi ended with it.
	if err := os.RemoveAll(filepath.Join(backend, ".pulumi", "locks")); err != nil {
		return none, nil, err
	}
	st, err := auto.UpsertStackInlineSource(ctx, fleet, project, program, auto.Pulumi(cmd), auto.WorkDir(work), auto.PulumiHome(home),
		auto.Project(workspace.Project{
			Name: tokens.PackageName(project), Runtime: workspace.NewProjectRuntimeInfo("go", nil),
			Backend: &workspace.ProjectBackend{URL: "file://" + backend},
		}),
		auto.EnvVars(map[string]string{
			"PULUMI_CONFIG_PASSPHRASE": "labctl", // the stack holds no secrets
			"PULUMI_SKIP_UPDATE_CHECK": "true", "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true", "PULUMI_SELF_MANAGED_STATE_NO_LEGACY_WARNING": "true",
			"PULUMI_DEBUG_PROVIDERS": fmt.Sprintf("%s:%d", provider, port),
		}))
	if err != nil {
		return none, nil, err
	}
	members, err := s.settle(ctx, st)
	return st, members, err
}

// settle drops the operations that were under way when a labctl was killed, which Pulumi would otherwise ask about: the instances
// themselves tell how far they came. It returns who is in the fleet.
func (s *Stack) settle(ctx context.Context, st auto.Stack) ([]string, error) {
	exported, err := st.Export(ctx)
	if err != nil {
		return nil, err
	}
	var deployment map[string]json.RawMessage
	if err := json.Unmarshal(exported.Deployment, &deployment); err != nil {
		return nil, fmt.Errorf("read the fleet's state: %w", err)
	}
	var pending []json.RawMessage
	if raw := deployment["pending_operations"]; raw != nil {
		if err := json.Unmarshal(raw, &pending); err != nil {
			return nil, fmt.Errorf("read the fleet's state: %w", err)
		}
	}
	if len(pending) > 0 {
		s.say(fmt.Sprintf("%d things that were under way when labctl was ended are done again", len(pending)))
		delete(deployment, "pending_operations")
		if exported.Deployment, err = json.Marshal(deployment); err != nil {
			return nil, err
		}
		if err := st.Import(ctx, exported); err != nil {
			return nil, err
		}
	}
	var resources []struct{ URN, Type string }
	if raw := deployment["resources"]; raw != nil {
		if err := json.Unmarshal(raw, &resources); err != nil {
			return nil, fmt.Errorf("read the fleet's state: %w", err)
		}
	}
	var members []string
	for _, r := range resources {
		if r.Type == kind {
			members = append(members, r.URN[strings.LastIndex(r.URN, "::")+2:])
		}
	}
	return members, nil
}

func (s *Stack) say(line string) {
	if s.Log != nil {
		s.Log(line)
	}
}

func (s *Stack) note(line string) {
	if s.Note != nil {
		s.Note(line)
	}
}

// log hands what Pulumi prints to the debug log.
func (s *Stack) log() *run.Lines {
	return &run.Lines{Each: func(line string) {
		if line = strings.TrimSpace(line); line != "" {
			s.say("pulumi: " + line)
		}
	}}
}

// Error says that Pulumi itself failed.
type Error struct{ Err error }

func (e *Error) Error() string { return "Pulumi could not work on the fleet: " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *Error) Hint() string {
	return "the same command again goes on where it stopped; the debug log has what Pulumi said"
}

func (s *Stack) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.say(err.Error())
	return &Error{Err: firstLine(err)}
}

// firstLine is an error in one line: Pulumi's carry everything it printed.
func firstLine(err error) error {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			return errors.New(line)
		}
	}
	return err
}
