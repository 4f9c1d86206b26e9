// Package labtest is a stand-in for a guest in which labs are tested: real git and real scripts in real sandboxes, before a fake API server
// with a fake Argo CD behind it.
package labtest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/engine"
	"github.com/cgoa-labs/labctl/labs/ground"
)

// Guest is a guest. Any number of labs may be in it.
type Guest struct {
	API                         *API
	root, home, bare, k3s, temp string
}

// New makes a guest with nothing in it. The test needs root.
func New(t *testing.T) *Guest {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("sandboxes need root")
	}
	root := t.TempDir()
	g := &Guest{root: root, home: root + "/root", bare: root + "/srv/bare", k3s: root + "/etc/k3s.yaml", temp: t.TempDir()}
	for _, dir := range []string{g.home, g.bare, root + "/etc", root + "/bin"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	g.API = newAPI(t, g.bare)
	tools, err := buildTools()
	require.NoError(t, err)
	for _, tool := range []string{"kubectl", "argocd"} {
		require.NoError(t, os.Symlink(tools, root+"/bin/"+tool))
	}
	require.NoError(t, os.WriteFile(g.home+"/.gitconfig", []byte("[user]\nname = Learner\nemail = learner@lab.example\n[init]\ndefaultBranch = main\n"), 0o644))
	t.Setenv("PATH", root+"/bin:"+os.Getenv("PATH"))
	t.Setenv("HOME", g.home)
	t.Setenv("KUBECONFIG", "/wrong/on/purpose")
	g.API.kubeconfig(t, g.k3s)
	return g
}

// Places are a lab's places in the guest.
func (g *Guest) Places(lab string) ground.Places {
	return ground.Places{
		Lab: lab, Home: g.home, Work: g.home + "/cgoa-" + lab, GitRoot: g.bare, Kubeconfig: g.k3s,
		Scratch: g.temp, Copied: []string{g.home, g.root + "/srv"},
		GitURL: ground.URL(lab), Lock: g.root + "/run/lab-" + lab + ".lock",
	}
}

// Lab is one lab in a guest.
type Lab struct {
	*Guest
	Places ground.Places
	Engine *engine.Engine
	t      *testing.T
}

// Lab puts a lab into the guest; make makes it on its places.
func (g *Guest) Lab(t *testing.T, id string, make func(ground.Places) (labs.Lab, error)) *Lab {
	t.Helper()
	p := g.Places(id)
	lab, err := make(p)
	require.NoError(t, err)
	return &Lab{Guest: g, Places: p, t: t, Engine: &engine.Engine{Lab: lab, LockFile: p.Lock, Log: func(line string) { t.Log(line) }}}
}

// On is the lab for a subtest.
func (l *Lab) On(t *testing.T) *Lab {
	other := *l
	other.t = t
	return &other
}

// Verify asks for one step, or for all with 0.
func (l *Lab) Verify(step int) labs.Report {
	l.t.Helper()
	r, err := l.Engine.Verify(l.t.Context(), step, 0)
	require.NoError(l.t, err)
	return r
}

// Passes wants all steps to pass.
func (l *Lab) Passes() {
	l.t.Helper()
	r := l.Verify(0)
	require.Equal(l.t, check.Passed, r.State, "%s", Explain(r))
}

// Solve solves steps, and wants that to work.
func (l *Lab) Solve(first, last int) {
	l.t.Helper()
	r, err := l.Engine.Solve(l.t.Context(), first, last)
	require.NoError(l.t, err)
	require.Equal(l.t, check.Passed, r.State, "%s", Explain(r))
}

// Reset resets the lab, and wants that to work.
func (l *Lab) Reset() {
	l.t.Helper()
	r, err := l.Engine.Reset(l.t.Context())
	require.NoError(l.t, err)
	require.Equal(l.t, check.Passed, r.State, "%v", r.Left)
	require.Empty(l.t, r.Left)
}

// Explain is what a person needs to see of a report that is not as wanted.
func Explain(r labs.Report) string {
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

// Sh runs a script, such as a proof's, with its places moved to this guest's.
func (l *Lab) Sh(script string) {
	l.t.Helper()
	script = strings.NewReplacer("/root/cgoa-", l.home+"/cgoa-", "/srv/bare", l.bare, "/etc/rancher/k3s/k3s.yaml", l.k3s, "/var/tmp/labctl-proof", l.root+"/proof").Replace(script)
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	require.NoError(l.t, err, "%s\n%s", script, out)
}

// Snapshot is the content of every file below root's home and the repositories, and of the cluster but for Applications, which go on by
// themselves.
func (g *Guest) Snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, root := range []string{g.home, g.bare} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			all[path] = info.Mode().String() + string(data)
			return err
		}))
	}
	for path, o := range g.API.Objects() {
		if !strings.Contains(path, "/applications/") {
			all[path] = o
		}
	}
	return all
}

// ScratchIsEmpty wants that no verify has left anything.
func (g *Guest) ScratchIsEmpty(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(g.temp)
	require.NoError(t, err)
	require.Empty(t, left)
}
