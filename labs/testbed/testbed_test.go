package testbed

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/cgoa-labs/labctl/bootstrap"
)

func pod(name, image string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: image}}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

// A pod runs where the node has its image, by whichever of its names, waits for ever where it has not, and goes when it is asked to.
func TestThePretendedNode(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node},
		Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"docker.io/library/nginx:1.27-alpine"}}}}})
	p := pretender{client: client, say: func(s string) { t.Log(s) }}
	require.NoError(t, p.start(t.Context()))

	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ConditionTrue, n.Status.Conditions[0].Status)
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	first := lease.Spec.RenewTime.Time
	require.NoError(t, p.alive(t.Context()))
	lease, err = client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, lease.Spec.RenewTime.After(first))

	pods := client.CoreV1().Pods("default")
	for name, image := range map[string]string{"runs": "nginx:1.27-alpine", "waits": "nginx:9.99"} {
		_, err := pods.Create(t.Context(), pod(name, image), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		runs, err := pods.Get(ctx, "runs", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, corev1.PodRunning, runs.Status.Phase)
		require.True(t, ready(runs))
		require.NotEmpty(t, runs.Status.PodIP)
		waiting, err := pods.Get(ctx, "waits", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, corev1.PodPending, waiting.Status.Phase)
		require.False(t, ready(waiting))
		require.True(t, waits(waiting))
	}, 20*time.Second, 50*time.Millisecond)

	leaving := pod("leaves", "nginx:1.27-alpine")
	leaving.DeletionTimestamp, leaving.Finalizers = ptr.To(metav1.Now()), []string{"x"}
	_, err = pods.Create(t.Context(), leaving, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := pods.Get(ctx, "leaves", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	}, 20*time.Second, 50*time.Millisecond)
}

// A part is the process that its manifest says, with what it takes from ConfigMaps and Secrets.
func TestAPartIsWhatItsManifestSays(t *testing.T) {
	key := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	container := corev1.Container{Name: "redis", Args: []string{"--requirepass", "$(REDIS_PASSWORD)", "--save", ""}, Env: []corev1.EnvVar{
		{Name: "PLAIN", Value: "p"},
		{Name: "REDIS_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: key("argocd-redis"), Key: "auth"}}},
		{Name: "LEVEL", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: key("params"), Key: "level"}}},
		{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: key("params"), Key: "nothing", Optional: ptr.To(true)}}},
		{Name: "NOWHERE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: key("none"), Key: "x", Optional: ptr.To(true)}}},
		{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}}
	ns := bootstrap.ArgoNamespace
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "argocd-redis", Namespace: ns},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}}}
	client := fake.NewClientset(deployment,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "argocd-redis", Namespace: ns}, Data: map[string][]byte{"auth": []byte("s3cret")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "params", Namespace: ns}, Data: map[string]string{"level": "warn"}})
	s, err := parts[0].service(t.Context(), client)
	require.NoError(t, err)
	require.Equal(t, []string{redisServer, "--requirepass", "s3cret", "--save", ""}, s.argv)
	require.Equal(t, imageRoot, s.root)
	require.Subset(t, s.env, []string{"PLAIN=p", "REDIS_PASSWORD=s3cret", "LEVEL=warn"})
	for _, not := range []string{"ABSENT=", "NOWHERE=", "POD="} {
		require.NotContains(t, s.env, not)
	}

	// What is not optional and not there is an error that says what.
	deployment.Spec.Template.Spec.Containers[0].Env[3].ValueFrom.ConfigMapKeyRef.Optional = nil
	_, err = client.AppsV1().Deployments(ns).Update(t.Context(), deployment, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = parts[0].service(t.Context(), client)
	require.ErrorContains(t, err, "variable ABSENT of container redis")
}

func TestOnlyTheFirstProcessIsATestbed(t *testing.T) {
	require.ErrorContains(t, Run(t.Context(), Options{Disk: "/nowhere", Dir: t.TempDir()}, func() {}), "namespaces of its own")
}
