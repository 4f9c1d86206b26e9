package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Account is a ServiceAccount as the API sees it.
type Account struct{ Namespace, Name string }

// User is the account's user name.
func (a Account) User() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Groups are the groups that every token of the account carries.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", a.namespaceGroup(), "system:authenticated"}
}

// namespaceGroup is the group of all accounts in the account's namespace.
func (a Account) namespaceGroup() string { return "system:serviceaccounts:" + a.Namespace }

// Access is one thing that an account might do.
type Access struct{ Verb, Group, Resource, Namespace string }

func (a Access) String() string {
	resource := a.Resource
	if a.Group != "" {
		resource += "." + a.Group
	}
	if a.Namespace == "" {
		return a.Verb + " " + resource + " -A"
	}
	return a.Verb + " " + resource + " -n " + a.Namespace
}

// Allowed asks the API server whether the account may do it, and gives the server's reason.
func (c *Client) Allowed(ctx context.Context, who Account, what Access) (bool, string, error) {
	review, err := c.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.User(), Groups: who.Groups(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: what.Verb, Group: what.Group, Resource: what.Resource, Namespace: what.Namespace},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, "", &Error{Doing: "access review", Err: cause(ctx, err)}
	}
	if !review.Status.Allowed && review.Status.EvaluationError != "" {
		return false, "", &Error{Doing: "access review", Err: fmt.Errorf("the server could not decide: %s", review.Status.EvaluationError)}
	}
	return review.Status.Allowed, review.Status.Reason, nil
}

// Rules are all that the account may do in a namespace, including what it may do everywhere.
func (c *Client) Rules(ctx context.Context, who Account, namespace string) ([]authorizationv1.ResourceRule, []authorizationv1.NonResourceRule, error) {
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who.User(), Groups: who.Groups()}
	as, err := open(config)
	if err != nil {
		return nil, nil, err
	}
	review, err := as.api.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, &Error{Doing: "rules review", Err: cause(ctx, err)}
	}
	return review.Status.ResourceRules, review.Status.NonResourceRules, nil
}

// Defaults are the rights that every account of the cluster has: those of Kubernetes' own roles that are bound to the groups of all
// accounts. They differ between versions, so the cluster is asked. A role that somebody made or bound is none of them.
func (c *Client) Defaults(ctx context.Context, who Account) ([]rbacv1.PolicyRule, error) {
	bindings, err := c.api.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"})
	if err != nil {
		return nil, &Error{Doing: "cluster role bindings", Err: cause(ctx, err)}
	}
	var rules []rbacv1.PolicyRule
	for _, b := range bindings.Items {
		mine := slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.GroupKind && slices.Contains(who.Groups(), s.Name)
		})
		// cluster-admin is Kubernetes' own as well.
		if !mine || !strings.HasPrefix(b.Name, "system:") || b.RoleRef.Name != b.Name {
			continue
		}
		role, err := get(ctx, "cluster role", c.api.RbacV1().ClusterRoles().Get, b.RoleRef.Name)
		if err != nil {
			return nil, err
		}
		if role != nil {
			rules = append(rules, role.Rules...)
		}
	}
	return rules, nil
}

// Beyond picks the rules that give more than the defaults.
func Beyond(rules []authorizationv1.ResourceRule, defaults []rbacv1.PolicyRule) []authorizationv1.ResourceRule {
	return slices.DeleteFunc(slices.Clone(rules), func(r authorizationv1.ResourceRule) bool {
		return slices.ContainsFunc(defaults, func(d rbacv1.PolicyRule) bool {
			return subset(r.APIGroups, d.APIGroups...) && subset(r.Resources, d.Resources...) && subset(r.Verbs, d.Verbs...) && len(d.ResourceNames) == 0
		})
	})
}

