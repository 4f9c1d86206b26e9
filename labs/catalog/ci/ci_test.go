package ci_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cgoa-labs/labctl/labs"
	"github.com/cgoa-labs/labctl/labs/catalog/ci"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/proof"
	"github.com/cgoa-labs/labctl/labs/catalog/ci/text"
	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/labtest"
	sharedproof "github.com/cgoa-labs/labctl/labs/proof"
	"github.com/cgoa-labs/labctl/provision/run"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }

func onPlaces(p shared.Places) (labs.Lab, error) {
	return ci.Lab(ground.Paths{Places: p}, run.Local{}, "en")
}

func all() labtest.Proof {
	return labtest.Proof{Cases: proof.Cases(), Undos: proof.Undos(), Skip: needsRealCluster}
}

// needsRealCluster is true where a script uses more of kubectl than there is here.
func needsRealCluster(c sharedproof.Case) bool {
	return c.Step == 3 || c.Step == 1 && strings.Contains(c.Setup, "kubectl")
}

func TestTheLabIsWhole(t *testing.T) {
	lab, err := ci.Lab(ground.Guest(), run.Local{}, "en")
	require.NoError(t, err)
	require.Len(t, lab.Steps, 8)
	words, err := text.English()
	require.NoError(t, err)
	labtest.Whole(t, lab, words, all(), "*.go", "../../judge/*.go", "../../argo/standing.go")
}

func TestTheLabSpeaks(t *testing.T) {
	labtest.Speaks(t, text.In, func(language string) (labs.Lab, error) { return ci.Lab(ground.Guest(), run.Local{}, language) })
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
	labtest.New(t).Lab(t, ci.ID, onPlaces).Fresh(t)
}

func TestVerdictInTheLearnersLanguage(t *testing.T) {
	lab := labtest.New(t).Lab(t, ci.ID, func(p shared.Places) (labs.Lab, error) {
		return ci.Lab(ground.Paths{Places: p}, run.Local{}, "ja")
	})
	report := lab.On(t).Verify(1)
	require.Equal(t, "ja", report.Language)
	bare := report.Steps[0].Checks[0]
	require.Contains(t, bare.Wanted, "ベアリポジトリ/")
	require.Equal(t, "何もありません", bare.Got)
}

func TestFromStartToEnd(t *testing.T) {
	labtest.New(t).Lab(t, ci.ID, onPlaces).Prove(t, all())
}

func TestInterruptedVerifyLeavesNoTrace(t *testing.T) {
	lab := labtest.New(t).Lab(t, ci.ID, onPlaces)
	lab.Solve(1, 4)
	lab.Interrupt(t, 4, "bad manifests")
}
