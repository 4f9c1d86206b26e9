package prompt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/labs/text"
)

// appTime bounds a wait for Argo CD; an emulated guest takes minutes for what takes seconds elsewhere.
const appTime = 8 * time.Minute

// refreshAgain is how long a comparison that failed is left alone before another is asked for.
const refreshAgain = 20 * time.Second

// Refresh has Argo CD read an Application's repository again at once.
func (p *Prompt) Refresh(ctx context.Context, app string) error {
	_, err := p.Kubectl(ctx, "", "-n", "argocd", "annotate", "app", app, "argocd.argoproj.io/refresh=hard", "--overwrite")
	return err
}

// Sync has Argo CD apply a commit, whatever became of it before.
func (p *Prompt) Sync(ctx context.Context, app, commit string) error {
	_, err := p.Kubectl(ctx, "", "-n", "argocd", "patch", "app", app, "--type=merge", "-p", `{"operation":{"initiatedBy":{"username":"labctl solve"},"sync":{"revision":"`+commit+`","prune":true,"syncOptions":["CreateNamespace=true"]}}}`)
	return err
}

// WaitApp waits until ask passes, looking anew each time.
func (p *Prompt) WaitApp(ctx context.Context, title text.Phrase, ask func(ctx context.Context, client argo.Client) (check.Outcome, error)) error {
	client, err := p.g.Argo()
	if err != nil {
		return err
	}
	p.Tell(text.Say("wait: %s", title))
	last := ""
	_, err = check.Wait{Timeout: appTime, Attempt: time.Minute, First: time.Second, Most: 3 * time.Second, Observe: func(r check.Result) {
		if r.State != check.Passed && r.Got != last {
			last = r.Got
			p.Log("… " + r.Got)

		}
	}}.For(ctx, check.Check{ID: "wait", Title: title.String(), Ask: func(ctx context.Context) (check.Outcome, error) { return ask(ctx, client) }})
	return err
}

// WaitInStep waits until an Application is Synced and Healthy at the commit want, and runs meanwhile for every look that is not yet so.
func (p *Prompt) WaitInStep(ctx context.Context, app, want string, meanwhile func(ctx context.Context, s argo.Standing) error) error {
	asked := time.Now()
	return p.WaitApp(ctx, text.Say("%s Synced and Healthy at %s", app, text.Commit(want)), func(ctx context.Context, client argo.Client) (check.Outcome, error) {
		found, standing, err := client.Look(ctx, app, want)
		if err != nil {
			return check.Outcome{}, err
		}
		if found == nil {
			return check.Outcome{}, errors.New("there is no Application " + app)
		}
		if standing.State != check.Passed && meanwhile != nil {
			if err := meanwhile(ctx, standing); err != nil {
				return check.Outcome{}, err
			}
		}
		// Argo CD does not try a commit again that it gave up on, also where what was in its way is gone.
		if standing.Why == argo.SyncFailed && time.Since(asked) > refreshAgain {
			asked = time.Now()
			if err := p.Sync(ctx, app, want); err != nil {
				return check.Outcome{}, err
			}
		}
		// After a hiccup of the platform Argo CD looks again by itself, but only minutes later.
		if standing.Why == argo.Comparing && time.Since(asked) > refreshAgain {
			asked = time.Now()
			if err := p.Refresh(ctx, app); err != nil {
				return check.Outcome{}, err
			}
		}
		return check.Outcome{State: standing.State, Got: p.Say(standing.Got)}, nil
	})
}

// goneTime bounds the wait for namespaces' removal, appGoneTime for an Application's with Argo CD's help, and abandonedTime for it without.
const goneTime, appGoneTime, abandonedTime = 4 * time.Minute, 2 * time.Minute, 30 * time.Second