// BeyondDiscovery picks the rules for URLs that give more than reading what the server is.
func BeyondDiscovery(rules []authorizationv1.NonResourceRule) []authorizationv1.NonResourceRule {
	return slices.DeleteFunc(slices.Clone(rules), func(r authorizationv1.NonResourceRule) bool {
		return subset(r.Verbs, "get", "head") && !slices.Contains(r.NonResourceURLs, "*")
	})
}

func subset(have []string, of ...string) bool {
	return !slices.ContainsFunc(have, func(s string) bool { return !slices.Contains(of, s) })
}

// Grant is a binding that names the account or its namespace's accounts.
type Grant struct {
	// Namespace is empty for a ClusterRoleBinding.
	Namespace, Name, Role string
	// Sole says that the binding names nobody else.
	Sole bool
}

func (g Grant) String() string {
	if g.Namespace == "" {
		return "ClusterRoleBinding " + g.Name
	}
	return "RoleBinding " + g.Namespace + "/" + g.Name
}

// Grants lists every binding that names the account, as a ServiceAccount, as its user, or by the group of its namespace's accounts.
func (c *Client) Grants(ctx context.Context, who Account) ([]Grant, error) {
	var grants []Grant
	add := func(namespace, name string, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
		mine := len(others(who, namespace, subjects))
		if mine < len(subjects) {
			grants = append(grants, Grant{Namespace: namespace, Name: name, Role: role.Kind + "/" + role.Name, Sole: mine == 0})
		}
	}
	bindings, err := c.api.RbacV1().RoleBindings("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, &Error{Doing: "role bindings", Err: cause(ctx, err)}
	}
	for _, b := range bindings.Items {
		add(b.Namespace, b.Name, b.RoleRef, b.Subjects)
	}
	cluster, err := c.api.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, &Error{Doing: "cluster role bindings", Err: cause(ctx, err)}
	}
	for _, b := range cluster.Items {
		add("", b.Name, b.RoleRef, b.Subjects)
	}
	return grants, nil
}

// Names reports whether a binding's subject is the account; the binding's namespace stands in for one that is not written.
func (a Account) Names(s rbacv1.Subject, bindingNamespace string) bool {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		namespace := s.Namespace
		if namespace == "" {
			namespace = bindingNamespace
		}
		return s.Name == a.Name && namespace == a.Namespace
	case rbacv1.UserKind:
		return s.Name == a.User()
	}
	return false
}

func others(who Account, namespace string, subjects []rbacv1.Subject) []rbacv1.Subject {
	return slices.DeleteFunc(slices.Clone(subjects), func(s rbacv1.Subject) bool {
		return who.Names(s, namespace) || s.Kind == rbacv1.GroupKind && s.Name == who.namespaceGroup()
	})
}

// Revoke takes the account out of a binding; a binding that named nobody else is deleted.
func (c *Client) Revoke(ctx context.Context, who Account, g Grant) error {
	doing := "revoke " + g.String()
	if g.Namespace != "" {
		api := c.api.RbacV1().RoleBindings(g.Namespace)
		b, err := get(ctx, doing, api.Get, g.Name)
		if b == nil || err != nil {
			return err
		}
		if b.Subjects = others(who, g.Namespace, b.Subjects); len(b.Subjects) == 0 {
			err = api.Delete(ctx, g.Name, metav1.DeleteOptions{})
		} else {
			_, err = api.Update(ctx, b, metav1.UpdateOptions{})
		}
		_, err = found(ctx, doing, err)
		return err
	}
	api := c.api.RbacV1().ClusterRoleBindings()
	b, err := get(ctx, doing, api.Get, g.Name)
	if b == nil || err != nil {
		return err
	}
	if b.Subjects = others(who, "", b.Subjects); len(b.Subjects) == 0 {
		err = api.Delete(ctx, g.Name, metav1.DeleteOptions{})
	} else {
		_, err = api.Update(ctx, b, metav1.UpdateOptions{})
	}
	_, err = found(ctx, doing, err)
	return err
}
