package solution

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cgoa-labs/labctl/labs/prompt"
	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Identity solves step 3.
func (s *Solution) Identity(ctx context.Context, log func(string)) error {
	w := s.start(log)
	for _, name := range []string{ground.CI, ground.DryRun} {
		if err := w.NotTerminating(ctx, name); err != nil {
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
		data, err := w.file(apply.file)
		if err != nil {
			return err
		}
		if _, err := w.Kubectl(ctx, string(data), apply.args...); err != nil {
			return err
		}
	}
	if err := w.revokeOthers(ctx, ground.DryRun+"/"+ground.Binding); err != nil {
		return err
	}
	return w.ciKubeconfig(ctx)
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
		w.Tell(text.Say("take ci:validator out of %s", grant.String()))
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
	token, err := w.Kubectl(ctx, "", "-n", ground.CI, "create", "token", ground.Validator.Name, "--duration=8h")
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
			w.Log("$ kubectl config --kubeconfig " + w.CIKubeconfig() + " " + strings.ReplaceAll(run.Quote(args), token, "TOKEN"))
			_, err := w.Runner.Run(ctx, run.Cmd{Argv: append([]string{"kubectl", "config", "--kubeconfig", next}, args...), Dir: "/"})
			return err
		}
	}
	return prompt.All(
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
	content, err := w.file("pre-receive")
	if err != nil {
		return err
	}
	return w.WriteHook(ctx, content)
}

// Report solves step 8.
func (s *Solution) Report(ctx context.Context, log func(string)) error {
	w := s.start(log)
	revision, err := w.Kubectl(ctx, "", "-n", "argocd", "get", "app", ground.App, "-o", "jsonpath={.status.sync.revision}")
	if err != nil {
		return err
	}
	answer, err := w.Kubectl(ctx, "", "auth", "can-i", "patch", "deployments.apps", "-n", ground.Production, "--as", ground.Validator.User())
	if code, exited := run.ExitCode(err); err != nil && !(exited && code == 1 && strings.HasPrefix(answer, "no")) {
		return err
	}
	broken, err := w.brokenCommit()
	if err != nil {
		return err
	}
	_, err = w.Run(ctx, nil, "", "git", "--git-dir", w.Bare(), "merge-base", "--is-ancestor", broken, ground.Main)
	if code, exited := run.ExitCode(err); err != nil && !(exited && code == 1) {
		return err
	}
	return w.SaveJSON(w.Report(), map[string]any{
		"ci_writes": "git", "cd_writes": "cluster", "ci_can_write_prod": answer == "yes", "gate": "pre-receive",
		"deployed_revision": revision, "broken_reached_git": err == nil,
	})
}
