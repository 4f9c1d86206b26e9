package ci_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/catalog/ci"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/engine"
	"github.com/cgoa-labs/labctl/provision/run"
)

// guest is a stand-in for a guest: real git, real scripts in real sandboxes, a fake API server with a fake Argo CD behind it.
type guest struct {
	t     *testing.T
	api   *fakeAPI
	paths ground.Paths
	eng   *engine.Engine
}

func newGuest(t *testing.T) *guest {
	if os.Getuid() != 0 {
		t.Skip("sandboxes need root")
	}
	root := t.TempDir()
	g := &guest{t: t, api: newAPI(t)}
	g.paths = ground.Paths{
		Home: root + "/root", Work: root + "/root/cgoa-ci", GitRoot: root + "/srv/bare", Kubeconfig: root + "/etc/k3s.yaml",
		Scratch: t.TempDir(), Copied: []string{root + "/root", root + "/srv"},
		GitURL: ground.Guest().GitURL, Lock: root + "/run/lab-ci.lock",
	}
	for _, dir := range []string{g.paths.Home, g.paths.GitRoot, root + "/etc", root + "/bin"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, tool := range []string{"kubectl", "argocd"} {
		require.NoError(t, os.Symlink(self, root+"/bin/"+tool))
	}
	require.NoError(t, os.WriteFile(g.paths.Home+"/.gitconfig", []byte("[user]\nname = Learner\nemail = learner@lab.example\n[init]\ndefaultBranch = main\n"), 0o644))
	t.Setenv("PATH", root+"/bin:"+os.Getenv("PATH"))
	t.Setenv("HOME", g.paths.Home)
	t.Setenv("KUBECONFIG", "/wrong/on/purpose")
	g.api.kubeconfig(t, g.paths.Kubeconfig)
	g.api.argo = g.reconcile
	handler := http.Handler(g.api)
	g.api.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/fake/token/"); ok {
			words := strings.Split(rest, "/")
			life, _ := time.ParseDuration(words[2])
			_, _ = w.Write([]byte(g.api.token(words[0], words[1], time.Now(), life)))
			return
		}
		handler.ServeHTTP(w, r)
	})
	lab, err := ci.Lab(g.paths, run.Local{})
	require.NoError(t, err)
	g.eng = &engine.Engine{Lab: lab, LockFile: g.paths.Lock, Log: func(line string) { t.Log(line) }}
	return g
}

const appPath = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/ci-web"

// reconcile is Argo CD: it looks at main, applies what can be applied, and retries what cannot.
func (g *guest) reconcile(a *fakeAPI) {
	app := a.objects[appPath]
	if app == nil {
		return
	}
	meta := app["metadata"].(object)
	if annotations, _ := meta["annotations"].(object); annotations != nil {
		delete(annotations, "argocd.argoproj.io/refresh")
	}
	status, _ := app["status"].(object)
	if status == nil {
		status = object{"history": []any{}}
		app["status"] = status
	}
	out, err := exec.Command("git", "--git-dir", g.paths.Bare(), "rev-parse", "--verify", "-q", "refs/heads/main").Output()
	if err != nil {
		return
	}
	tip := strings.TrimSpace(string(out))
	text, _ := exec.Command("git", "--git-dir", g.paths.Bare(), "show", tip+":deploy/web.yaml").Output()
	web := ground.ParseWeb(text)
	op, _ := status["operationState"].(object)
	revision := func() string { return op["operation"].(object)["sync"].(object)["revision"].(string) }
	if op != nil && op["phase"] == "Terminating" {
		op["phase"] = "Failed"
	}
	old := op != nil && op["phase"] == "Running" && revision() != tip
	status["sync"] = object{"status": "OutOfSync", "revision": tip}
	status["health"] = object{"status": "Healthy"}
	switch {
	case web.Deployment == nil && !old:
		status["operationState"] = object{"phase": "Running", "retryCount": 1, "operation": object{"sync": object{"revision": tip}},
			"message": `one or more objects failed to apply, reason: "" is invalid: patch: Invalid value: unrecognized type: int32. Retrying attempt #1 at 10:00AM.`}
	case web.Deployment != nil:
		live := a.objects["/apis/apps/v1/namespaces/ci-web/deployments/web"]
		if !old && (live == nil || live["image"] != web.Image()) {
			var o object
			_ = yaml.Unmarshal(text, &o)
			o["image"], o["status"] = web.Image(), object{"readyReplicas": 2}
			a.store("/api/v1/namespaces/ci-web", object{"kind": "Namespace", "apiVersion": "v1"})
			a.store("/apis/apps/v1/namespaces/ci-web/deployments/web", o)
			status["operationState"] = object{"phase": "Succeeded", "operation": object{"sync": object{"revision": tip}}}
			status["history"] = append(status["history"].([]any), object{"revision": tip, "id": len(status["history"].([]any)), "deployedAt": "2026-01-01T00:00:00Z"})
			live = o
		}
		if live != nil && live["image"] == web.Image() {
			status["sync"].(object)["status"] = "Synced"
		}
	}
}

func (g *guest) verify(step int) labs.Report {
	g.t.Helper()
	r, err := g.eng.Verify(g.t.Context(), step, 0)
	require.NoError(g.t, err)
	return r
}

func (g *guest) solve(first, last int) {
	g.t.Helper()
	r, err := g.eng.Solve(g.t.Context(), first, last)
	require.NoError(g.t, err)
	require.Equal(g.t, check.Passed, r.State, "%s", explain(r))
}

func explain(r labs.Report) string {
	var b strings.Builder
	for _, s := range r.Steps {
		for _, c := range s.Checks {
			if c.State != check.Passed {
				b.WriteString(strings.Join([]string{string(c.State), c.ID, "wanted", c.Wanted, "got", c.Got, "hint", c.Hint, "\n"}, " "))
			}
		}
	}
	return b.String()
}

// sh runs a script with the proof's places moved to this guest's.
func (g *guest) sh(script string) {
	g.t.Helper()
	script = strings.NewReplacer("/root/cgoa-ci", g.paths.Work, "/srv/bare", g.paths.GitRoot, "/etc/rancher/k3s/k3s.yaml", g.paths.Kubeconfig,
		"/var/tmp/labctl-proof", filepath.Dir(g.paths.Home)+"/proof").Replace(script)
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	require.NoError(g.t, err, "%s\n%s", script, out)
}
