package ci

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	shared "github.com/cgoa-labs/labctl/labs/ground"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	"github.com/cgoa-labs/labctl/labs/kube/recorder"
	"github.com/cgoa-labs/labctl/provision/run"
)

// Step 4: validate.sh is run on good and bad folders, behind a recorder that sees what it asks the API server and lets nothing
// through that would change the cluster.
func (l *lab) validate() []check.Check {
	return []check.Check{
		l.Check("validate-file", func(context.Context) (check.Outcome, error) {
			return l.Executable(l.Validate(), "script-missing", "not-executable")
		}),
		l.Check("validate-login", l.validateLogin),
		l.Check("validate-harmless", l.validateHarmless),
		l.Check("validate-accepts", l.validateAccepts),
		l.Check("validate-rejects", l.validateRejects),
	}
}

// probeName is the name of the objects that validate.sh is tried with.
const probeName = "labctl-verify"

func manifest(name, replicas string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  labels:
    app: %[1]s
spec:
  %[2]s
  selector:
    matchLabels:
      app: %[1]s
  template:
    metadata:
      labels:
        app: %[1]s
    spec:
      containers:
        - name: web
          image: %[3]s
`, name, replicas, ground.FirstImage)
}

const (
	good   = "replicas: 2"
	str    = "replicas: two"
	typo   = "replica: 2"
	absent = "/nonexistent/kubeconfig"
)

// folder is one folder that validate.sh is tried on: its files, by what stands for replicas in each.
type folder struct {
	name  string
	files []string
	// relative calls the script from the folder's parent; else the path is absolute and the working folder is elsewhere.
	relative bool
	// kubeconfig is KUBECONFIG, empty for unset.
	kubeconfig string
	hint       string // where the verdict is not as it should be
}

var goodFolders = []folder{
	{name: "a path", files: []string{good, good}, kubeconfig: absent, hint: "validate-good"},
	{name: "deploy", files: []string{good}, relative: true, hint: "validate-good"},
}

var badFolders = []folder{
	{name: "typo", files: []string{typo}, kubeconfig: absent, hint: "validate-strict"},
	{name: "first", files: []string{str, good, good}, hint: "validate-swallowed"},
	{name: "middle", files: []string{good, typo, good}, hint: "validate-swallowed"},
	{name: "last", files: []string{good, good, str}, relative: true, hint: "validate-swallowed"},
}

// tried is a folder and what became of the run on it.
type tried struct {
	folder
	ground.Trial
}

// trials are the runs of validate.sh in one pass, and what they left in the cluster.
type trials struct {
	good, bad []tried
	left      []string
}

// rehearse runs validate.sh on the good folders first: a script that does not even take those is not tried on bad ones.
func (l *lab) rehearse(ctx context.Context) (*trials, error) {
	return shared.Once(l.Ground.Ground, "validate", func() (*trials, error) {
		client, err := l.Kube()
		if err != nil {
			return nil, err
		}
		before, err := client.DeploymentUIDs(ctx)
		if err != nil {
			return nil, err
		}
		stage, err := l.NewStage(false)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stage.Close() }()
		t := &trials{}
		for _, f := range goodFolders {
			r, err := l.validateOn(ctx, stage, f)
			if err != nil {
				return nil, err
			}
			t.good = append(t.good, r)
			if r.TimedOut {
				break
			}
		}
		if t.verdict() {
			for _, f := range badFolders {
				r, err := l.validateOn(ctx, stage, f)
				if err != nil {
					return nil, err
				}
				t.bad = append(t.bad, r)
				if r.Code == 0 || r.TimedOut {
					break
				}
			}
		}
		t.left, err = l.sweepProbes(ctx, before)
		return t, err
	})
}

// verdict reports whether all good folders were taken, in the way that was asked for.
func (t *trials) verdict() bool {
	for _, r := range t.good {
		if r.Code != 0 || len(r.Admin) > 0 || len(r.CI) == 0 || slices.ContainsFunc(r.CI, realWrite) {
			return false
		}
	}
	return true
}

func realWrite(r recorder.Request) bool { return r.Write && !r.DryRun }

func (l *lab) validateOn(ctx context.Context, stage *ground.Stage, f folder) (tried, error) {
	parent, err := os.MkdirTemp(stage.Tmp(), "try.")
	if err != nil {
		return tried{}, err
	}
	dir := filepath.Join(parent, f.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return tried{}, err
	}
	for i, replicas := range f.files {
		name := fmt.Sprintf("%s-%c", probeName, 'a'+i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%c.yaml", 'a'+i)), []byte(manifest(name, replicas)), 0o644); err != nil {
			return tried{}, err
		}
	}
	cmd := run.Cmd{Argv: shared.Script(l.Validate(), dir), Dir: "/"}
	if f.relative {
		cmd = run.Cmd{Argv: shared.Script(l.Validate(), f.name), Dir: parent}
	}
	if f.kubeconfig != "" {
		cmd.Env = []string{"KUBECONFIG=" + f.kubeconfig}
	}
	trial, err := l.Try(ctx, stage, cmd)
	return tried{f, trial}, err
}

// sweepProbes takes away what a script created although the recorder was in its way, and names it.
func (l *lab) sweepProbes(ctx context.Context, before map[string]types.UID) ([]string, error) {
	client, err := l.Kube()
	if err != nil {
		return nil, err
	}
	after, err := client.DeploymentUIDs(ctx)
	if err != nil {
		return nil, err
	}
	var left []string
	for key, uid := range after {
		namespace, name, _ := strings.Cut(key, "/")
		if !strings.HasPrefix(name, probeName+"-") {
			continue
		}
		if before[key] != uid {
			left = append(left, key)
		}
		if err := client.DeleteDeployment(ctx, namespace, name); err != nil {
			return left, err
		}
	}
	slices.Sort(left)
	return left, nil
}

func (l *lab) validateLogin(ctx context.Context) (check.Outcome, error) {
	t, err := l.rehearse(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	wanted := text.Say("requests to the API server by way of %s only", l.CIKubeconfig())
	// A run that fails without asking has got its arguments wrong, if another asks: that is for the next checks.
	asks := slices.ContainsFunc(t.good, func(r tried) bool { return len(r.CI) > 0 })
	for _, r := range slices.Concat(t.good, t.bad) {
		switch {
		case r.TimedOut:
			return l.Fail(text.Say("an end"), text.Say("none within the time"), "script-slow"), nil
		case len(r.Admin) > 0:
			return l.Fail(wanted, text.Say("with the administrator's kubeconfig: %s", r.Admin[0].String()), "validate-admin"), nil
		case len(r.CI) == 0 && (r.Code == 0 || !asks):
			return l.Fail(wanted, text.Say("none, exit code %d: %s", r.Code, text.Printed(r.Output)), "validate-environment"), nil
		}
	}
	return l.Pass(text.Say("it uses ci-kubeconfig")), nil
}

func (l *lab) validateHarmless(ctx context.Context) (check.Outcome, error) {
	t, err := l.rehearse(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	wanted := text.Say("no request that changes something")
	for _, r := range slices.Concat(t.good, t.bad) {
		for _, request := range r.CI {
			if realWrite(request) {
				return l.Fail(wanted, text.Verbatim(request.String()), "validate-writes"), nil
			}
			// Also where a read comes first and is refused.
			if request.Resource == "deployments" && request.Namespace != ground.DryRun {
				return l.Fail(text.Say("dry runs in namespace %s", ground.DryRun), text.Verbatim(request.String()), "validate-namespace"), nil
			}
		}
	}
	if len(t.left) > 0 {
		return l.Fail(wanted, text.Say("it created %s (taken away again)", strings.Join(t.left, ", ")), "validate-writes"), nil
	}
	return l.Pass(text.Say("nothing")), nil
}

func (l *lab) validateAccepts(ctx context.Context) (check.Outcome, error) {
	t, err := l.rehearse(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	for _, r := range t.good {
		if r.Code != 0 {
			hint := r.hint
			if strings.Contains(r.name, " ") && len(t.good) > 1 && t.good[1].Code == 0 {
				hint = "validate-spaces"
			}
			return l.Fail(text.Say("exit code 0 for %d good manifests", len(r.files)), text.Say("exit code %d: %s", r.Code, text.Printed(r.Output)), hint), nil
		}
	}
	return l.Pass(text.Say("exit code 0")), nil
}

func (l *lab) validateRejects(ctx context.Context) (check.Outcome, error) {
	t, err := l.rehearse(ctx)
	if err != nil {
		return check.Outcome{}, err
	}
	for _, r := range t.bad {
		if r.Code != 0 {
			continue
		}
		asked := slices.ContainsFunc(r.CI, func(q recorder.Request) bool { return q.DryRun })
		refused := slices.ContainsFunc(r.CI, func(q recorder.Request) bool { return q.DryRun && q.Status >= 400 })
		hint := r.hint
		switch {
		case refused:
			hint = "validate-swallowed"
		case !asked:
			hint = "validate-client"
		}
		return l.Fail(text.Say("an exit code other than 0 for manifests of which one has %s", badPart(r.files)), text.Say("exit code 0"), hint), nil
	}
	return l.Pass(text.Say("%d folders with one bad manifest were refused", len(t.bad))), nil
}

func badPart(files []string) string {
	for _, f := range files {
		if f != good {
			return f
		}
	}
	return ""
}
