// Package argocd prepares upstream's core installation of Argo CD for a small guest without a registry.
package argocd

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/bootstrap"
)

type request struct{ cpu, memory, goMemLimit string }

// otherRequests are for a workload that a later version of upstream's manifests adds.
var otherRequests = request{"10m", "32Mi", ""}

// requests are what each workload asks for; upstream's core manifests ask for nothing.
var requests = map[string]request{
	"argocd-application-controller":    {"50m", "192Mi", "300MiB"},
	"argocd-repo-server":               {"20m", "96Mi", "160MiB"},
	"argocd-applicationset-controller": {"10m", "64Mi", "96MiB"},
	"argocd-redis":                     {"10m", "16Mi", ""},
}

// params go into argocd-cmd-params-cm: one learner's cluster needs little parallelism.
var params = map[string]string{
	"controller.status.processors":         "2",
	"controller.operation.processors":      "2",
	"controller.kubectl.parallelism.limit": "2",
	"reposerver.parallelism.limit":         "2",
	"controller.log.level":                 "warn",
	"reposerver.log.level":                 "warn",
	"applicationsetcontroller.log.level":   "warn",
}

// patchRecipe changes when the patches below change in a way that Recipe's other parts do not show.
const patchRecipe = "2"

// Recipe identifies what Files does to upstream's manifests, for a build cache.
func Recipe() string { return fmt.Sprint(patchRecipe, requests, params) }

// Images is the set of images that core names, for a source to provide.
func Images(core []byte) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	err := eachObject(core, func(obj *unstructured.Unstructured) error {
		spec, _, err := podSpec(obj)
		if err != nil || spec == nil {
			return err
		}
		for _, c := range append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...) {
			if !seen[c.Image] {
				seen[c.Image] = true
				names = append(names, c.Image)
			}
		}
		return nil
	})
	return names, err
}

// Files turns upstream's core-install.yaml into the guest's manifests: everything in namespace argocd, no image ever pulled,
// resource requests set, and the AppProject default, which core-install leaves out and without which every Application stays Unknown.
func Files(core []byte) ([]bootstrap.File, error) {
	objects := []runtime.Object{&corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: bootstrap.ArgoNamespace},
	}}
	found := map[string]bool{}
	err := eachObject(core, func(obj *unstructured.Unstructured) error {
		patched, err := patch(obj)
		if err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		if patched != nil {
			objects = append(objects, patched)
			found[obj.GetName()] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("core-install.yaml: %w", err)
	}
	for name := range requests {
		if !found[name] {
			return nil, fmt.Errorf("core-install.yaml: workload %s is missing", name)
		}
	}
	// In the same file, and last: its kind is defined at the top, and a file of its own might be applied first.
	install, err := encode(append(objects, defaultProject()))
	if err != nil {
		return nil, err
	}
	return []bootstrap.File{{Path: bootstrap.ManifestDir + "/argocd.yaml", Content: install, Mode: 0o600}}, nil
}

func defaultProject() *unstructured.Unstructured {
	anything := []any{map[string]any{"group": "*", "kind": "*"}}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": bootstrap.DefaultProject, "namespace": bootstrap.ArgoNamespace},
		"spec": map[string]any{
			"sourceRepos":              []any{"*"},
			"destinations":             []any{map[string]any{"namespace": "*", "server": "*"}},
			"clusterResourceWhitelist": anything,
		},
	}}
}

