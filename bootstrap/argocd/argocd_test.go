package argocd

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cgoa-labs/labctl/bootstrap"
)

func objects(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	core, err := os.ReadFile("testdata/core.yaml")
	require.NoError(t, err)
	files, err := Files(core)
	require.NoError(t, err)
	out := map[string]*unstructured.Unstructured{}
	for _, f := range files {
		require.True(t, strings.HasPrefix(f.Path, bootstrap.ManifestDir+"/"))
		require.Equal(t, uint32(0o600), f.Mode)
		require.NoError(t, eachObject(f.Content, func(obj *unstructured.Unstructured) error {
			require.NotEmpty(t, obj.GetKind())
			out[obj.GetKind()+"/"+obj.GetName()] = obj
			return nil
		}))
	}
	return out
}

func TestEverythingLandsInItsNamespace(t *testing.T) {
	objs := objects(t)
	for name, obj := range objs {
		switch obj.GetKind() {
		case "Namespace", "ClusterRoleBinding":
		default:
			require.Equal(t, "argocd", obj.GetNamespace(), name)
		}
	}
	require.Contains(t, objs, "Namespace/argocd")
	require.NotContains(t, objs, "NetworkPolicy/argocd-redis-network-policy")
	subjects, _, err := unstructured.NestedSlice(objs["ClusterRoleBinding/argocd-application-controller"].Object, "subjects")
	require.NoError(t, err)
	require.Equal(t, "argocd", subjects[0].(map[string]any)["namespace"])
	data, _, err := unstructured.NestedStringMap(objs["ConfigMap/argocd-cmd-params-cm"].Object, "data")
	require.NoError(t, err)
	require.Equal(t, "yes", data["kept"])
	require.Equal(t, "2", data["controller.status.processors"])
}

func TestWorkloadsPullNothingAndAskForSomething(t *testing.T) {
	for name, obj := range objects(t) {
		spec, _, err := podSpec(obj)
		require.NoError(t, err)
		if spec == nil {
			continue
		}
		require.Nil(t, spec.Affinity, name)
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			require.Equal(t, corev1.PullIfNotPresent, c.ImagePullPolicy, name)
			require.NotEqual(t, "copyutil", c.Name)
		}
		require.False(t, spec.Containers[0].Resources.Requests.Memory().IsZero(), name)
		if probe := spec.Containers[0].LivenessProbe; probe != nil {
			require.GreaterOrEqual(t, probe.TimeoutSeconds, int32(20))
		}
	}
}

func TestDefaultProjectIsThere(t *testing.T) {
	require.Contains(t, objects(t), "AppProject/default")
}

func TestMissingWorkloadIsNamed(t *testing.T) {
	core, err := os.ReadFile("testdata/core.yaml")
	require.NoError(t, err)
	_, err = Files([]byte(strings.ReplaceAll(string(core), "name: argocd-redis}", "name: argocd-cache}")))
	require.ErrorContains(t, err, "argocd-redis is missing")
}

func TestImages(t *testing.T) {
	core, err := os.ReadFile("testdata/core.yaml")
	require.NoError(t, err)
	names, err := Images(core)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"argo:v1", "redis:8"}, names)
}
