package ci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/judge"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/kube"
)

// Step 3: an account for CI that can try Deployments in one namespace and nothing else.
func (l *lab) identity() []check.Check {
	return []check.Check{
		l.Check("ci-namespaces", l.ciNamespaces),
		l.Check("ci-account", l.ciAccount),
		l.Check("ci-role", l.ciRole),
		l.Check("ci-binding", l.ciBinding),
		l.Check("ci-access", l.ciAccess),
		l.Check("ci-kubeconfig", l.ciKubeconfig),
		l.Check("ci-token", l.ciToken),
	}
}

func (l *lab) ciNamespaces(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	for _, name := range []string{ground.CI, ground.DryRun} {
		ns, err := client.Namespace(ctx, name)
		if err != nil {
			return check.Outcome{}, err
		}
		if ns == nil {
			return l.Fail(text.Say("namespaces ci and ci-dryrun"), text.Say("there is no namespace %s", name), "ns-missing"), nil
		}
		if ns.DeletionTimestamp != nil {
			return l.NotYet(text.Say("namespaces ci and ci-dryrun"), text.Say("namespace %s is being deleted", name), "ns-missing"), nil
		}
	}
	return l.Pass(text.Say("both are there")), nil
}

func (l *lab) ciAccount(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	sa, err := client.ServiceAccount(ctx, ground.Validator.Namespace, ground.Validator.Name)
	if err != nil {
		return check.Outcome{}, err
	}
	if sa == nil {
		return l.Fail(text.Say("a ServiceAccount validator in namespace ci"), text.Say("there is none"), "sa-missing"), nil
	}
	return l.Pass(text.Say("it is there")).With("uid", string(sa.UID)), nil
}

// allowedVerbs are what the Role gives on deployments.apps.
var allowedVerbs = []string{"create", "get", "patch"}

func (l *lab) ciRole(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	wanted := text.Say("only get, create and patch on deployments of the group apps")
	role, err := client.Role(ctx, ground.DryRun, ground.Role)
	if err != nil {
		return check.Outcome{}, err
	}
	if role == nil {
		return l.Fail(text.Say("a Role %s in namespace %s", ground.Role, ground.DryRun), text.Say("there is none"), "role-missing"), nil
	}
	var verbs []string
	for _, rule := range role.Rules {
		if len(rule.NonResourceURLs) > 0 || len(rule.ResourceNames) > 0 || !slices.Equal(unique(rule.APIGroups), []string{"apps"}) || !slices.Equal(unique(rule.Resources), []string{"deployments"}) {
			return l.Fail(wanted, describe(rule), "role-rules"), nil
		}
		verbs = append(verbs, rule.Verbs...)
	}
	if verbs = unique(verbs); !slices.Equal(verbs, allowedVerbs) {
		return l.Fail(wanted, text.Say("verbs %s", text.Names(verbs)), "role-rules"), nil
	}
	return l.Pass(wanted), nil
}

func unique(words []string) []string {
	sorted := slices.Sorted(slices.Values(words))
	return slices.Compact(sorted)
}

// describe says what a rule gives.
func describe(r rbacv1.PolicyRule) text.Phrase {
	rule := text.Say("a rule with groups %q, resources %q, verbs %q", r.APIGroups, r.Resources, r.Verbs)
	if len(r.ResourceNames) > 0 {
		return text.Say("%s, only for the names %q", rule, r.ResourceNames)
	}
	return rule
}

func (l *lab) ciBinding(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	binding, err := client.RoleBinding(ctx, ground.DryRun, ground.Binding)
	switch {
	case err != nil:
		return check.Outcome{}, err
	case binding == nil:
		return l.Fail(text.Say("a RoleBinding %s in namespace %s", ground.Binding, ground.DryRun), text.Say("there is none"), "binding-missing"), nil
	case binding.RoleRef.Kind != "Role" || binding.RoleRef.Name != ground.Role:
		return l.Fail(text.Say("Role %s", ground.Role), text.Say("%s %s", binding.RoleRef.Kind, binding.RoleRef.Name), "binding-role"), nil
	}
	for _, s := range binding.Subjects {
		if !ground.Validator.Names(s, ground.DryRun) {
			return l.Fail(text.Say("only ServiceAccount ci:validator"), text.Say("%s %s", s.Kind, strings.TrimPrefix(s.Namespace+":"+s.Name, ":")), "binding-subject"), nil
		}
	}
	if len(binding.Subjects) == 0 {
		return l.Fail(text.Say("ServiceAccount ci:validator"), text.Say("nobody"), "binding-subject"), nil
	}
	return l.Pass(text.Say("it gives the Role to ci:validator")), nil
}

