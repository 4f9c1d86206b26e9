package argo

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// Wanted is what a lab asks of an Application that deploys one folder of one repository to this cluster, synced by itself with
// prune and self-heal, creating its namespace.
type Wanted struct {
	RepoURL, Path, Project, Namespace string
	// Revisions are the ways to write its target; see Branch, Tag and Commit.
	Revisions []string
}

// Branch, Tag and Commit are the ways to write a target that Argo CD takes for just that.
func Branch(name string) []string { return []string{name, "refs/heads/" + name} }
func Tag(name string) []string    { return []string{name, "refs/tags/" + name} }
func Commit(sha string) []string  { return []string{sha} }

// Difference is one field that is not as wanted.
type Difference struct {
	Field       string
	Wanted, Got text.Phrase
}

// The two ways to write "this cluster".
const (
	inClusterServer = "https://kubernetes.default.svc"
	inClusterName   = "in-cluster"
)

// Differs is the first field in which the Application means something else than what is wanted; nil where it means the same,
// however it is written.
func Differs(app *v1alpha1.Application, w Wanted) *Difference {
	spec := app.Spec
	say := func(field string, want, got text.Phrase) *Difference {
		return &Difference{Field: field, Wanted: text.Say("spec.%s %s", field, want), Got: text.Say("spec.%s %s", field, got)}
	}
	diff := func(field, want, got string) *Difference {
		if got == "" {
			return say(field, text.Verbatim(want), text.Say("nothing"))
		}
		return say(field, text.Verbatim(want), text.Verbatim(got))
	}
	if len(spec.Sources) > 0 || spec.Source == nil {
		return say("source", text.Say("one source"), text.Say("%d in sources", len(spec.Sources)))
	}
	source, to := spec.Source, spec.Destination
	automated := &v1alpha1.SyncPolicyAutomated{}
	var options v1alpha1.SyncOptions
	if p := spec.SyncPolicy; p != nil {
		options = p.SyncOptions
		if p.Automated != nil {
			automated = p.Automated
		}
	}
	server := strings.TrimSuffix(to.Server, "/")
	switch {
	case !SameRepo(source.RepoURL, w.RepoURL):
		return diff("source.repoURL", w.RepoURL, source.RepoURL)
	case !slices.Contains(w.Revisions, source.TargetRevision):
		return diff("source.targetRevision", w.Revisions[0], source.TargetRevision)
	case path.Clean("/"+source.Path) != path.Clean("/"+w.Path):
		return diff("source.path", w.Path, source.Path)
	case spec.Project != w.Project:
		return diff("project", w.Project, spec.Project)
	case to.Namespace != w.Namespace:
		return diff("destination.namespace", w.Namespace, to.Namespace)
	case server != inClusterServer && to.Name != inClusterName || server != "" && to.Name != "":
		return say("destination", text.Say("this cluster: server %s or name %s", inClusterServer, inClusterName), text.Verbatim(strings.TrimSpace(to.Server+" "+to.Name)))
	case spec.SyncPolicy == nil || spec.SyncPolicy.Automated == nil || automated.Enabled != nil && !*automated.Enabled:
		return diff("syncPolicy.automated", "on", "off")
	case !automated.GetPrune():
		return diff("syncPolicy.automated.prune", "true", "false")
	case !automated.GetSelfHeal():
		return diff("syncPolicy.automated.selfHeal", "true", "false")
	case !options.HasOption("CreateNamespace=true"):
		return diff("syncPolicy.syncOptions", "CreateNamespace=true", strings.Join(options, ", "))
	}
	return nil
}

// SameRepo reports whether two git URLs lead to the same repository of this cluster's git daemon: a service's short and long names,
// the usual port and the ending .git make no difference.
func SameRepo(a, b string) bool { return repoAddress(a) == repoAddress(b) }

func repoAddress(s string) string {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Scheme == "" {
		return s
	}
	const gitPort = "9418"
	port := u.Port()
	if port == "" && u.Scheme == "git" {
		port = gitPort
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	host = strings.TrimSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc")
	return u.Scheme + "://" + host + ":" + port + strings.TrimSuffix(path.Clean(u.Path), ".git")
}
