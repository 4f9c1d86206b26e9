package labtest

import (
	"fmt"
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/labs/ground"
	"github.com/cgoa-labs/labctl/labs/labtest/resource"
)

// argoCD is Argo CD as far as the labs need it. It acts when an Application is read: it looks at the repository where it is asked to, or where
// the Application has changed, applies what can be applied, and goes on trying what cannot.
type argoCD struct {
	repositories string
	// specs are the Applications' as they were looked at, and deployed the objects' paths that each has deployed, by the Application's path.
	specs    map[string]string
	deployed map[string][]string
	// known are manifests by repository, commit and folder.
	known map[string][]object
}

func newArgoCD(repositories string) *argoCD {
	return &argoCD{repositories: repositories, specs: map[string]string{}, deployed: map[string][]string{}, known: map[string][]object{}}
}

// at walks into an object; what is not there is empty.
func at(o object, names ...string) object {
	for _, name := range names {
		o, _ = o[name].(object)
	}
	return o
}

func str(o object, name string) string {
	s, _ := o[name].(string)
	return s
}

// app is one Application at work.
type app struct {
	c            *argoCD
	a            *API
	path         string
	spec, status object
}

// look brings an Application on. The API is locked.
func (c *argoCD) look(a *API, path string) {
	o := a.objects[path]
	if o == nil {
		return
	}
	status, _ := o["status"].(object)
	if status == nil {
		status = object{"history": []any{}}
		o["status"] = status
	}
	p := app{c, a, path, at(o, "spec"), status}
	annotations := at(o, "metadata", "annotations")
	_, asked := annotations["argocd.argoproj.io/refresh"]
	delete(annotations, "argocd.argoproj.io/refresh")
	spec := fmt.Sprint(p.spec)
	if asked || c.specs[path] != spec || at(status, "sync") == nil {
		c.specs[path] = spec
		revision, err := c.resolve(p.bare(), str(at(p.spec, "source"), "targetRevision"))
		if err == nil {
			_, err = c.manifests(p.bare(), revision, str(at(p.spec, "source"), "path"))
		}
		delete(status, "conditions")
		if err != nil {
			status["conditions"] = []any{object{"type": "ComparisonError", "message": err.Error()}}
			status["sync"] = object{"status": "Unknown", "revision": str(at(status, "sync"), "revision")}
			return
		}
		status["sync"] = object{"revision": revision}
	}
	if status["conditions"] != nil {
		return
	}
	revision := str(at(status, "sync"), "revision")
	if op := at(status, "operationState"); str(op, "phase") == "Terminating" {
		op["phase"] = "Failed"
	}
	if rollback := str(at(o, "operation", "sync"), "revision"); rollback != "" {
		delete(o, "operation")
		p.sync(rollback)
	}
	op := at(status, "operationState")
	failed := str(op, "phase") == "Failed" && str(at(op, "operation", "sync"), "revision") == revision
	if !p.same(revision) && at(p.spec, "syncPolicy", "automated") != nil && str(op, "phase") != "Running" && !failed {
		p.sync(revision)
	}
	at(status, "sync")["status"] = "OutOfSync"
	if p.same(revision) {
		at(status, "sync")["status"] = "Synced"
	}
	status["health"] = object{"status": "Healthy"}
}

func (p app) bare() string {
	return filepath.Join(p.c.repositories, strings.TrimSuffix(path.Base(str(at(p.spec, "source"), "repoURL")), ".git")+".git")
}

func (p app) namespace() string { return str(at(p.spec, "destination"), "namespace") }

func git(bare string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"--git-dir", bare}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// resolve is the commit that a target names; of a branch and a tag of the same name it takes the branch.
func (c *argoCD) resolve(bare, target string) (string, error) {
	for _, name := range []string{"refs/heads/" + target, "refs/tags/" + target, target} {
		if name == target && !strings.HasPrefix(target, "refs/") && strings.Trim(target, "0123456789abcdef") != "" {
			break
		}
		if sha, err := git(bare, "rev-parse", "--verify", "--quiet", name+"^{commit}"); err == nil {
			return sha, nil
		}
	}
	return "", fmt.Errorf("unable to resolve '%s' to a commit SHA", target)
}

