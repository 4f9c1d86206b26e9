package argo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/check"
)

const (
	want = "1111111111111111111111111111111111111111"
	old  = "2222222222222222222222222222222222222222"
)

// fake is an API with objects by path.
type fake struct {
	objects map[string][]string // the answers, the last one for good
	asked   map[string]int
	deleted []string
	patched map[string]string
	err     error
}

func (f *fake) Get(_ context.Context, path string) ([]byte, bool, error) {
	if f.err != nil {
		return nil, false, f.err
	}
	answers := f.objects[path]
	if len(answers) == 0 {
		return nil, false, nil
	}
	n := min(f.asked[path], len(answers)-1)
	f.asked[path]++
	return []byte(answers[n]), true, nil
}
func (f *fake) Delete(_ context.Context, path string) error {
	f.deleted = append(f.deleted, path)
	return nil
}
func (f *fake) Patch(_ context.Context, path string, merge []byte) error {
	f.patched[path] = string(merge)
	return nil
}

const appPath = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/ci-web"

func client(apps ...string) (argo.Client, *fake) {
	f := &fake{objects: map[string][]string{appPath: apps}, asked: map[string]int{}, patched: map[string]string{}}
	for _, path := range []string{"argocd/statefulsets/argocd-application-controller", "argocd/deployments/argocd-repo-server", "argocd/deployments/argocd-redis", "gitsrv/deployments/gitd"} {
		f.objects["/apis/apps/v1/namespaces/"+path] = []string{`{"status":{"readyReplicas":1}}`}
	}
	return argo.Client{API: f, Namespace: "argocd", GitNamespace: "gitsrv", GitDaemon: "gitd"}, f
}

// app is an Application's status in short: sync, revision, health, phase and revision of the operation.
func app(sync, revision, health, phase, opRevision string, extra ...string) string {
	op := ""
	if phase != "" {
		op = fmt.Sprintf(`,"operationState":{"phase":%q,"message":"one or more objects failed to apply","operation":{"sync":{"revision":%q}}}`, phase, opRevision)
	}
	meta, status, top := "", "", ""
	for _, e := range extra {
		switch {
		case strings.HasPrefix(e, "meta:"):
			meta = "," + e[5:]
		case strings.HasPrefix(e, "top:"):
			top = "," + e[4:]
		default:
			status += "," + e
		}
	}
	return fmt.Sprintf(`{"metadata":{"name":"ci-web"%s},"status":{"sync":{"status":%q,"revision":%q},"health":{"status":%q}%s%s}%s}`, meta, sync, revision, health, op, status, top)
}

// retried is an Application whose operation began with one revision and gave up on another, as with syncPolicy.retry.refresh.
func retried(revision, began, applied string) string {
	return app("OutOfSync", revision, "Healthy", "", "", fmt.Sprintf(`"operationState":{"phase":"Failed","operation":{"sync":{"revision":%q}},"syncResult":{"revision":%q}}`, began, applied))
}

func TestStanding(t *testing.T) {
	tests := []struct {
		name, app string
		state     check.State
		why       argo.Why
		operation string
	}{
		{"in step", app("Synced", want, "Healthy", "Succeeded", want), check.Passed, "", ""},
		{"in step though no operation is known", app("Synced", want, "Healthy", "", ""), check.Passed, "", ""},
		{"in step after an old operation was ended", app("Synced", want, "Healthy", "Failed", old), check.Passed, "", ""},
		{"synced while an old operation retries", app("Synced", want, "Healthy", "Running", old), check.Pending, argo.Operating, old},
		{"an operation is being ended", app("Synced", want, "Healthy", "Terminating", old), check.Pending, argo.Operating, old},
		{"an operation is asked for", app("Synced", want, "Healthy", "Succeeded", old, `top:"operation":{"sync":{"revision":"`+want+`"}}`), check.Pending, argo.Operating, want},
		{"a refresh is asked for", app("Synced", want, "Healthy", "", "", `meta:"annotations":{"argocd.argoproj.io/refresh":"hard"}`), check.Pending, argo.Refreshing, ""},
		{"refreshed by the argocd command", app("Synced", want, "Healthy", "Succeeded", want, `meta:"annotations":{"argocd.argoproj.io/hydrate":"normal","argocd.argoproj.io/hydrate-timestamp":"2026-12-03T00:00:00Z"}`), check.Passed, "", ""},
		{"old revision", app("Synced", old, "Healthy", "Succeeded", old), check.Pending, argo.OldRevision, ""},
		{"new revision with nothing known", app("", "", "", "", ""), check.Pending, argo.OldRevision, ""},
		{"unknown", app("Unknown", want, "Healthy", "", ""), check.Pending, argo.OldRevision, ""},
		{"yet to apply", app("OutOfSync", want, "Healthy", "Succeeded", old), check.Pending, argo.OutOfSync, ""},
		{"gave up", app("OutOfSync", want, "Healthy", "Failed", want), check.Failed, argo.SyncFailed, ""},
		{"gave up a newer one than it began with", retried(want, old, want), check.Failed, argo.SyncFailed, ""},
		{"gave up a newer one, and forgot what it began with", retried(want, "", want), check.Failed, argo.SyncFailed, ""},
		{"gave up an older one than it began with", retried(want, want, old), check.Pending, argo.OutOfSync, ""},
		{"trying a newer one than it began with", app("OutOfSync", want, "Healthy", "", "", `"operationState":{"phase":"Running","operation":{"sync":{"revision":"`+old+`"}},"syncResult":{"revision":"`+want+`"}}`), check.Pending, argo.Operating, want},
		{"gave up another revision", app("OutOfSync", want, "Healthy", "Failed", old), check.Pending, argo.OutOfSync, ""},
		{"coming up", app("Synced", want, "Progressing", "Succeeded", want), check.Pending, argo.Progressing, ""},
		{"missing", app("Synced", want, "Missing", "", ""), check.Pending, argo.Progressing, ""},
		{"degraded", app("Synced", want, "Degraded", "", ""), check.Failed, argo.Unhealthy, ""},
		{"cannot compare", app("Unknown", old, "Healthy", "", "", `"conditions":[{"type":"ComparisonError","message":"app path does not exist"}]`), check.Pending, argo.Comparing, ""},
		{"bad spec", app("Unknown", "", "Healthy", "", "", `"conditions":[{"type":"InvalidSpecError","message":"project"}]`), check.Failed, argo.Comparing, ""},
		{"a warning is no error", app("Synced", want, "Healthy", "", "", `"conditions":[{"type":"OrphanedResourceWarning","message":"x"}]`), check.Passed, "", ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := client(tc.app)
			a, s, err := c.Look(t.Context(), "ci-web", want)
			require.NoError(t, err)
			require.NotNil(t, a)
			require.Equal(t, tc.state, s.State, s.Got)
			require.Equal(t, tc.why, s.Why)
			require.Equal(t, tc.operation, s.Operation)
			require.NotEmpty(t, s.Got.String())
		})
	}
}

