package argo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"

	"github.com/cgoa-labs/labctl/labs/check"
)

// Why is what keeps an Application from being in step.
type Why string

// The reasons, each with its own hint in a lab's text.
const (
	Refreshing  Why = "refreshing"   // it is reading the repository anew
	Operating   Why = "operating"    // an operation is under way
	OldRevision Why = "old-revision" // it has not looked at the newest commit
	Comparing   Why = "comparing"    // it cannot compare
	OutOfSync   Why = "out-of-sync"  // it has yet to apply
	SyncFailed  Why = "sync-failed"  // it tried to apply and gave up
	Progressing Why = "progressing"  // what it applied is coming up
	Unhealthy   Why = "unhealthy"    // what it applied does not come up
)

// Standing is how an Application stands to a revision.
type Standing struct {
	State check.State
	// Why is empty where State is passed.
	Why Why
	Got text.Phrase
	// Operation is the revision that an operation under way applies, empty where there is none or it does not say.
	Operation string
}

// StandingOf judges one look at an Application: in step means compared with want, Synced, Healthy, and nothing under way.
func StandingOf(app *v1alpha1.Application, want string) Standing {
	status := app.Status
	got := Describe(app)
	say := func(state check.State, why Why) Standing {
		return Standing{State: state, Why: why, Got: got, Operation: UnderWay(app)}
	}
	// The annotation for hydration, which every refresh by the argocd command leaves too, is no sign: where nothing hydrates, it stays.
	if _, asked := app.Annotations[v1alpha1.AnnotationKeyRefresh]; asked {
		return say(check.Pending, Refreshing)
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(status.Conditions, func(c v1alpha1.ApplicationCondition) bool { return c.Type == kind })
	}
	switch {
	case operating(app):
		return say(check.Pending, Operating)
	case has(v1alpha1.ApplicationConditionInvalidSpecError):
		return say(check.Failed, Comparing)
	case has(v1alpha1.ApplicationConditionComparisonError):
		// It may be the learner's path or the platform's hiccup, and Argo CD asks again by itself.
		return say(check.Pending, Comparing)
	case status.Sync.Revision != want || status.Sync.Status == v1alpha1.SyncStatusCodeUnknown || status.Sync.Status == "":
		return say(check.Pending, OldRevision)
	case status.Sync.Status != v1alpha1.SyncStatusCodeSynced:
		// Argo CD does not try a revision again that has failed.
		if op := status.OperationState; op != nil && op.Phase.Completed() && !op.Phase.Successful() && Applied(op) == want {
			return say(check.Failed, SyncFailed)
		}
		return say(check.Pending, OutOfSync)
	}
	switch status.Health.Status {
	case "Healthy":
		return Standing{State: check.Passed, Got: got}
	case "Degraded", "Suspended":
		return say(check.Failed, Unhealthy)
	}
	return say(check.Pending, Progressing)
}

// Applied is the revision that an operation's last attempt applied. Where retries take the newest one (syncPolicy.retry.refresh), the operation itself
// names the first attempt's, or none, depending on Argo CD's version.
func Applied(op *v1alpha1.OperationState) string {
	switch {
	case op.SyncResult != nil && op.SyncResult.Revision != "":
		return op.SyncResult.Revision
	case op.Operation.Sync != nil:
		return op.Operation.Sync.Revision
	}
	return ""
}

func operating(app *v1alpha1.Application) bool {
	return app.Operation != nil || app.Status.OperationState != nil && !app.Status.OperationState.Phase.Completed()
}

// UnderWay is the revision that the operation under way applies, empty where there is none.
func UnderWay(app *v1alpha1.Application) string {
	if !operating(app) {
		return ""
	}
	if state := app.Status.OperationState; state != nil && !state.Phase.Completed() {
		if revision := Applied(state); revision != "" {
			return revision
		}
	}
	if app.Operation != nil && app.Operation.Sync != nil {
		return app.Operation.Sync.Revision
	}
	return ""
}