// manifests are the objects in a folder of a commit.
func (c *argoCD) manifests(bare, revision, folder string) ([]object, error) {
	key := bare + " " + revision + " " + folder
	if found, ok := c.known[key]; ok {
		return found, nil
	}
	names, err := git(bare, "ls-tree", "-r", "--name-only", revision, "--", folder+"/")
	if err != nil || names == "" {
		return nil, fmt.Errorf("%s: app path does not exist", folder)
	}
	var found []object
	for _, name := range strings.Fields(names) {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			continue
		}
		data, err := git(bare, "show", revision+":"+name)
		if err != nil {
			return nil, err
		}
		documents, err := ground.Documents([]byte(data))
		if err != nil {
			return nil, err
		}
		for _, document := range documents {
			var o object
			if err := yaml.Unmarshal(document, &o); err != nil {
				return nil, err
			}
			found = append(found, o)
		}
	}
	c.known[key] = found
	return found, nil
}

// pathOf is where an object of the Application lives.
func (p app) pathOf(o object) string {
	namespace := str(at(o, "metadata"), "namespace")
	if namespace == "" {
		namespace = p.namespace()
	}
	_, path, _ := resource.Path(str(o, "kind"), namespace, str(at(o, "metadata"), "name"))
	return path
}

// same reports whether the cluster holds what a commit says, and nothing more of the Application's.
func (p app) same(revision string) bool {
	wanted, err := p.c.manifests(p.bare(), revision, str(at(p.spec, "source"), "path"))
	if err != nil {
		return false
	}
	var paths []string
	for _, o := range wanted {
		path := p.pathOf(o)
		paths = append(paths, path)
		if !within(o, p.a.objects[path]) {
			return false
		}
	}
	return !slices.ContainsFunc(p.c.deployed[p.path], func(path string) bool {
		return !slices.Contains(paths, path) && p.a.objects[path] != nil
	})
}

// within reports whether all that want says is in have.
func within(want, have any) bool {
	w, isObject := want.(object)
	if !isObject {
		return reflect.DeepEqual(want, have)
	}
	h, _ := have.(object)
	for name, value := range w {
		if !within(value, h[name]) {
			return false
		}
	}
	return len(w) == 0 || h != nil
}

// sync applies a commit, or goes on trying where it cannot be applied.
func (p app) sync(revision string) {
	operation := object{"sync": object{"revision": revision}}
	wanted, err := p.c.manifests(p.bare(), revision, str(at(p.spec, "source"), "path"))
	for _, o := range wanted {
		if err == nil {
			err = fits(p.pathOf(o), o, true)
		}
	}
	if err != nil {
		p.status["operationState"] = object{"phase": "Running", "retryCount": 1, "operation": operation,
			"message": `one or more objects failed to apply, reason: "" is invalid: patch: Invalid value: unrecognized type: int32. Retrying attempt #1 at 10:00AM.`}
		return
	}
	if p.a.objects["/api/v1/namespaces/"+p.namespace()] == nil {
		p.a.store("/api/v1/namespaces/"+p.namespace(), object{"kind": "Namespace", "apiVersion": "v1"})
	}
	var paths []string
	for _, o := range wanted {
		live := merge(o, object{}) // a copy, which what is known of the commit is not to share
		live["metadata"] = maps.Clone(at(o, "metadata"))
		if str(o, "kind") == "Deployment" {
			live["status"] = object{"readyReplicas": at(o, "spec")["replicas"]}
		}
		p.a.store(p.pathOf(o), live)
		paths = append(paths, p.pathOf(o))
	}
	for _, path := range p.c.deployed[p.path] {
		if !slices.Contains(paths, path) {
			p.a.remove(path)
		}
	}
	p.c.deployed[p.path] = paths
	p.status["operationState"] = object{"phase": "Succeeded", "operation": operation}
	history, _ := p.status["history"].([]any)
	id := 0.0
	if len(history) > 0 {
		id = history[len(history)-1].(object)["id"].(float64) + 1
	}
	history = append(history, object{"id": id, "revision": revision, "source": maps.Clone(at(p.spec, "source")), "deployedAt": "2026-01-01T00:00:00Z"})
	const most = 10
	p.status["history"] = history[max(0, len(history)-most):]
}
