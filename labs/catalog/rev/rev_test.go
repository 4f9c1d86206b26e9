package rev_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/catalog/rev"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/proof"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/text"
	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/labtest"
	"github.com/cgoa-labs/labctl/provision/run"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }

func onPlaces(p shared.Places) (labs.Lab, error) {
	return rev.Lab(ground.Paths{Places: p}, run.Local{}, "en")
}

func all() labtest.Proof { return labtest.Proof{Cases: proof.Cases(), Undos: proof.Undos()} }

func TestTheLabIsWhole(t *testing.T) {
	lab, err := rev.Lab(ground.Guest(), run.Local{}, "en")
	require.NoError(t, err)
	require.Len(t, lab.Steps, 8)
	words, err := text.English()
	require.NoError(t, err)
	labtest.Whole(t, lab, words, all(), "*.go", "../../judge/*.go", "../../argo/standing.go")
}

func TestTheLabSpeaks(t *testing.T) {
	labtest.Speaks(t, text.In, func(language string) (labs.Lab, error) { return rev.Lab(ground.Guest(), run.Local{}, language) })
}

// TestNamesInTheText: what a learner types must be in the text as the checks want it.
func TestNamesInTheText(t *testing.T) {
	words, err := text.English()
	require.NoError(t, err)
	p := ground.Guest()
	for step, names := range map[int][]string{
		1: {p.Bare(), p.Clone(), p.SHAFile(), ground.ReleasePath, "ConfigMap release", "version: v1", "tag v1"},
		2: {p.AppsFile(), p.GitURL, ground.BranchApp, ground.TagApp, ground.SHAApp, "targetRevision", "project default", "prune and selfHeal", "CreateNamespace=true"},
		3: {p.Clone(), ground.ReleasePath, p.AfterCommit(), `{"branch": ..., "tag": ..., "sha": ...}`, "status.sync.revision"},
		4: {"git push -f", p.TagHistory(), `{"target": "v1", "revisions": [...]}`, "status.history[].revision"},
		5: {p.Hook(), "refs/tags/*", p.Guard(), "v1.sha"},
		6: {"git revert", p.Rollback(), "revert_sha", "deployed", "equals_v1_sha"},
		7: {"argocd app rollback rev-branch 0 --core", p.Refused(), p.AdminCopy(), "KUBECONFIG"},
		8: {p.Report(), "mutable_refs", "immutable_ref", "commit-sha", "pinned_revision", "tag_guard", "pre-receive", "git-revert"},
	} {
		for _, name := range names {
			require.Contains(t, words.Steps[step-1].Goal, name, "step %d", step)
		}
	}
}

func TestFreshGuest(t *testing.T) {
	labtest.New(t).Lab(t, rev.ID, onPlaces).Fresh(t)
}

func TestFromStartToEnd(t *testing.T) {
	labtest.New(t).Lab(t, rev.ID, onPlaces).Prove(t, all())
}

func TestInterruptedVerifyLeavesNoTrace(t *testing.T) {
	lab := labtest.New(t).Lab(t, rev.ID, onPlaces)
	lab.Solve(1, 5)
	lab.Interrupt(t, 5, "pushes that move a tag")
}