// RemoveApps deletes the Applications and what they deployed.
func (p *Prompt) RemoveApps(ctx context.Context, names ...string) error {
	client, err := p.g.Argo()
	if err != nil {
		return err
	}
	there := func(ctx context.Context) (left []string, held string, err error) {
		for _, name := range names {
			app, err := client.Application(ctx, name)
			if err != nil {
				return nil, "", err
			}
			if app != nil {
				left = append(left, name)
				held = "Application " + name + " is held by " + strings.Join(app.Finalizers, ", ")
			}
		}
		return left, held, nil
	}
	gone := func(timeout time.Duration) error {
		_, err := check.Wait{Timeout: timeout, Most: 2 * time.Second}.For(ctx, check.Check{ID: "gone", Title: "Applications deleted", Ask: func(ctx context.Context) (check.Outcome, error) {
			left, held, err := there(ctx)
			if err != nil {
				return check.Outcome{}, err
			}
			if len(left) > 0 {
				return check.NotYet("gone", held, ""), nil
			}
			return check.Pass(""), nil
		}})
		return err
	}
	left, _, err := there(ctx)
	if err != nil || len(left) == 0 {
		return err
	}
	for _, name := range left {
		p.Tell(text.Say("delete Application %s and what it deployed", name))
		if err := client.Delete(ctx, name); err != nil {
			return err
		}
	}
	err = gone(appGoneTime)
	if late := (*check.TimeoutError)(nil); !errors.As(err, &late) {
		return err
	}
	// What they deployed goes with their namespaces anyway.
	if left, _, err = there(ctx); err != nil {
		return err
	}
	for _, name := range left {
		p.Tell(text.Say("Argo CD does not let go of %s; taking its finalizers away", name))
		if err := client.Abandon(ctx, name); err != nil {
			return err
		}
	}
	return gone(abandonedTime)
}

// RemoveNamespaces deletes the namespaces, and waits until they are gone.
func (p *Prompt) RemoveNamespaces(ctx context.Context, names ...string) error {
	client, err := p.g.Kube()
	if err != nil {
		return err
	}
	for _, name := range names {
		ns, err := client.Namespace(ctx, name)
		if err != nil {
			return err
		}
		if ns == nil {
			continue
		}
		p.Tell(text.Say("delete namespace %s", name))
		if err := client.DeleteNamespace(ctx, name); err != nil {
			return err
		}
	}
	_, err = check.Wait{Timeout: goneTime, Most: 2 * time.Second}.For(ctx, check.Check{ID: "gone", Title: "namespaces deleted", Ask: func(ctx context.Context) (check.Outcome, error) {
		for _, name := range names {
			ns, err := client.Namespace(ctx, name)
			if err != nil {
				return check.Outcome{}, err
			}
			if ns != nil {
				return check.NotYet("gone", fmt.Sprintf("namespace %s is %s", name, ns.Status.Phase), ""), nil
			}
		}
		return check.Pass(""), nil
	}})
	return err
}

// NotTerminating waits until a namespace that is being deleted is gone, so that another can take its place.
func (p *Prompt) NotTerminating(ctx context.Context, name string) error {
	client, err := p.g.Kube()
	if err != nil {
		return err
	}
	_, err = check.Wait{Timeout: goneTime}.For(ctx, check.Check{ID: "terminating", Title: "namespace " + name + " deleted", Ask: func(ctx context.Context) (check.Outcome, error) {
		ns, err := client.Namespace(ctx, name)
		if err != nil {
			return check.Outcome{}, err
		}
		if ns != nil && ns.DeletionTimestamp != nil {
			return check.NotYet("gone", "it is being deleted", ""), nil
		}
		return check.Pass(""), nil
	}})
	return err
}

// RemoveFiles removes the lab's folder, its bare repository, and what verifies that are gone left behind.
func (p *Prompt) RemoveFiles() error {
	var errs []error
	for _, path := range []string{p.g.At.Work, p.g.At.Bare()} {
		if there, err := ground.Exists(path); err == nil && there {
			p.Tell(text.Say("remove %s", path))
		}
		errs = append(errs, os.RemoveAll(path))
	}
	swept, err := sandbox.Sweep(p.g.At.Scratch, p.g.At.ScratchPrefix())
	for _, dir := range swept {
		p.Tell(text.Say("remove %s", dir))
	}
	return errors.Join(append(errs, err)...)
}