func TestLookTwice(t *testing.T) {
	c, _ := client(app("Synced", want, "Healthy", "", ""), app("OutOfSync", want, "Healthy", "", ""))
	_, s, err := c.Look(t.Context(), "ci-web", want)
	require.NoError(t, err)
	require.Equal(t, check.Pending, s.State, "what looked right once must look right twice")
}

func TestNoApplication(t *testing.T) {
	c, f := client()
	a, _, err := c.Look(t.Context(), "ci-web", want)
	require.NoError(t, err)
	require.Nil(t, a)
	require.NoError(t, c.Delete(t.Context(), "ci-web"))
	require.Empty(t, f.deleted)

	f.err = errors.New("API server away")
	_, _, err = c.Look(t.Context(), "ci-web", want)
	require.ErrorIs(t, err, f.err)
	_, err = c.Application(t.Context(), "ci-web")
	require.ErrorIs(t, err, f.err)
}

func TestAPlatformThatIsDownIsAnError(t *testing.T) {
	for path, answer := range map[string][]string{
		"argocd/statefulsets/argocd-application-controller": {`{"status":{}}`},
		"argocd/deployments/argocd-repo-server":             {`{"status":{"readyReplicas":0}}`},
		"gitsrv/deployments/gitd":                           nil,
	} {
		t.Run(path, func(t *testing.T) {
			c, f := client(app("OutOfSync", old, "Healthy", "", ""))
			f.objects["/apis/apps/v1/namespaces/"+path] = answer
			_, _, err := c.Look(t.Context(), "ci-web", want)
			var down *argo.DownError
			require.ErrorAs(t, err, &down)
			require.Contains(t, err.Error(), path[strings.LastIndex(path, "/")+1:])
			require.NotEmpty(t, down.Hint())

			c, f = client(app("Synced", want, "Healthy", "", ""))
			f.objects["/apis/apps/v1/namespaces/"+path] = answer
			_, s, err := c.Look(t.Context(), "ci-web", want)
			require.NoError(t, err)
			require.Equal(t, check.Passed, s.State, "what is in step needs nobody to move")
		})
	}
}

func TestDeleteTakesWhatWasDeployed(t *testing.T) {
	c, f := client(app("Synced", want, "Healthy", "", ""))
	require.NoError(t, c.Delete(t.Context(), "ci-web"))
	require.Equal(t, []string{appPath}, f.deleted)
	var patch struct {
		Metadata struct{ Finalizers []string }
	}
	require.NoError(t, json.Unmarshal([]byte(f.patched[appPath]), &patch))
	require.Equal(t, []string{"resources-finalizer.argocd.argoproj.io"}, patch.Metadata.Finalizers)

	c, f = client(app("Synced", want, "Healthy", "", "", `meta:"deletionTimestamp":"2026-01-01T00:00:00Z"`))
	require.NoError(t, c.Delete(t.Context(), "ci-web"))
	require.Empty(t, f.patched, "an Application on its way out takes no finalizers")
}

func TestParse(t *testing.T) {
	good := []byte(`{"apiVersion": "argoproj.io/v1alpha1", kind: Application, metadata: {name: ci-web}, spec: {project: default}}`)
	a, err := argo.Parse([][]byte{[]byte("apiVersion: v1\nkind: Namespace\nspec: 3\n"), nil, good}, "ci-web")
	require.NoError(t, err)
	require.Equal(t, "default", a.Spec.Project)
	a, err = argo.Parse([][]byte{good}, "other")
	require.NoError(t, err)
	require.Nil(t, a)
	_, err = argo.Parse([][]byte{[]byte("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: ci-web}\nspec: {syncPolicy: {automated: {prune: yes please}}}")}, "ci-web")
	require.Error(t, err)
}

func TestHistoryAndEvidence(t *testing.T) {
	c, _ := client(app("Synced", want, "Healthy", "Running", old, `"history":[{"id":0,"revision":"`+old+`"},{"id":1,"revision":"`+want+`"}]`))
	a, err := c.Application(t.Context(), "ci-web")
	require.NoError(t, err)
	require.Equal(t, []string{old, want}, argo.Deployed(a))
	require.Equal(t, old, argo.UnderWay(a))
	e := argo.Evidence(a)
	require.Equal(t, "Synced", e["syncStatus"])
	require.Equal(t, old, e["operationRevision"])
	require.Contains(t, argo.Describe(a).String(), "operation of 2222222 Running")
}
