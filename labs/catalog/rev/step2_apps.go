package rev

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/cgoa-labs/labctl/labs/argo"
	"github.com/cgoa-labs/labctl/labs/catalog/rev/ground"
	"github.com/cgoa-labs/labctl/labs/check"
	shared "github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/judge"
)

// Step 2: three Applications that differ in what they track.
func (l *lab) apps() []check.Check {
	return []check.Check{
		l.Check("apps-file", l.appsFile),
		l.Check("apps-live", l.appsLive),
		l.Check("apps-synced", l.appsSynced),
	}
}

func (l *lab) appsFile(context.Context) (check.Outcome, error) {
	wanted := text.Say("Applications %s in %s", strings.Join(ground.Apps(), ", "), l.AppsFile())
	data, err := os.ReadFile(l.AppsFile())
	if errors.Is(err, os.ErrNotExist) {
		return l.Fail(wanted, text.Say("there is no such file"), "apps-file-missing"), nil
	}
	if err != nil {
		return check.Outcome{}, err
	}
	digest := judge.Digest(data)
	if len(bytes.TrimSpace(data)) == 0 {
		return l.Fail(wanted, text.Say("the file is empty"), "apps-file-none").With("sha256", digest), nil
	}
	documents, err := shared.Documents(data)
	if err != nil {
		return l.Fail(wanted, text.Verbatim(err.Error()), "apps-file-yaml").With("sha256", digest), nil
	}
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	for _, name := range ground.Apps() {
		app, err := argo.Parse(documents, name)
		switch {
		case err != nil:
			return l.Fail(wanted, text.Verbatim(err.Error()), "apps-file-yaml").With("sha256", digest), nil
		case app == nil:
			return l.Fail(wanted, text.Say("the file has no Application %s", name), "apps-file-none").With("sha256", digest), nil
		case app.Namespace != "" && app.Namespace != "argocd":
			return l.Fail(text.Say("%s with metadata.namespace argocd", name), text.Say("metadata.namespace %s", app.Namespace), "apps-file-field").With("sha256", digest), nil
		}
		if wrong := argo.Differs(app, l.Wanted(name, first)); wrong != nil {
			return l.Fail(text.Say("%s with %s", name, wrong.Wanted), wrong.Got, fieldHint(wrong, "apps-file-field")).With("sha256", digest), nil
		}
	}
	return l.Pass(text.Say("it says what was asked")).With("sha256", digest), nil
}

// fieldHint is the hint for a field that is not as wanted.
func fieldHint(wrong *argo.Difference, other string) string {
	switch {
	case wrong.Field == "source.targetRevision":
		return "apps-target"
	case strings.HasPrefix(wrong.Field, "syncPolicy.automated"):
		return "apps-automated"
	}
	return other
}

func (l *lab) appsLive(ctx context.Context) (check.Outcome, error) {
	first, err := l.First()
	if err != nil {
		return check.Outcome{}, err
	}
	for _, name := range ground.Apps() {
		app, out, err := l.application(ctx, name)
		if app == nil {
			return out, err
		}
		if wrong := argo.Differs(app, l.Wanted(name, first)); wrong != nil {
			return l.Fail(text.Say("%s with %s", name, wrong.Wanted), wrong.Got, fieldHint(wrong, "apps-field")).With("application", argo.Evidence(app)), nil
		}
	}
	return l.Pass(text.Say("they are as asked")), nil
}

// appsSynced asks whether each Application has deployed the first version. Once it has, what it tracks may have moved on, and that is
// for later steps to judge.
func (l *lab) appsSynced(ctx context.Context) (check.Outcome, error) {
	evidence := map[string]any{}
	for _, name := range ground.Apps() {
		app, out, err := l.application(ctx, name)
		if app == nil {
			return out, err
		}
		evidence[name] = argo.Evidence(app)
		h, err := l.HistoryOf(ctx, app)
		if err != nil {
			return check.Outcome{}, err
		}
		if h.Find(0, ground.Saying(ground.First)) >= 0 {
			continue
		}
		if out, err := l.inStep(ctx, name); err != nil || out.State != check.Passed {
			return out, err
		}
	}
	return l.Pass(text.Say("all three have deployed version %s", ground.First)).With("applications", evidence), nil
}
