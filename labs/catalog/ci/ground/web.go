package ground

import (
	"context"
	"slices"
	"strings"

	"github.com/cgoa-labs/labctl/labs/text"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/labs/git"
	"github.com/cgoa-labs/labctl/labs/ground"
)

// WebFile is deploy/web.yaml in one commit.
type WebFile struct {
	Exists bool
	// Deployment is the Deployment web, nil where the file has none that Kubernetes would take; Problem then says why.
	Deployment *appsv1.Deployment
	Problem    text.Phrase
	// Replicas is spec.replicas as it is written; nil where it is not there. Typo says that there is a spec.replica.
	Replicas any
	Typo     bool
}

// ParseWeb reads deploy/web.yaml.
func ParseWeb(data []byte) WebFile {
	w := WebFile{Exists: true}
	documents, err := ground.Documents(data)
	if err != nil {
		w.Problem = text.Verbatim(err.Error())
		return w
	}
	w.Problem = text.Say("it has no Deployment web")
	for _, document := range documents {
		var loose struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     map[string]any
		}
		if err := yaml.Unmarshal(document, &loose); err != nil {
			w.Problem = text.Say("it cannot be read as YAML: %s", err.Error())
			return w
		}
		if loose.Kind != "Deployment" || loose.Metadata.Name != Web {
			continue
		}
		w.Replicas = loose.Spec["replicas"]
		_, w.Typo = loose.Spec["replica"]
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(document, &d); err != nil {
			w.Problem = text.Verbatim(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: "), "\n", " "))
			return w
		}
		if d.APIVersion != "apps/v1" {
			w.Problem = text.Say("apiVersion is %q", d.APIVersion)
			return w
		}
		w.Deployment, w.Problem = &d, text.Phrase{}
		return w
	}
	return w
}

// Valid reports whether it is a Deployment web as the lab wants it, whatever its image; else it says what is wrong.
func (w WebFile) Valid() (bool, text.Phrase) {
	if !w.Exists {
		return false, text.Say("there is no %s", WebPath)
	}
	wrong := w.Problem
	if w.Deployment != nil {
		wrong = w.wrong()
	}
	if wrong.Empty() {
		return true, wrong
	}
	return false, text.Say("%s: %s", WebPath, wrong)
}

// wrong is what is wrong with a Deployment that Kubernetes would take.
func (w WebFile) wrong() text.Phrase {
	d := w.Deployment
	labels := d.Spec.Template.Labels
	switch {
	case d.Namespace != "":
		return text.Say("metadata.namespace is %q", d.Namespace)
	case d.Spec.Replicas == nil:
		return text.Say("spec.replicas is not set")
	case *d.Spec.Replicas != Replicas:
		return text.Say("spec.replicas is %d", *d.Spec.Replicas)
	case labels["app"] != "web":
		return text.Say("the pods' label app is %q", labels["app"])
	case d.Spec.Selector == nil || len(d.Spec.Selector.MatchLabels)+len(d.Spec.Selector.MatchExpressions) == 0:
		return text.Say("spec.selector is not set")
	case w.Image() == "":
		return text.Say("there is no container web with an image")
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if labels[k] != v {
			return text.Say("the selector wants %s=%s, which the pods do not have", k, v)
		}
	}
	return text.Phrase{}
}

// Image is the image of the container web, in the short form for images of the usual registry; empty where there is none.
func (w WebFile) Image() string {
	if w.Deployment == nil {
		return ""
	}
	return ImageOf(w.Deployment)
}

// ImageOf is the image of a Deployment's container web, in the short form.
func ImageOf(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == Web {
			return ShortImage(c.Image)
		}
	}
	return ""
}

// ShortImage leaves out the parts of an image's name that are understood.
func ShortImage(image string) string {
	for _, prefix := range []string{"index.docker.io/", "docker.io/", "library/"} {
		image = strings.TrimPrefix(image, prefix)
	}
	return image
}

// BrokenString reports whether spec.replicas is the string two.
func (w WebFile) BrokenString() bool { return w.Replicas == "two" }

// MainHistory is the bare repository's main, with deploy/web.yaml in each of its commits.
type MainHistory struct {
	git.History
	Web map[string]WebFile
}

// TipWeb is deploy/web.yaml in the newest commit.
func (m MainHistory) TipWeb() WebFile { return m.Web[m.Tip()] }

// Baselines are the commits whose deploy/web.yaml is the lab's first one, newest first.
func (m MainHistory) Baselines() []string {
	return slices.DeleteFunc(m.SHAs(), func(sha string) bool {
		ok, _ := m.Web[sha].Valid()
		return !ok || m.Web[sha].Image() != FirstImage
	})
}

// BroughtIn reports whether the commit itself changed deploy/web.yaml so that bad holds: no parent has it.
func (m MainHistory) BroughtIn(c git.Commit, bad func(WebFile) bool) bool {
	return bad(m.Web[c.SHA]) && !slices.ContainsFunc(c.Parents, func(p string) bool { return bad(m.Web[p]) })
}

// Main reads the bare repository's main. It is empty where there is no repository or no such branch.
func (g *Ground) Main(ctx context.Context) (MainHistory, error) {
	return ground.Once(g.Ground, "main", func() (MainHistory, error) { return g.ReadMain(ctx) })
}

// ReadMain reads the bare repository's main anew.
func (g *Ground) ReadMain(ctx context.Context) (MainHistory, error) {
	m := MainHistory{Web: map[string]WebFile{}}
	repo := g.BareRepo()
	state, err := repo.State(ctx)
	if err != nil || !state.Repo {
		return m, err
	}
	if m.History, err = repo.History(ctx, Main); err != nil {
		return m, err
	}
	blobs, err := repo.Files(ctx, m.SHAs(), WebPath)
	if err != nil {
		return m, err
	}
	parsed := map[string]WebFile{}
	for i, sha := range m.SHAs() {
		if !blobs[i].Exists {
			continue
		}
		w, ok := parsed[string(blobs[i].Data)]
		if !ok {
			w = ParseWeb(blobs[i].Data)
			parsed[string(blobs[i].Data)] = w
		}
		m.Web[sha] = w
	}
	return m, nil
}
