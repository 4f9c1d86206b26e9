package rev

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/judge"
	"github.com/cgoa-labs/labctl/labs/kube"
)

// Step 7: Argo CD refuses to take an Application back that syncs by itself, and the Application stays as it is.
func (l *lab) refused() []check.Check {
	return []check.Check{
		l.Check("core-kubeconfig", l.coreKubeconfig),
		l.Check("refused-file", l.refusedFile),
		l.inStepCheck("refused-synced", ground.BranchApp),
	}
}

func (l *lab) coreKubeconfig(context.Context) (check.Outcome, error) {
	wanted := "a kubeconfig " + l.AdminCopy()
	k, err := kube.ReadKubeconfig(l.AdminCopy())
	var bad *kube.KubeconfigError
	switch {
	case errors.As(err, &bad):
		return l.Fail(wanted, bad.Err.Error(), "kubeconfig-bad"), nil
	case errors.Is(err, os.ErrNotExist):
		return l.Fail(wanted, "there is none", "kubeconfig-missing"), nil
	case err != nil:
		return check.Outcome{}, err
	}
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	digest, err := judge.FileDigest(l.AdminCopy())
	if err != nil {
		return check.Outcome{}, err
	}
	switch {
	case !kube.SameServer(k.Server, client.Server()):
		return l.Fail("server "+client.Server(), "server "+k.Server, "kubeconfig-bad").With("sha256", digest), nil
	case k.Namespace != bootstrap.ArgoNamespace:
		return l.Fail("current namespace "+bootstrap.ArgoNamespace, "current namespace "+k.Namespace, "kubeconfig-namespace").With("sha256", digest), nil
	}
	return check.Pass("server "+k.Server+", namespace "+k.Namespace).With("sha256", digest), nil
}

// What the argocd command says: the refusal itself, and what comes of the usual mistakes.
const (
	saysRefused    = "rollback cannot be initiated when auto-sync is enabled"
	saysNoSettings = "argocd-cm"
	saysNoHistory  = "does not have deployment"
)

func (l *lab) refusedFile(context.Context) (check.Outcome, error) {
	wanted := "Argo CD's refusal of the rollback"
	output, digest, out, err := l.ReadOutput(l.Refused(), wanted, "refused-missing")
	if output == "" {
		return out, err
	}
	// Terminals and editors break long lines.
	text := strings.ToLower(strings.Join(strings.Fields(output), " "))
	if strings.Contains(text, saysRefused) {
		return check.Pass("it holds the refusal").With("sha256", digest), nil
	}
	hint := "refused-not"
	switch {
	case strings.Contains(text, saysNoSettings):
		hint = "refused-namespace"
	case strings.Contains(text, saysNoHistory):
		hint = "refused-id"
	}
	return l.Fail(wanted, "it says nothing of a rollback that is refused because the Application syncs by itself", hint).With("sha256", digest), nil
}
