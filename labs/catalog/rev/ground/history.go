package ground

import (
	"context"
	"slices"

	"github.com/cgoa-labs/labctl/labs/argo"
)

// History is what Argo CD remembers of an Application's deployments, oldest first. It forgets the oldest when there are more than ten.
type History []Deployment

// Deployment is one of them.
type Deployment struct {
	argo.Deployment
	// Commit is the one behind the revision, and Version what the ConfigMap says in it, empty where the bare repository does not have it.
	Commit, Version string
	// Ours says that the Application then tracked what the lab asks for.
	Ours bool
}

// HistoryOf reads an Application's history.
func (g *Ground) HistoryOf(ctx context.Context, app *argo.Application) (History, error) {
	first, err := g.First()
	if err != nil {
		return nil, err
	}
	main, err := g.Main(ctx)
	if err != nil {
		return nil, err
	}
	targets := g.Wanted(app.Name, first).Revisions
	var h History
	for _, d := range argo.History(app) {
		next := Deployment{Deployment: d, Ours: slices.Contains(targets, d.Target)}
		if next.Commit, err = main.Peel(ctx, d.Revision); err != nil {
			return nil, err
		}
		if next.Version, err = main.Version(ctx, next.Commit); err != nil {
			return nil, err
		}
		h = append(h, next)
	}
	return h, nil
}

// Forgot reports whether there were older deployments that are not remembered any more.
func (h History) Forgot() bool { return len(h) > 0 && h[0].ID > 0 }

// Find is the first deployment from index from on that tracked what the lab asks for and fits; -1 where there is none.
func (h History) Find(from int, fits func(Deployment) bool) int {
	for i := from; i < len(h); i++ {
		if h[i].Ours && fits(h[i]) {
			return i
		}
	}
	return -1
}

// Of fits deployments of one commit, Saying those of a version.
func Of(commit string) func(Deployment) bool {
	return func(d Deployment) bool { return d.Commit == commit }
}

func Saying(version string) func(Deployment) bool {
	return func(d Deployment) bool { return d.Version == version }
}

// Moves reports whether the second version was deployed after the first commit.
func (h History) Moves(first string) bool {
	from := h.Find(0, Of(first))
	return from >= 0 && h.Find(from, Saying(Second)) >= 0
}

// Holds reports whether the revisions may have been the whole history, or the end of it, at some time: where both speak of the same
// deployments, they say the same.
func (h History) Holds(revisions []string) bool {
	if len(h) == 0 {
		return false
	}
	last := h[len(h)-1].ID
	for start := int64(0); start+int64(len(revisions))-1 <= last; start++ {
		if !slices.ContainsFunc(h, func(d Deployment) bool {
			i := d.ID - start
			return i >= 0 && i < int64(len(revisions)) && revisions[i] != d.Revision
		}) {
			return true
		}
	}
	return false
}
