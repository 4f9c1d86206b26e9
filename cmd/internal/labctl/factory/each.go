package factory

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cgoa-labs/labctl/bootstrap/stage"
	"github.com/cgoa-labs/labctl/cmd/internal/cli"
	"github.com/cgoa-labs/labctl/cmd/internal/ui"
	"github.com/cgoa-labs/labctl/provision"
)

// Parallel is how many instances are worked on at once: a guest that starts keeps about two processors busy.
func (f *Factory) Parallel() int {
	if n := f.Settings().Parallel; n > 0 {
		return n
	}
	return max(1, runtime.NumCPU()/2)
}

// Each does one thing to every instance, as many at once as the settings say. One that fails stops no other; after ctx has ended none
// is begun. It returns what went wrong, by name.
func (f *Factory) Each(ctx context.Context, names []string, do func(ctx context.Context, name string) error) map[string]error {
	var group errgroup.Group
	group.SetLimit(f.Parallel())
	var mu sync.Mutex
	failed := map[string]error{}
	for _, name := range names {
		group.Go(func() error {
			err := context.Cause(ctx)
			if err == nil {
				err = do(ctx, name)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[name] = err
			}
			return nil
		})
	}
	_ = group.Wait()
	return failed
}

// Fleet makes the stack that keeps a fleet. It may have to build Pulumi's command line first, as a stage of progress.
func (f *Factory) Fleet(ctx context.Context, progress *ui.Progress) (fleet Fleet, err error) {
	log, _ := f.Log()
	name := "the fleet's stack"
	err = stage.Run(ctx, &fleet, progress.Sink(""), stage.Stage[Fleet]{Name: name, Run: func(ctx context.Context, fleet *Fleet, detail func(string)) (err error) {
		*fleet, err = f.Parts.Fleet(ctx, *f.loaded, f.Parallel(), detail, func(line string) { progress.Note("%s", line) }, func(line string) { log.Debug(line) })
		return err
	}})
	return fleet, err
}

// Outcome is what became of one of several instances.
type Outcome struct {
	Name     string           `json:"name"`
	Instance provision.Status `json:"instance"`
	Error    string           `json:"error,omitempty"`
	Hint     string           `json:"hint,omitempty"`
}

// Outcome looks at an instance after something was done to it that ended with failure, or well.
func (f *Factory) Outcome(ctx context.Context, name string, failure error) (Outcome, error) {
	o := Outcome{Name: name}
	o.Error, o.Hint = Told(failure)
	driver, err := f.Driver()
	if err != nil {
		return o, err
	}
	// Also after Ctrl-C it is worth telling how far everything came.
	if o.Instance, err = driver.Status(context.WithoutCancel(ctx), name); err != nil {
		return o, fmt.Errorf("look at instance %s: %w", name, err)
	}
	return o, nil
}

// Told is an error in one line, for a list, with its hint; both are empty where there is none.
func Told(err error) (line, hint string) {
	if err == nil {
		return "", ""
	}
	line, _, _ = strings.Cut(err.Error(), "\n") // what follows is such as a console's end
	return line, cli.Hint(err)
}

// SomeFailedError says that something failed for some of several instances; for which and why was printed.
type SomeFailedError struct {
	// What is what they are not, such as "ready".
	What        string
	Failed, All int
}

func (e *SomeFailedError) Error() string {
	return fmt.Sprintf("%d of %d instances are not %s", e.Failed, e.All, e.What)
}

// Hint is the next action.
func (e *SomeFailedError) Hint() string {
	return "the same command again goes on with them; the others stay as they are"
}
