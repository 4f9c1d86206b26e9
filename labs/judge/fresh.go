package judge

import (
	"context"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/sandbox"
)

// FreshApps asks whether none of the Applications is there.
func (j *Judge) FreshApps(names ...string) func(context.Context) (check.Outcome, error) {
	return func(ctx context.Context) (check.Outcome, error) {
		client, err := j.g.Argo()
		if err != nil {
			return check.Outcome{}, err
		}
		for _, name := range names {
			app, err := client.Application(ctx, name)
			if err != nil {
				return check.Outcome{}, err
			}
			if app != nil {
				got := text.Say("it is there")
				if app.DeletionTimestamp != nil {
					got = text.Say("it is being deleted, held by %s", strings.Join(app.Finalizers, ", "))
				}
				return j.Fail(text.Say("no Application %s", name), got, "left"), nil
			}
		}
		return j.Pass(text.Say("none")), nil
	}
}

// FreshNamespaces asks whether none of the namespaces is there.
func (j *Judge) FreshNamespaces(names ...string) func(context.Context) (check.Outcome, error) {
	return func(ctx context.Context) (check.Outcome, error) {
		client, err := j.g.Kube()
		if err != nil {
			return check.Outcome{}, err
		}
		for _, name := range names {
			ns, err := client.Namespace(ctx, name)
			if err != nil {
				return check.Outcome{}, err
			}
			if ns != nil {
				return j.Fail(text.Say("none of them"), text.Say("namespace %s is there, %s", name, ns.Status.Phase), "left"), nil
			}
		}
		return j.Pass(text.Say("none")), nil
	}
}

// FreshFiles asks whether neither the lab's folder nor its bare repository is there.
func (j *Judge) FreshFiles(context.Context) (check.Outcome, error) {
	work, bare := j.g.At.Work, j.g.At.Bare()
	for _, path := range []string{work, bare} {
		there, err := ground.Exists(path)
		if err != nil {
			return check.Outcome{}, err
		}
		if there {
			return j.Fail(text.Say("neither %s nor %s", work, bare), text.Say("%s is there", path), "left"), nil
		}
	}
	return j.Pass(text.Say("none")), nil
}

// FreshScratch asks whether no scratch folder of a verify that is gone is left.
func (j *Judge) FreshScratch(context.Context) (check.Outcome, error) {
	left, err := sandbox.Left(j.g.At.Scratch, j.g.At.ScratchPrefix())
	if err != nil {
		return check.Outcome{}, err
	}
	if len(left) > 0 {
		return j.Fail(text.Say("none"), text.Verbatim(strings.Join(left, ", ")), "left"), nil
	}
	return j.Pass(text.Say("none")), nil
}