// ciAccess asks the API server, because a group, a wildcard or another binding can give what the Role does not.
func (l *lab) ciAccess(ctx context.Context) (check.Outcome, error) {
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	who := ground.Validator
	deployments := func(verb, namespace string) kube.Access {
		return kube.Access{Verb: verb, Group: "apps", Resource: "deployments", Namespace: namespace}
	}
	answers := map[string]string{}
	for _, question := range []struct {
		what kube.Access
		want bool
	}{
		{deployments("create", ground.DryRun), true}, {deployments("get", ground.DryRun), true}, {deployments("patch", ground.DryRun), true},
		{deployments("delete", ground.DryRun), false}, {deployments("list", ground.DryRun), false},
		{deployments("patch", ground.Production), false}, {deployments("create", ground.Production), false},
		{deployments("create", ""), false},
		{kube.Access{Verb: "get", Resource: "secrets", Namespace: ground.DryRun}, false},
	} {
		allowed, reason, err := client.Allowed(ctx, who, question.what)
		if err != nil {
			return check.Outcome{}, err
		}
		answers[question.what.String()] = fmt.Sprint(allowed)
		if allowed != question.want {
			wanted, got, hint := text.Say("yes to: kubectl auth can-i %s", question.what.String()), text.Say("no"), "access-missing"
			if allowed {
				wanted, got, hint = text.Say("no to: kubectl auth can-i %s", question.what.String()), text.Say("yes: %s", reason), "access-too-much"
			}
			return l.Fail(wanted, got, hint).With("accessReviews", answers), nil
		}
	}
	namespaces, err := client.Namespaces(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	defaults, err := client.Defaults(ctx, who)
	if err != nil {
		return check.Outcome{}, err
	}
	for _, namespace := range namespaces {
		resources, urls, err := client.Rules(ctx, who, namespace)
		if err != nil {
			return check.Outcome{}, err
		}
		for _, r := range kube.Beyond(resources, defaults) {
			own := namespace == ground.DryRun && slices.Equal(unique(r.APIGroups), []string{"apps"}) &&
				slices.Equal(unique(r.Resources), []string{"deployments"}) && len(r.ResourceNames) == 0
			if own && !slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains(allowedVerbs, v) }) {
				continue
			}
			got := text.Say("in namespace %s: %s on %s of groups %q", namespace, strings.Join(r.Verbs, ", "), strings.Join(r.Resources, ", "), r.APIGroups)
			return l.Fail(text.Say("nothing but the Role's rights in ci-dryrun"), got, "access-too-much").With("accessReviews", answers), nil
		}
		for _, r := range kube.BeyondDiscovery(urls) {
			return l.Fail(text.Say("nothing but the Role's rights in ci-dryrun"), text.Say("%s on the URLs %s", strings.Join(r.Verbs, ", "), strings.Join(r.NonResourceURLs, ", ")), "access-too-much").With("accessReviews", answers), nil
		}
	}
	return l.Pass(text.Say("the Role's rights in ci-dryrun, and none in %d other namespaces", len(namespaces)-1)).With("accessReviews", answers), nil
}

// readKubeconfig reads ci-kubeconfig; where it cannot be used, the outcome says why.
func (l *lab) readKubeconfig() (*kube.Kubeconfig, check.Outcome, error) {
	wanted := text.Say("a kubeconfig %s", l.CIKubeconfig())
	k, err := kube.ReadKubeconfig(l.CIKubeconfig())
	var bad *kube.KubeconfigError
	switch {
	case errors.As(err, &bad):
		return nil, l.Fail(wanted, text.Verbatim(bad.Err.Error()), "ci-kubeconfig-bad"), nil
	case errors.Is(err, os.ErrNotExist):
		return nil, l.Fail(wanted, text.Say("there is none"), "ci-kubeconfig-missing"), nil
	}
	return k, check.Outcome{}, err
}

