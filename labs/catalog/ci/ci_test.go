package ci_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs/catalog/ci"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/proof"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/text"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/provision/run"
)

func TestTheLabIsWhole(t *testing.T) {
	lab, err := ci.Lab(ground.Guest(), run.Local{})
	require.NoError(t, err)
	require.Len(t, lab.Steps, 8)
	seen := map[string]bool{}
	for i, step := range lab.Steps {
		require.NotEmpty(t, step.Title)
		require.NotEmpty(t, step.Goal)
		require.NotEmpty(t, step.Note)
		for _, need := range step.Needs {
			require.Less(t, need, i+1, "step %d needs a later one", i+1)
		}
		for _, c := range step.Checks {
			require.False(t, seen[c.ID], "%s is there twice", c.ID)
			seen[c.ID] = true
		}
	}
	for _, c := range lab.Fresh {
		seen[c.ID] = true
	}
	words, err := text.English()
	require.NoError(t, err)
	for id := range words.Checks {
		require.True(t, seen[id], "a title for a check that is not there: %s", id)
	}
	for _, c := range proof.Cases() {
		require.True(t, c.WantCheck == "" || seen[c.WantCheck], "the proof wants a check that is not there: %s", c.WantCheck)
	}
}

// TestHintsAndTheirKeys holds the hints in the text against the keys in the code, both ways.
func TestHintsAndTheirKeys(t *testing.T) {
	words, err := text.English()
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	standing, err := filepath.Glob("../../argo/standing.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range append(files, standing...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(data)
	}
	for key := range words.Hints {
		require.Contains(t, code.String(), `"`+key+`"`, "a hint that nothing gives")
	}
}

// TestNamesInTheText: what a learner types must be in the text as the checks want it.
func TestNamesInTheText(t *testing.T) {
	words, err := text.English()
	require.NoError(t, err)
	p := ground.Guest()
	for step, names := range map[int][]string{
		1: {p.Bare(), p.Clone(), p.AppFile(), p.GitURL, ground.WebPath, ground.FirstImage, "ci-web", "app: web", "CreateNamespace=true"},
		2: {p.Broken(), p.AdminCopy(), "sync_status", "operation_message", "live_replicas", "argocd app terminate-op ci-web --core"},
		3: {p.CIKubeconfig(), ground.Role, ground.Binding, "ci:validator", ground.DryRun},
		4: {p.Validate(), p.CIKubeconfig(), "KUBECONFIG"},
		5: {p.Hook(), p.Validate(), ground.Main},
		6: {p.Blocked(), p.Clone(), "git reset --hard origin/main"},
		7: {p.Bump(), "ci: web nginx:TAG", "nginx:" + ground.NewTag},
		8: {p.Report(), "ci_writes", "cd_writes", "ci_can_write_prod", "gate", "pre-receive", "deployed_revision", "broken_reached_git"},
	} {
		for _, name := range names {
			require.Contains(t, words.Steps[step-1].Goal, name, "step %d", step)
		}
	}
}

func TestFreshGuest(t *testing.T) {
	g := newGuest(t)
	r := g.verify(0)
	for _, s := range r.Steps {
		require.Contains(t, []check.State{check.Failed, check.Skipped}, s.State, "step %d", s.Step)
	}
	r, err := g.eng.Reset(t.Context())
	require.NoError(t, err)
	require.Equal(t, check.Passed, r.State)
	require.Empty(t, g.api.writes, "a reset of a fresh guest changes nothing")
}