// Describe says in one line how an Application is.
func Describe(app *v1alpha1.Application) text.Phrase {
	status := app.Status
	said := []text.Phrase{
		text.Say("sync %s at %s", orNotKnown(string(status.Sync.Status)), text.Commit(status.Sync.Revision)),
		text.Say("health %s", orNotKnown(string(status.Health.Status))),
	}
	if op := status.OperationState; op != nil {
		operation := text.Say("operation %s", string(op.Phase))
		if op.Operation.Sync != nil && op.Operation.Sync.Revision != "" {
			operation = text.Say("operation of %s %s", text.Commit(op.Operation.Sync.Revision), string(op.Phase))
		}
		said = append(said, operation)
		if !op.Phase.Successful() && op.Message != "" {
			said = append(said, text.Verbatim(`"`+cut(op.Message)+`"`))
		}
	}
	for _, c := range status.Conditions {
		said = append(said, text.Verbatim(c.Type+": "+cut(c.Message)))
	}
	if _, asked := app.Annotations[v1alpha1.AnnotationKeyRefresh]; asked {
		said = append(said, text.Say("a refresh is asked for"))
	}
	return text.List(said...)
}

// Evidence is the part of an Application's status that a verdict rests on.
func Evidence(app *v1alpha1.Application) map[string]any {
	status := app.Status
	e := map[string]any{"syncStatus": string(status.Sync.Status), "syncRevision": status.Sync.Revision, "health": string(status.Health.Status), "history": Deployed(app)}
	if op := status.OperationState; op != nil {
		e["operationPhase"], e["operationMessage"] = string(op.Phase), op.Message
		if revision := Applied(op); revision != "" {
			e["operationRevision"] = revision
		}
	}
	return e
}

// Deployed are the revisions in the Application's history, oldest first. Argo CD keeps the last ten.
func Deployed(app *v1alpha1.Application) []string {
	revisions := make([]string, len(app.Status.History))
	for i, h := range app.Status.History {
		revisions[i] = h.Revision
	}
	return revisions
}

// Deployment is one entry of an Application's history.
type Deployment struct {
	// ID counts the Application's deployments from 0; those that Argo CD has forgotten keep theirs.
	ID int64
	// Revision is the commit and Target what the Application tracked when it was deployed.
	Revision, Target string
}

// History is what Argo CD remembers of an Application's deployments, oldest first.
func History(app *v1alpha1.Application) []Deployment {
	history := make([]Deployment, len(app.Status.History))
	for i, h := range app.Status.History {
		history[i] = Deployment{ID: h.ID, Revision: h.Revision, Target: h.Source.TargetRevision}
	}
	return history
}

func orNotKnown(s string) text.Phrase {
	if s == "" {
		return text.Say("not known")
	}
	return text.Verbatim(s)
}

func cut(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return s
}

// Look judges how the Application stands to want. An Application that looks right is looked at twice, since a fresh revision with
// an old status would pass once. Where it is not in step although it may become so, a part of the platform that is down is an
// error. The Application is nil where there is none.
func (c Client) Look(ctx context.Context, name, want string) (*v1alpha1.Application, Standing, error) {
	var app *v1alpha1.Application
	var standing Standing
	const looks, pause = 2, 500 * time.Millisecond
	for look := range looks {
		if look > 0 {
			select {
			case <-ctx.Done():
				return nil, Standing{}, context.Cause(ctx)
			case <-time.After(pause):
			}
		}
		var err error
		if app, err = c.Application(ctx, name); err != nil || app == nil {
			return nil, Standing{}, err
		}
		if standing = StandingOf(app, want); standing.State != check.Passed {
			break
		}
	}
	if standing.State == check.Pending {
		if err := c.Platform(ctx); err != nil {
			return nil, Standing{}, fmt.Errorf("Application %s is not in step, and %w", name, err)
		}
	}
	return app, standing, nil
}
