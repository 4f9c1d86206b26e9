// Package resource knows where the API server keeps objects of the kinds that labs use.
package resource

import (
	"fmt"
	"strings"
)

// Path is where an object lives, and the collection that it lives in. kind is a kind or a short name, as kubectl takes them.
func Path(kind, namespace, name string) (collection, path string, err error) {
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	kind = strings.ToLower(kind)
	whole, namespaced := map[string]string{
		"namespace": "/api/v1/namespaces", "ns": "/api/v1/namespaces",
		"clusterrolebinding": rbac + "/clusterrolebindings",
	}, map[string][2]string{
		"serviceaccount": {"/api/v1", "serviceaccounts"},
		"configmap":      {"/api/v1", "configmaps"}, "cm": {"/api/v1", "configmaps"},
		"role":        {rbac, "roles"},
		"rolebinding": {rbac, "rolebindings"},
		"deployment":  {"/apis/apps/v1", "deployments"}, "deploy": {"/apis/apps/v1", "deployments"},
		"deployments": {"/apis/apps/v1", "deployments"}, "deployments.apps": {"/apis/apps/v1", "deployments"},
		"application": {"/apis/argoproj.io/v1alpha1", "applications"}, "app": {"/apis/argoproj.io/v1alpha1", "applications"},
	}
	if collection, ok := whole[kind]; ok {
		return collection, collection + "/" + name, nil
	}
	at, ok := namespaced[kind]
	if !ok {
		return "", "", fmt.Errorf("no kind %q", kind)
	}
	collection = at[0] + "/namespaces/" + namespace + "/" + at[1]
	return collection, collection + "/" + name, nil
}
