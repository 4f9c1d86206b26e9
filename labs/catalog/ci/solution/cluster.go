package solution

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/sandbox"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Identity solves step 3.
func (s *Solution) Identity(ctx context.Context, log func(string)) error {
	w := s.start(log)
	for _, name := range []string{ground.CI, ground.DryRun} {
		if err := w.notTerminating(ctx, name); err != nil {
			return err
		}
	}
	for _, apply := range []struct {
		file string
		args []string
	}{
		{"identity.yaml", []string{"apply", "-f", "-"}},
		// reconcile also takes away what a Role or a binding gives beyond this.
		{"rbac.yaml", []string{"auth", "reconcile", "--remove-extra-permissions", "--remove-extra-subjects", "-f", "-"}},
	} {
		data, err := File(w.Paths, apply.file)
		if err != nil {
			return err
		}
		if _, err := w.kubectl(ctx, string(data), apply.args...); err != nil {
			return err
		}
	}
	if err := w.revokeOthers(ctx, ground.DryRun+"/"+ground.Binding); err != nil {
		return err
	}
	return w.ciKubeconfig(ctx)
}

func (w work) notTerminating(ctx context.Context, name string) error {
	client, err := w.Kube()
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

// revokeOthers takes the account out of every binding but the one that is named NAMESPACE/NAME.
func (w work) revokeOthers(ctx context.Context, keep string) error {
	client, err := w.Kube()
	if err != nil {
		return err
	}
	grants, err := client.Grants(ctx, ground.Validator)
	if err != nil {
		return err
	}
	for _, grant := range grants {
		if grant.Namespace+"/"+grant.Name == keep {
			continue
		}
		w.log("take ci:validator out of " + grant.String())
		if err := client.Revoke(ctx, ground.Validator, grant); err != nil {
			return err
		}
	}
	return nil
}

// ciKubeconfig builds the kubeconfig of CI's account with a fresh token, beside the old one and then in its place.
func (w work) ciKubeconfig(ctx context.Context) error {
	client, err := w.Kube()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.Work, 0o755); err != nil {
		return err
	}
	token, err := w.kubectl(ctx, "", "-n", ground.CI, "create", "token", ground.Validator.Name, "--duration=8h")
	if err != nil {
		return err
	}
	ca, err := client.CA()
	if err != nil {
		return err
	}
	next, caFile := w.CIKubeconfig()+".new", w.CIKubeconfig()+".ca"
	defer func() { _, _ = os.Remove(next), os.Remove(caFile) }()
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(caFile, ca, 0o600); err != nil {
		return err
	}
	config := func(args ...string) func() error {
		return func() error {
			w.log("$ kubectl config --kubeconfig " + w.CIKubeconfig() + " " + strings.ReplaceAll(run.Quote(args), token, "TOKEN"))
			_, err := w.Runner.Run(ctx, run.Cmd{Argv: append([]string{"kubectl", "config", "--kubeconfig", next}, args...), Dir: "/"})
			return err
		}
	}
	return all(
		config("set-cluster", "k3s", "--server="+client.Server(), "--certificate-authority="+caFile, "--embed-certs=true"),
		config("set-credentials", ground.Validator.Name, "--token="+token),
		config("set-context", "ci", "--cluster=k3s", "--user="+ground.Validator.Name, "--namespace="+ground.DryRun),
		config("use-context", "ci"),
		func() error { return os.Rename(next, w.CIKubeconfig()) },
	)
}

// Validate solves step 4.
func (s *Solution) Validate(_ context.Context, log func(string)) error {
	w := s.start(log)
	return w.write("validate.sh", w.Validate(), 0o755)
}

// Hook solves step 5.
func (s *Solution) Hook(ctx context.Context, log func(string)) error {
	w := s.start(log)
	path, err := w.BareRepo().HookPath(ctx, "pre-receive")
	if err != nil {
		return err
	}
	if path != w.Hook() {
		if _, err := w.run(ctx, nil, "", "git", "--git-dir", w.Bare(), "config", "--unset-all", "core.hooksPath"); err != nil {
			return err
		}
	}
	// A solve of step 2 that was killed may have left the learner's hook aside; where it is right, nothing is left to do.
	if there, err := ground.Exists(w.Hook()); err != nil {
		return err
	} else if !there {
		if err := closeDoor(w.Hook()); err != nil {
			return err
		}
	}
	return w.write("pre-receive", w.Hook(), 0o755)
}