func (l *lab) ciKubeconfig(context.Context) (check.Outcome, error) {
	k, out, err := l.readKubeconfig()
	if k == nil {
		return out, err
	}
	client, err := l.Kube()
	if err != nil {
		return check.Outcome{}, err
	}
	sum, err := judge.FileDigest(l.CIKubeconfig())
	if err != nil {
		return check.Outcome{}, err
	}
	switch {
	case !kube.SameServer(k.Server, client.Server()):
		out = l.Fail(text.Say("server %s", client.Server()), text.Say("server %s", k.Server), "ci-kubeconfig-server")
	case k.Namespace != ground.DryRun:
		out = l.Fail(text.Say("current namespace %s", ground.DryRun), text.Say("current namespace %s", k.Namespace), "ci-kubeconfig-namespace")
	case len(k.Other) > 0:
		out = l.Fail(text.Say("a token and no other login"), text.Say("also: %s", strings.Join(unique(k.Other), ", ")), "ci-kubeconfig-admin")
	case k.SkipsTLS:
		out = l.Fail(text.Say("the server's certificate verified"), text.Verbatim("insecure-skip-tls-verify"), "ci-kubeconfig-tls")
	case k.Token == "":
		out = l.Fail(text.Say("the account's token"), text.Say("the current user has none"), "token-missing")
	default:
		out = l.Pass(text.Say("server %s, namespace %s", k.Server, k.Namespace))
	}
	return out.With("sha256", sum), nil
}

// tokenLife is how long the token is to be valid. Rounding, and asking for it in other units, is fine.
const tokenLife, tokenSlack = 8 * time.Hour, 10 * time.Minute

func (l *lab) ciToken(ctx context.Context) (check.Outcome, error) {
	k, out, err := l.readKubeconfig()
	if k == nil {
		return out, err
	}
	who := ground.Validator.User()
	claims, claimsErr := kube.ReadToken(k.Token)
	evidence := func(o check.Outcome) check.Outcome {
		if claimsErr == nil {
			o = o.With("subject", claims.Subject)
			if !claims.Expires.IsZero() {
				o = o.With("issued", claims.Issued.Format(time.RFC3339)).With("expires", claims.Expires.Format(time.RFC3339))
			}
		}
		return o
	}
	user, refusal, why, err := k.WhoAmI(ctx)
	if err == nil && refusal == kube.BadToken {
		// Servers in trouble say this as well; one that is well says it again.
		if err = l.Trouble(ctx); err == nil {
			user, refusal, why, err = k.WhoAmI(ctx)
		}
	}
	if err != nil {
		return check.Outcome{}, err
	}
	switch refusal {
	case kube.BadCertificate:
		return evidence(l.Fail(text.Say("a login with this file"), text.Verbatim(why), "token-ca")), nil
	case kube.NoServer:
		// The address is the cluster's own, which the check before this one has seen: that nothing answers there is no learner's fault.
		return check.Outcome{}, fmt.Errorf("the API server does not answer a login: %s", why)
	case kube.BadToken:
		if claimsErr == nil && claims.Subject == who && !claims.Expires.IsZero() && time.Now().After(claims.Expires) {
			return evidence(l.Fail(text.Say("a token that is valid now"), text.Say("it ran out at %s", claims.Expires.Format(time.RFC3339)), "token-expired")), nil
		}
		return evidence(l.Fail(text.Say("a token that the server knows"), text.Verbatim(why), "token-refused")), nil
	}
	if user != who {
		return evidence(l.Fail(text.Say("a token of %s", who), text.Say("one of %s", user), "token-account")), nil
	}
	if claimsErr == nil && !claims.Expires.IsZero() {
		if life := claims.Expires.Sub(claims.Issued); life < tokenLife-tokenSlack || life > tokenLife+tokenSlack {
			return evidence(l.Fail(text.Say("valid for 8 hours"), text.Say("valid for %s", life.String()), "token-life")), nil
		}
		return evidence(l.Pass(text.Say("it logs in as %s until %s", user, claims.Expires.Format(time.RFC3339)))), nil
	}
	return evidence(l.Pass(text.Say("it logs in as %s and does not run out", user))), nil
}