func patch(obj *unstructured.Unstructured) (runtime.Object, error) {
	switch obj.GetKind() {
	case "CustomResourceDefinition", "ClusterRole":
		return obj, nil
	case "ClusterRoleBinding":
		var binding rbacv1.ClusterRoleBinding
		if err := convert(obj, &binding); err != nil {
			return nil, err
		}
		for i := range binding.Subjects {
			binding.Subjects[i].Namespace = bootstrap.ArgoNamespace
		}
		return &binding, nil
	case "NetworkPolicy":
		// The guest's bridge network enforces none; leaving them out keeps that honest.
		var policy networkingv1.NetworkPolicy
		return nil, convert(obj, &policy)
	case "ConfigMap":
		var cm corev1.ConfigMap
		if err := convert(obj, &cm); err != nil {
			return nil, err
		}
		cm.Namespace = bootstrap.ArgoNamespace
		if cm.Name == "argocd-cmd-params-cm" {
			if cm.Data == nil {
				cm.Data = map[string]string{}
			}
			for k, v := range params {
				cm.Data[k] = v
			}
		}
		return &cm, nil
	}
	spec, owner, err := podSpec(obj)
	if err != nil {
		return nil, err
	}
	if spec == nil {
		obj.SetNamespace(bootstrap.ArgoNamespace)
		return obj, nil
	}
	tune(obj.GetName(), spec)
	switch workload := owner.(type) {
	case *appsv1.Deployment:
		workload.Namespace = bootstrap.ArgoNamespace
		workload.Spec.RevisionHistoryLimit = new(int32(1))
	case *appsv1.StatefulSet:
		workload.Namespace = bootstrap.ArgoNamespace
		workload.Spec.RevisionHistoryLimit = new(int32(1))
	}
	return owner, nil
}

func tune(name string, spec *corev1.PodSpec) {
	want, known := requests[name]
	if !known {
		want = otherRequests
	}
	// copyutil only serves config-management plugins, and copies a 160 MB binary at every start.
	kept := spec.InitContainers[:0]
	for _, c := range spec.InitContainers {
		if c.Name != "copyutil" {
			c.ImagePullPolicy = corev1.PullIfNotPresent
			kept = append(kept, c)
		}
	}
	spec.InitContainers = kept
	spec.Affinity = nil // there is one node
	spec.EnableServiceLinks = new(false)
	spec.TerminationGracePeriodSeconds = new(int64(5))
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.ImagePullPolicy = corev1.PullIfNotPresent
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(want.cpu), corev1.ResourceMemory: resource.MustParse(want.memory)}
		if want.goMemLimit != "" {
			// GOGC trades a little CPU for a guest that fits; GOMEMLIMIT makes the runtime work harder before it grows past it.
			setEnv(c, "GOMEMLIMIT", want.goMemLimit)
			setEnv(c, "GOGC", "60")
		}
		// Signature checks need a key ring, which takes the emulated guest many seconds to make; the labs use none.
		setEnv(c, "ARGOCD_GPG_ENABLED", "false")
		relax(c.LivenessProbe, 60, 20)
		relax(c.ReadinessProbe, 20, 10)
	}
}

// relax makes a probe rarer and more patient: under emulation a busy guest misses upstream's limits while nothing is wrong.
func relax(probe *corev1.Probe, period, timeout int32) {
	if probe == nil {
		return
	}
	probe.PeriodSeconds = max(probe.PeriodSeconds, period)
	probe.TimeoutSeconds = max(probe.TimeoutSeconds, timeout)
	probe.FailureThreshold = max(probe.FailureThreshold, 5)
}

func setEnv(c *corev1.Container, name, value string) {
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i] = corev1.EnvVar{Name: name, Value: value}
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// podSpec decodes a workload and returns its pod's spec, nil for any other kind.
func podSpec(obj *unstructured.Unstructured) (*corev1.PodSpec, runtime.Object, error) {
	switch obj.GetKind() {
	case "Deployment":
		var d appsv1.Deployment
		err := convert(obj, &d)
		return &d.Spec.Template.Spec, &d, err
	case "StatefulSet":
		var s appsv1.StatefulSet
		err := convert(obj, &s)
		return &s.Spec.Template.Spec, &s, err
	}
	return nil, nil, nil
}

func convert(obj *unstructured.Unstructured, into runtime.Object) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, into, true)
}

func eachObject(manifests []byte, visit func(*unstructured.Unstructured) error) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		var obj unstructured.Unstructured
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(obj.Object) == 0 {
			continue
		}
		if err := visit(&obj); err != nil {
			return err
		}
	}
}

func encode(objects []runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	for _, obj := range objects {
		if gvks, _, err := scheme.Scheme.ObjectKinds(obj); err == nil && obj.GetObjectKind().GroupVersionKind().Empty() {
			obj.GetObjectKind().SetGroupVersionKind(gvks[0])
		}
		data, err := yaml.Marshal(obj)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes(), nil
}