// TestFromStartToEnd is the author's proof as far as it goes without a real cluster.
func TestFromStartToEnd(t *testing.T) {
	g := newGuest(t)
	for n := 1; n <= 8; n++ {
		g.solve(n, n)
	}
	all := g.verify(0)
	require.Equal(t, check.Passed, all.State, "%s", explain(all))
	require.Len(t, all.Steps, 8)

	t.Run("verify changes nothing", func(t *testing.T) {
		writes, before := len(g.api.writes), snapshot(t, g)
		require.Equal(t, check.Passed, g.verify(0).State)
		require.Empty(t, g.api.writes[writes:])
		require.Equal(t, before, snapshot(t, g))
		left, err := os.ReadDir(g.paths.Scratch)
		require.NoError(t, err)
		require.Empty(t, left)
	})
	t.Run("solve again changes nothing", func(t *testing.T) {
		before := snapshot(t, g)
		g.solve(1, 8)
		require.Equal(t, before, snapshot(t, g))
	})
	t.Run("undo", func(t *testing.T) {
		for _, u := range proof.Undos() {
			g.sh(u.Before())
			for _, s := range g.verify(0).Steps {
				want := check.Passed
				if s.Step == u.Step {
					want = check.Failed
				} else if slices.Contains(u.Then, s.Step) {
					want = check.Skipped
				}
				require.Equal(t, want, s.State, "step %d after undoing %d", s.Step, u.Step)
			}
			g.sh(u.After())
		}
	})
	t.Run("answers", func(t *testing.T) {
		tried := map[string]int{}
		for _, c := range proof.Cases() {
			if needsRealCluster(c) {
				continue
			}
			// From step 4 on each takes seconds, since all that a step needs is asked too.
			if tried[fmt.Sprint(c.Step, c.Want)]++; c.Step >= 4 && tried[fmt.Sprint(c.Step, c.Want)] > 2 && os.Getenv("PROOF") != "all" {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", c.Step, c.Name), func(t *testing.T) {
				g := *g
				g.t = t
				g.sh(c.Before())
				r := g.verify(c.Step)
				g.sh(c.After())
				require.Equal(t, c.Want, r.State, "%s", explain(r))
				last := r.Steps[0].Checks[len(r.Steps[0].Checks)-1]
				if c.WantCheck != "" {
					require.Equal(t, c.WantCheck, last.ID, "%s", explain(r))
					require.NotEmpty(t, last.Hint)
				}
			})
		}
		r := g.verify(0)
		require.Equal(t, check.Passed, r.State, "%s", explain(r))
	})
	t.Run("the API server goes away", func(t *testing.T) {
		g.api.away = true
		defer func() { g.api.away = false }()
		for _, s := range g.verify(0).Steps {
			require.Equal(t, check.Error, s.State)
		}
	})
	t.Run("reset", func(t *testing.T) {
		r, err := g.eng.Reset(t.Context())
		require.NoError(t, err)
		require.Equal(t, check.Passed, r.State, "%v", r.Left)
		for path := range g.api.objects {
			require.NotContains(t, path, "ci")
		}
		for _, s := range g.verify(0).Steps {
			require.NotEqual(t, check.Passed, s.State)
		}
		g.solve(1, 1)
	})
}

// needsRealCluster is true where a script uses more of kubectl than the fake knows.
func needsRealCluster(c proof.Case) bool {
	if c.Step == 3 || c.Step == 1 && strings.Contains(c.Setup, "kubectl") {
		return true
	}
	return false
}

// snapshot is the content of every file of the lab, and of the cluster.
func snapshot(t *testing.T, g *guest) map[string]string {
	files := map[string]string{}
	for _, root := range []string{g.paths.Home, g.paths.GitRoot} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			data, err := os.ReadFile(path)
			files[path] = info.Mode().String() + string(data)
			return err
		}))
	}
	for path, o := range g.api.objects {
		if !strings.Contains(path, "applications") {
			files[path] = fmt.Sprint(o)
		}
	}
	return files
}

func TestInterruptedVerifyLeavesNoTrace(t *testing.T) {
	g := newGuest(t)
	g.solve(1, 4)
	before := snapshot(t, g)
	why := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	g.eng.Log = func(line string) {
		if strings.Contains(line, "validate.sh") {
			cancel(why)
		}
	}
	r, err := g.eng.Verify(ctx, 4, 0)
	require.ErrorIs(t, err, why)
	require.Equal(t, check.Error, r.State)
	left, err := os.ReadDir(g.paths.Scratch)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, before, snapshot(t, g))
}
