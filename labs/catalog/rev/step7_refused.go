package rev

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

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
	wanted := text.Say("a kubeconfig %s", l.AdminCopy())
	k, err := kube.ReadKubeconfig(l.AdminCopy())
	var bad *kube.KubeconfigError
	switch {
	case errors.As(err, &bad):
		return l.Fail(wanted, text.Verbatim(bad.Err.Error()), "kubeconfig-bad"), nil
	case errors.Is(err, os.ErrNotExist):
		return l.Fail(wanted, text.Say("there is none"), "kubeconfig-missing"), nil
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
		return l.Fail(text.Say("server %s", client.Server()), text.Say("server %s", k.Server), "kubeconfig-bad").With("sha256", digest), nil
	case k.Namespace != bootstrap.ArgoNamespace:
		return l.Fail(text.Say("current namespace %s", bootstrap.ArgoNamespace), text.Say("current namespace %s", k.Namespace), "kubeconfig-namespace").With("sha256", digest), nil
	}
	return l.Pass(text.Say("server %s, namespace %s", k.Server, k.Namespace)).With("sha256", digest), nil
}

// What the argocd command says: the refusal itself, and what comes of the usual mistakes.
const (
	saysRefused    = "rollback cannot be initiated when auto-sync is enabled"
	saysNoSettings = "argocd-cm"
	saysNoHistory  = "does not have deployment"
)

func (l *lab) refusedFile(context.Context) (check.Outcome, error) {
	wanted := text.Say("Argo CD's refusal of the rollback")
	output, digest, out, err := l.ReadOutput(l.Refused(), wanted, "refused-missing")
	if output == "" {
		return out, err
	}
	// Terminals and editors break long lines.
	said := strings.ToLower(strings.Join(strings.Fields(output), " "))
	if strings.Contains(said, saysRefused) {
		return l.Pass(text.Say("it holds the refusal")).With("sha256", digest), nil
	}
	hint := "refused-not"
	switch {
	case strings.Contains(said, saysNoSettings):
		hint = "refused-namespace"
	case strings.Contains(said, saysNoHistory):
		hint = "refused-id"
	}
	return l.Fail(wanted, text.Say("it says nothing of a rollback that is refused because the Application syncs by itself"), hint).With("sha256", digest), nil
}
