// Package kube asks the guest's Kubernetes API, always as its administrator unless said otherwise. "Not there" is an answer; every
// other failure is an error, because it says nothing about the learner's work.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client talks to one API server.
type Client struct {
	config *rest.Config
	api    kubernetes.Interface
}

// timeout bounds one request; an emulated guest's API server can take many seconds.
const timeout = 30 * time.Second

// Error says that the API server could not be asked.
type Error struct {
	Doing string
	Err   error
}

func (e *Error) Error() string { return fmt.Sprintf("ask the Kubernetes API (%s): %v", e.Doing, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Hint is the next action.
func (e *Error) Hint() string {
	return "`kubectl get --raw /readyz` and `systemctl status k3s` show how the cluster is"
}

// Open reads the kubeconfig at path; the environment has no say.
func Open(path string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, &Error{Doing: "read " + path, Err: err}
	}
	return open(config)
}

func open(config *rest.Config) (*Client, error) {
	config.Timeout = timeout
	config.QPS = -1 // one run asks a few dozen questions; waiting between them helps nobody
	config.UserAgent = "labctl"
	// The answers are small, and JSON is what a person who looks at the traffic can read.
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.WarningHandler = rest.NoWarnings{}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, &Error{Doing: "set up", Err: err}
	}
	return &Client{config: config, api: api}, nil
}

// Server is the API server's address; CA its certificate authority in PEM.
func (c *Client) Server() string { return c.config.Host }

// CA is the certificate authority of the API server in PEM, read from its file where the kubeconfig names one.
func (c *Client) CA() ([]byte, error) {
	config := rest.CopyConfig(c.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, &Error{Doing: "read the certificate authority", Err: err}
	}
	return config.CAData, nil
}

// Ready returns an error unless the API server says that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	if err := c.api.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return &Error{Doing: "is it ready", Err: cause(ctx, err)}
	}
	return nil
}

// cause prefers why ctx ended to what that did to a request.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// found sorts an answer into there, not there and could not be asked. A path that the server does not serve at all (a missing
// resource type) answers 404 too, but names no object.
func found(ctx context.Context, doing string, err error) (bool, error) {
	if err == nil {
		return true, nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && apierrors.IsNotFound(err) {
		if d := status.Status().Details; d != nil && d.Name != "" {
			return false, nil
		}
	}
	return false, &Error{Doing: doing, Err: cause(ctx, err)}
}

func get[T any](ctx context.Context, doing string, f func(context.Context, string, metav1.GetOptions) (*T, error), name string) (*T, error) {
	doing += " " + name
	object, err := f(ctx, name, metav1.GetOptions{})
	if ok, err := found(ctx, doing, err); !ok {
		return nil, err
	}
	return object, nil
}

// Namespace is a namespace, nil where there is none.
func (c *Client) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return get(ctx, "namespace", c.api.CoreV1().Namespaces().Get, name)
}

// Namespaces are the names of all namespaces.
func (c *Client) Namespaces(ctx context.Context) ([]string, error) {
	list, err := c.api.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, &Error{Doing: "namespaces", Err: cause(ctx, err)}
	}
	names := make([]string, len(list.Items))
	for i, ns := range list.Items {
		names[i] = ns.Name
	}
	return names, nil
}

// Deployment is a Deployment, nil where there is none.
func (c *Client) Deployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	return get(ctx, "deployment", c.api.AppsV1().Deployments(namespace).Get, name)
}

// DeploymentUIDs are the UIDs of all Deployments by namespace/name.
func (c *Client) DeploymentUIDs(ctx context.Context) (map[string]types.UID, error) {
	list, err := c.api.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, &Error{Doing: "deployments", Err: cause(ctx, err)}
	}
	uids := make(map[string]types.UID, len(list.Items))
	for _, d := range list.Items {
		uids[d.Namespace+"/"+d.Name] = d.UID
	}
	return uids, nil
}

// DeleteDeployment deletes a Deployment; one that is not there is fine.
func (c *Client) DeleteDeployment(ctx context.Context, namespace, name string) error {
	_, err := found(ctx, "delete deployment "+name, c.api.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	return err
}

// ConfigMap is a ConfigMap, nil where there is none.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return get(ctx, "config map", c.api.CoreV1().ConfigMaps(namespace).Get, name)
}

// ServiceAccount is a ServiceAccount, nil where there is none.
func (c *Client) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return get(ctx, "service account", c.api.CoreV1().ServiceAccounts(namespace).Get, name)
}

// Role is a Role, nil where there is none.
func (c *Client) Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	return get(ctx, "role", c.api.RbacV1().Roles(namespace).Get, name)
}

// RoleBinding is a RoleBinding, nil where there is none.
func (c *Client) RoleBinding(ctx context.Context, namespace, name string) (*rbacv1.RoleBinding, error) {
	return get(ctx, "role binding", c.api.RbacV1().RoleBindings(namespace).Get, name)
}

// DeleteNamespace asks for a namespace's removal, which goes on after it returns; one that is not there is fine.
func (c *Client) DeleteNamespace(ctx context.Context, name string) error {
	err := c.api.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsConflict(err) {
		return nil // it is being removed already
	}
	_, err = found(ctx, "delete namespace "+name, err)
	return err
}

// Get reads a path of the API; false means that the object that the path names is not there.
func (c *Client) Get(ctx context.Context, path string) ([]byte, bool, error) {
	res := c.api.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx)
	// Only Error reads what the server says in an answer that is no.
	ok, err := found(ctx, "get "+path, res.Error())
	if !ok {
		return nil, false, err
	}
	data, err := res.Raw()
	return data, err == nil, err
}

// Delete deletes the object at a path of the API; one that is not there is fine.
func (c *Client) Delete(ctx context.Context, path string) error {
	_, err := found(ctx, "delete "+path, c.api.CoreV1().RESTClient().Delete().AbsPath(path).Do(ctx).Error())
	return err
}

// Patch merges JSON into the object at a path of the API; one that is not there is fine.
func (c *Client) Patch(ctx context.Context, path string, merge []byte) error {
	_, err := found(ctx, "patch "+path, c.api.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body(merge).Do(ctx).Error())
	return err
}

// statusOf is the HTTP status of an answer that was no.
func statusOf(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

func unauthorized(err error) bool { return statusOf(err) == http.StatusUnauthorized }
