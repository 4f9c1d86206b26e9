// Package argo reads what Argo CD says of an Application. It is the only place that knows Argo CD's types.
package argo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// API is what this package needs of a Kubernetes client.
type API interface {
	// Get reads a path of the API; false means that the object is not there.
	Get(ctx context.Context, path string) ([]byte, bool, error)
	Delete(ctx context.Context, path string) error
	Patch(ctx context.Context, path string, merge []byte) error
}

// Client reads the Applications of one namespace.
type Client struct {
	API API
	// Namespace is Argo CD's own, GitNamespace and GitDaemon are where the repositories come from.
	Namespace, GitNamespace, GitDaemon string
}

// Application is Argo CD's own type, for those who pass one on.
type Application = v1alpha1.Application

func (c Client) path(name string) string {
	return "/apis/argoproj.io/v1alpha1/namespaces/" + url.PathEscape(c.Namespace) + "/applications/" + url.PathEscape(name)
}

// Application is an Application, nil where there is none.
func (c Client) Application(ctx context.Context, name string) (*Application, error) {
	data, ok, err := c.API.Get(ctx, c.path(name))
	if err != nil || !ok {
		return nil, err
	}
	app := new(v1alpha1.Application)
	if err := json.Unmarshal(data, app); err != nil {
		return nil, fmt.Errorf("read Application %s: %w", name, err)
	}
	return app, nil
}

// Delete asks for an Application's removal together with all that it has deployed, which goes on after Delete returns. One that
// is not there is fine.
func (c Client) Delete(ctx context.Context, name string) error {
	finalizers, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": []string{v1alpha1.ResourcesFinalizerName}}})
	if err != nil {
		return err
	}
	app, err := c.Application(ctx, name)
	if err != nil || app == nil {
		return err
	}
	if app.DeletionTimestamp == nil && !slices.Contains(app.Finalizers, v1alpha1.ResourcesFinalizerName) {
		if err := c.API.Patch(ctx, c.path(name), finalizers); err != nil {
			return err
		}
	}
	return c.API.Delete(ctx, c.path(name))
}

// Abandon takes an Application's finalizers away, so that it goes without Argo CD's help. What it deployed stays.
func (c Client) Abandon(ctx context.Context, name string) error {
	return c.API.Patch(ctx, c.path(name), []byte(`{"metadata":{"finalizers":null}}`))
}

// DownError says that a part of Argo CD is not running.
type DownError struct{ Part, Got string }

func (e *DownError) Error() string { return fmt.Sprintf("%s is not running (%s)", e.Part, e.Got) }

// Hint is the next action.
func (e *DownError) Hint() string {
	return "`kubectl -n argocd get pods` and `kubectl -n gitsrv get pods` show how the platform is; it says nothing about your work"
}

// Platform returns *DownError where a part that an Application needs to move is not running.
func (c Client) Platform(ctx context.Context) error {
	for _, part := range []struct{ kind, namespace, name string }{
		{"statefulsets", c.Namespace, "argocd-application-controller"},
		{"deployments", c.Namespace, "argocd-repo-server"},
		{"deployments", c.Namespace, "argocd-redis"},
		{"deployments", c.GitNamespace, c.GitDaemon},
	} {
		data, ok, err := c.API.Get(ctx, "/apis/apps/v1/namespaces/"+part.namespace+"/"+part.kind+"/"+part.name)
		if err != nil {
			return err
		}
		// Both kinds say it in the same field.
		var workload appsv1.Deployment
		if ok {
			if err := json.Unmarshal(data, &workload); err != nil {
				return fmt.Errorf("read %s: %w", part.name, err)
			}
		}
		if !ok {
			return &DownError{part.namespace + "/" + part.name, "it is not there"}
		}
		if workload.Status.ReadyReplicas == 0 {
			return &DownError{part.namespace + "/" + part.name, "no replica is ready"}
		}
	}
	return nil
}

// Parse finds the Application called name among the manifests of a file, whatever their layout, also in a List; nil where there is none.
func Parse(documents [][]byte, name string) (*v1alpha1.Application, error) {
	for _, document := range documents {
		var list struct {
			Kind  string
			Items []json.RawMessage
		}
		if yaml.Unmarshal(document, &list) == nil && strings.HasSuffix(list.Kind, "List") {
			items := make([][]byte, len(list.Items))
			for i, item := range list.Items {
				items[i] = item
			}
			if app, err := Parse(items, name); app != nil || err != nil {
				return app, err
			}
			continue
		}
		var app v1alpha1.Application
		if err := yaml.Unmarshal(document, &app); err != nil {
			if list.Kind != "" && list.Kind != "Application" {
				continue
			}
			return nil, err
		}
		if app.Kind == "Application" && strings.HasPrefix(app.APIVersion, "argoproj.io/") && app.Name == name {
			return &app, nil
		}
	}
	return nil, nil
}
