package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run/runtest"
)

func workloadsJSON(replicas, ready int) string {
	var items []map[string]any
	for _, w := range workloads {
		ns, name, _ := strings.Cut(w, "/")
		items = append(items, map[string]any{
			"metadata": map[string]any{"namespace": ns, "name": name, "generation": 1},
			"spec":     map[string]any{"replicas": replicas}, "status": map[string]any{"readyReplicas": ready, "observedGeneration": 1},
		})
	}
	data, _ := json.Marshal(map[string]any{"items": items})
	return string(data)
}

const now = 1_800_000_000

// good is what a guest that keeps the contract prints; /readyz's answer ends without a newline, as it really does.
func good() map[string]string {
	return map[string]string{
		"user": "0", "commands": "/usr/bin/git", "login": "motd\n/etc/rancher/k3s/k3s.yaml", "kubeconfig": "600 root", "gitconfig": "Learner\nlearner@lab.example\nmain",
		"clock": fmt.Sprint(now), "ready": "ok", "openapi": "2998392", "nodes": `{"items":[{"metadata":{"name":"lab"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}]}`,
		"workloads": workloadsJSON(1, 1), "service": "9418", "project": "default", "kubectl": "ok",
		"images": `{"images":[{"repoTags":["docker.io/library/nginx:1.27-alpine"]}]}`, "gitd": "visible",
	}
}

func ask(t *testing.T, sections map[string]string) map[string]check.Result {
	t.Helper()
	var out strings.Builder
	for name, text := range sections {
		fmt.Fprintf(&out, "@@ %s\n%s\n", name, text)
	}
	fake := runtest.New(t)
	fake.On("sh", "-s", "--").Stdout(out.String())
	results := map[string]check.Result{}
	for _, c := range Checks(fake, Options{Images: []string{"nginx:1.27-alpine"}, Now: func() time.Time { return time.Unix(now, 0) }}) {
		results[c.ID] = c.Run(t.Context())
	}
	return results
}

func TestContractHoldsInOneRoundTrip(t *testing.T) {
	for id, r := range ask(t, good()) {
		require.Equal(t, check.Passed, r.State, "%s: %s", id, r.Got)
	}
}

func TestEachBreachIsSeen(t *testing.T) {
	for _, c := range []struct {
		section, text, id string
		want              check.State
	}{
		{"ready", "@! 1 connection refused", "api", check.Pending},
		{"nodes", `{"items":[{"metadata":{"name":"lab"},"status":{"conditions":[{"type":"Ready","status":"False","message":"not yet"}]}}]}`, "node", check.Pending},
		{"openapi", "0", "openapi", check.Pending},
		{"nodes", `{"items":[]}`, "node", check.Pending},
		{"workloads", workloadsJSON(1, 0), "workload-argocd-argocd-redis", check.Pending},
		{"workloads", workloadsJSON(0, 0), "workload-gitsrv-gitd", check.Pending},
		{"project", "@! 1 not found", "project", check.Pending},
		{"gitd", "@! 128 cannot connect", "gitd", check.Pending},
		{"kubectl", "@! 1 refused", "kubectl", check.Pending},
		{"user", "1000", "user", check.Pending},
		{"commands", "@! 1 no argocd", "commands", check.Failed},
		{"kubeconfig", "644 root", "kubeconfig", check.Pending},
		{"gitconfig", "Learner\nlearner@lab.example\nmaster", "git-config", check.Pending},
		{"clock", fmt.Sprint(now - 3600), "clock", check.Failed},
		{"images", `{"images":[]}`, "images", check.Failed},
	} {
		sections := good()
		sections[c.section] = c.text
		got := ask(t, sections)[c.id]
		require.Equal(t, c.want, got.State, "%s: %+v", c.id, got)
		require.NotEmpty(t, got.Got, c.id)
	}
}

func TestGuestThatCannotBeAskedIsAnError(t *testing.T) {
	fake := runtest.New(t)
	fake.On("sh", "-s", "--").Exit(255)
	for _, c := range Checks(fake, Options{}) {
		require.Equal(t, check.Error, c.Run(t.Context()).State)
	}
	sections := good()
	delete(sections, "gitd")
	require.Equal(t, check.Error, ask(t, sections)["gitd"].State, "a question without an answer is no breach")
}

func TestWhatIsNotAskedYetIsNoFault(t *testing.T) {
	results := ask(t, map[string]string{"ready": "@! 7 connection refused", "waiting": "", "user": "0"})
	require.Equal(t, check.Passed, results["user"].State)
	require.Equal(t, check.Pending, results["api"].State)
	require.Equal(t, check.Pending, results["gitd"].State)
	require.Contains(t, results["gitd"].Got, "not asked")
}

// TestScript runs the real script with stand-ins for the guest's commands, whose output lacks its last newline.
func TestScript(t *testing.T) {
	scriptWith := func(t *testing.T, commands map[string]string) map[string]section {
		bin := t.TempDir()
		for name, body := range commands {
			require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
		}
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		t.Setenv("LABCTL_GIT_ROOT", t.TempDir())
		cmd := exec.CommandContext(t.Context(), "sh", "-s", "--")
		cmd.Stdin = strings.NewReader(collectScript)
		out, err := cmd.Output()
		require.NoError(t, err)
		return parse(string(out))
	}
	t.Run("ready", func(t *testing.T) {
		sections := scriptWith(t, map[string]string{"curl": "printf ok", "jq": "printf jq", "kubectl": "printf ok", "k3s": "printf ok"})
		require.Equal(t, section{out: "ok"}, sections["ready"])
		require.Equal(t, section{out: "ok"}, sections["nodes"])
		require.Equal(t, section{out: "jq"}, sections["workloads"])
		require.Equal(t, section{out: "jq"}, sections["project"])
		require.Equal(t, section{out: "ok"}, sections["kubectl"])
		require.NotEmpty(t, sections["clock"].out)
		require.Contains(t, sections["commands"].failed, "no argocd")
		require.Contains(t, sections, "gitd")
		require.NotContains(t, sections, "waiting")
	})
	t.Run("no API server", func(t *testing.T) {
		sections := scriptWith(t, map[string]string{"curl": "echo refused >&2; exit 7"})
		require.Equal(t, "exit code 7 refused", sections["ready"].failed)
		require.Contains(t, sections, "waiting")
		require.NotContains(t, sections, "nodes")
	})
	t.Run("workloads that are not ready", func(t *testing.T) {
		sections := scriptWith(t, map[string]string{"curl": "printf ok", "jq": "[ \"$1\" != -e ]"})
		require.Contains(t, sections, "waiting")
		require.Contains(t, sections, "workloads")
		require.NotContains(t, sections, "gitd")
	})
}