// Report solves step 8.
func (s *Solution) Report(ctx context.Context, log func(string)) error {
	w := s.start(log)
	revision, err := w.kubectl(ctx, "", "-n", "argocd", "get", "app", ground.App, "-o", "jsonpath={.status.sync.revision}")
	if err != nil {
		return err
	}
	answer, err := w.kubectl(ctx, "", "auth", "can-i", "patch", "deployments.apps", "-n", ground.Production, "--as", ground.Validator.User())
	if code, exited := run.ExitCode(err); err != nil && !(exited && code == 1 && strings.HasPrefix(answer, "no")) {
		return err
	}
	broken, err := w.brokenCommit()
	if err != nil {
		return err
	}
	_, err = w.run(ctx, nil, "", "git", "--git-dir", w.Bare(), "merge-base", "--is-ancestor", broken, ground.Main)
	if code, exited := run.ExitCode(err); err != nil && !(exited && code == 1) {
		return err
	}
	return w.writeJSON(w.Report(), map[string]any{
		"ci_writes": "git", "cd_writes": "cluster", "ci_can_write_prod": answer == "yes", "gate": "pre-receive",
		"deployed_revision": revision, "broken_reached_git": err == nil,
	})
}

// Reset puts the lab back to its start; see labs.Lab.Reset.
func (s *Solution) Reset(ctx context.Context, log func(string)) error {
	w := s.start(log)
	// What can be taken away is taken away also where something else resists.
	return errors.Join(
		w.removeApp(ctx),
		w.removeNamespaces(ctx),
		w.revokeOthers(ctx, ""),
		w.removeFiles(),
	)
}

// goneTime bounds the wait for a namespace's removal, appGoneTime for an Application's with Argo CD's help.
const goneTime, appGoneTime = 4 * time.Minute, 2 * time.Minute

func (w work) removeApp(ctx context.Context) error {
	client, err := w.Argo()
	if err != nil {
		return err
	}
	gone := func(timeout time.Duration) error {
		_, err := check.Wait{Timeout: timeout, Most: 2 * time.Second}.For(ctx, check.Check{ID: "gone", Title: "Application " + ground.App + " deleted", Ask: func(ctx context.Context) (check.Outcome, error) {
			app, err := client.Application(ctx, ground.App)
			if err != nil {
				return check.Outcome{}, err
			}
			if app != nil {
				return check.NotYet("gone", "held by "+strings.Join(app.Finalizers, ", "), ""), nil
			}
			return check.Pass(""), nil
		}})
		return err
	}
	if app, err := client.Application(ctx, ground.App); err != nil || app == nil {
		return err
	}
	w.log("delete Application " + ground.App + " and what it deployed")
	if err := client.Delete(ctx, ground.App); err != nil {
		return err
	}
	err = gone(appGoneTime)
	if late := (*check.TimeoutError)(nil); !errors.As(err, &late) {
		return err
	}
	// What it deployed goes with its namespace anyway.
	w.log("Argo CD does not let go of it; taking its finalizers away")
	if err := client.Abandon(ctx, ground.App); err != nil {
		return err
	}
	return gone(30 * time.Second)
}

func (w work) removeNamespaces(ctx context.Context) error {
	client, err := w.Kube()
	if err != nil {
		return err
	}
	names := []string{ground.Production, ground.CI, ground.DryRun}
	for _, name := range names {
		ns, err := client.Namespace(ctx, name)
		if err != nil {
			return err
		}
		if ns == nil {
			continue
		}
		w.log("delete namespace " + name)
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

func (w work) removeFiles() error {
	var errs []error
	for _, path := range []string{w.Work, w.Bare()} {
		if there, err := ground.Exists(path); err == nil && there {
			w.log("remove " + path)
		}
		errs = append(errs, os.RemoveAll(path))
	}
	swept, err := sandbox.Sweep(w.Scratch, ground.ScratchPrefix)
	for _, dir := range swept {
		w.log("remove " + dir)
	}
	return errors.Join(append(errs, err)...)
}
