package labtest

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object as JSON has it.
type object = map[string]any

// API is an API server in memory: enough of one for the labs, with real RBAC decisions and the schema check of Deployments.
type API struct {
	mu      sync.Mutex
	objects map[string]object // by path
	tokens  map[string]string // users by token
	server  *httptest.Server
	argo    *argoCD
	away    bool
	uid     int // makes UIDs
	writes  []string
}

func newAPI(t *testing.T, repositories string) *API {
	a := &API{objects: map[string]object{}, tokens: map[string]string{"admin": "admin"}, argo: newArgoCD(repositories)}
	a.server = httptest.NewUnstartedServer(a)
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	for _, ns := range []string{"default", "kube-system", "argocd", "gitsrv"} {
		a.put("/api/v1/namespaces/"+ns, object{"kind": "Namespace", "apiVersion": "v1"})
	}
	for _, part := range []string{"argocd/statefulsets/argocd-application-controller", "argocd/deployments/argocd-repo-server", "argocd/deployments/argocd-redis", "gitsrv/deployments/gitd"} {
		a.put("/apis/apps/v1/namespaces/"+part, object{"apiVersion": "apps/v1", "kind": "Deployment", "status": object{"readyReplicas": 1}})
	}
	// What Kubernetes gives every account by itself.
	for name, rule := range map[string]object{
		"system:basic-user":                     {"apiGroups": []any{"authorization.k8s.io"}, "resources": []any{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}, "verbs": []any{"create"}},
		"system:cluster-trust-bundle-discovery": {"apiGroups": []any{"certificates.k8s.io"}, "resources": []any{"clustertrustbundles"}, "verbs": []any{"get", "list", "watch"}},
	} {
		a.put(rbacPath+"/clusterroles/"+name, object{"kind": "ClusterRole", "rules": []any{rule}})
		a.put(rbacPath+"/clusterrolebindings/"+name, object{"kind": "ClusterRoleBinding", "roleRef": object{"kind": "ClusterRole", "name": name},
			"subjects": []any{object{"kind": "Group", "name": "system:serviceaccounts"}}})
	}
	return a
}

// kubeconfig writes the administrator's kubeconfig.
func (a *API) kubeconfig(t *testing.T, path string) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: u, user: {token: admin}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		a.server.URL, base64.StdEncoding.EncodeToString(ca))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// token makes a token of a ServiceAccount.
func (a *API) token(namespace, name string, life time.Duration) string {
	issued := time.Now()
	claims, _ := json.Marshal(map[string]any{"sub": "system:serviceaccount:" + namespace + ":" + name, "iat": issued.Unix(), "exp": issued.Add(life).Unix(), "jti": fmt.Sprint(a.uid)})
	a.uid++
	token := "e30." + base64.RawURLEncoding.EncodeToString(claims) + fmt.Sprintf(".%d", a.uid)
	if issued.Add(life).After(time.Now()) {
		a.tokens[token] = "system:serviceaccount:" + namespace + ":" + name
	}
	return token
}

// Away makes every answer a 503, or not.
func (a *API) Away(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// Writes are the requests that changed something.
func (a *API) Writes() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

// Objects are all objects by path, as text.
func (a *API) Objects() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]string{}
	for path, o := range a.objects {
		all[path] = fmt.Sprint(o)
	}
	return all
}

// put stores an object at its path; metadata comes from the path.
func (a *API) put(path string, o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(path, o)
}

func (a *API) store(path string, o object) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	meta, _ := o["metadata"].(object)
	if meta == nil {
		meta = object{}
		o["metadata"] = meta
	}
	meta["name"] = words[len(words)-1]
	if i := slices.Index(words, "namespaces"); i >= 0 && i+2 < len(words) {
		meta["namespace"] = words[i+1]
	}
	if old := a.objects[path]; old != nil {
		meta["uid"] = old["metadata"].(object)["uid"]
	} else if meta["uid"] == nil {
		a.uid++
		meta["uid"] = fmt.Sprint(a.uid)
	}
	a.objects[path] = o
}

// remove deletes an object, and all in it if it is a namespace.
func (a *API) remove(path string) {
	delete(a.objects, path)
	maps.DeleteFunc(a.objects, func(p string, _ object) bool {
		rest, isNS := strings.CutPrefix(path, "/api/v1/namespaces/")
		return isNS && strings.Contains(p, "/namespaces/"+rest+"/")
	})
}

func (a *API) fail(w http.ResponseWriter, code int, reason, message, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "details": object{"name": name}})
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		a.fail(w, 503, "ServiceUnavailable", "the server is away", "")
		return
	}
	user, known := a.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !known {
		a.fail(w, 401, "Unauthorized", "Unauthorized", "")
		return
	}
	if as := r.Header.Get("Impersonate-User"); as != "" && user == "admin" {
		user = as
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	switch {
	case path == "/readyz":
		_, _ = io.WriteString(w, "ok")
		return
	case strings.HasPrefix(path, tokenPath):
		words := strings.Split(strings.TrimPrefix(path, tokenPath), "/")
		life, _ := time.ParseDuration(words[2])
		_, _ = io.WriteString(w, a.token(words[0], words[1], life))
		return
	case r.Method == http.MethodPost && strings.HasSuffix(path, "reviews"):
		a.review(w, path, user, body)
		return
	}
	if !a.may(user, r.Method, path) {
		a.fail(w, 403, "Forbidden", user+" may not "+r.Method+" "+path, "")
		return
	}
	a.serve(w, r, body)
}

func (a *API) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	path, dry := r.URL.Path, r.URL.Query().Get("dryRun") == "All"
	words := strings.Split(strings.Trim(path, "/"), "/")
	name := words[len(words)-1]
	if strings.Contains(path, "/applications/") && r.Method == http.MethodGet {
		a.argo.look(a, path)
	}
	o, there := a.objects[path]
	switch r.Method {
	case http.MethodGet:
		if there {
			_ = json.NewEncoder(w).Encode(o)
			return
		}
		list := []object{}
		for p, o := range a.objects {
			if dir, _ := filepath.Split(p); strings.TrimSuffix(dir, "/") == path || inAnyNamespace(p, path) {
				list = append(list, o)
			}
		}
		if len(list) > 0 || slices.Contains([]string{"rolebindings", "clusterrolebindings", "deployments", "namespaces"}, name) {
			_ = json.NewEncoder(w).Encode(object{"kind": "List", "apiVersion": "v1", "metadata": object{}, "items": list})
			return
		}
		a.fail(w, 404, "NotFound", path+" not found", name)
	case http.MethodDelete:
		if !there {
			a.fail(w, 404, "NotFound", path+" not found", name)
			return
		}
		a.writes = append(a.writes, "DELETE "+path)
		a.remove(path)
		_ = json.NewEncoder(w).Encode(o)
	case http.MethodPatch, http.MethodPut, http.MethodPost:
		var next object
		if err := yaml.Unmarshal(body, &next); err != nil {
			a.fail(w, 400, "BadRequest", err.Error(), "")
			return
		}
		if r.Method == http.MethodPost {
			name, _ = next["metadata"].(object)["name"].(string)
			path += "/" + name
		}
		if r.Method == http.MethodPatch && there {
			next = merge(o, next)
		}
		validation := r.URL.Query().Get("fieldValidation")
		if err := fits(path, next, validation == "" || validation == "Strict"); err != nil {
			a.fail(w, 400, "BadRequest", `strict decoding error: unknown field "spec.replica" or cannot be handled as a Deployment: `+err.Error(), name)
			return
		}
		if !dry {
			a.writes = append(a.writes, r.Method+" "+path)
			a.store(path, next)
		}
		_ = json.NewEncoder(w).Encode(next)
	}
}

// fits holds a Deployment against its schema.
func fits(path string, o object, strict bool) error {
	if !strings.Contains(path, "/deployments/") {
		return nil
	}
	text, err := yaml.Marshal(o)
	if err == nil && strict {
		err = yaml.UnmarshalStrict(text, &appsv1.Deployment{})
	} else if err == nil {
		err = yaml.Unmarshal(text, &appsv1.Deployment{})
	}
	return err
}

func inAnyNamespace(object, list string) bool {
	words := strings.Split(object, "/namespaces/")
	if len(words) != 2 || strings.Count(words[1], "/") != 2 {
		return false
	}
	return words[0]+"/"+strings.Split(words[1], "/")[1] == list
}

func merge(old, patch object) object {
	out := maps.Clone(old)
	for k, v := range patch {
		if sub, ok := v.(object); ok {
			have, _ := out[k].(object)
			out[k] = merge(have, sub)
		} else if v == nil {
			delete(out, k)
		} else {
			if out == nil {
				out = object{}
			}
			out[k] = v
		}
	}
	return out
}

// review answers access reviews from the roles and bindings that are stored.
func (a *API) review(w http.ResponseWriter, path, user string, body []byte) {
	var in object
	_ = json.Unmarshal(body, &in)
	spec, _ := in["spec"].(object)
	switch {
	case strings.HasSuffix(path, "/selfsubjectrulesreviews"):
		rules := []object{}
		for _, r := range a.rules(user, fmt.Sprint(spec["namespace"])) {
			rules = append(rules, object{"apiGroups": r.APIGroups, "resources": r.Resources, "verbs": r.Verbs, "resourceNames": r.ResourceNames})
		}
		in["status"] = object{"resourceRules": rules, "nonResourceRules": []object{{"verbs": []string{"get"}, "nonResourceURLs": []string{"/version"}}}, "incomplete": false}
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		in["status"] = object{"userInfo": object{"username": user}}
	default:
		var sar authorizationv1.SubjectAccessReview
		_ = json.Unmarshal(body, &sar)
		at := sar.Spec.ResourceAttributes
		in["status"] = object{"allowed": a.allowed(sar.Spec.User, at.Namespace, at.Verb, at.Group, at.Resource)}
	}
	_ = json.NewEncoder(w).Encode(in)
}

func (a *API) may(user, method, path string) bool {
	if user == "admin" {
		return true
	}
	words := strings.Split(strings.Trim(path, "/"), "/")
	i := slices.Index(words, "namespaces")
	if i < 0 || i+2 >= len(words) {
		return false
	}
	verb := map[string]string{"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}[method]
	group := ""
	if words[0] == "apis" {
		group = words[1]
	}
	return a.allowed(user, words[i+1], verb, group, words[i+2])
}

func (a *API) allowed(user, namespace, verb, group, resource string) bool {
	has := func(list []string, s string) bool { return slices.Contains(list, s) || slices.Contains(list, "*") }
	return slices.ContainsFunc(a.rules(user, namespace), func(r rbacv1.PolicyRule) bool {
		return has(r.Verbs, verb) && has(r.APIGroups, group) && has(r.Resources, resource)
	})
}

// tokenPath is where the fake kubectl gets tokens.
const tokenPath = "/fake/token/"

const rbacPath = "/apis/rbac.authorization.k8s.io/v1"

// rules are what bindings give a user in a namespace.
func (a *API) rules(user, namespace string) []rbacv1.PolicyRule {
	words := strings.Split(user, ":")
	groups := []string{"system:authenticated", "system:serviceaccounts"}
	if len(words) == 4 {
		groups = append(groups, "system:serviceaccounts:"+words[2])
	}
	var rules []rbacv1.PolicyRule
	for path, o := range a.objects {
		cluster := strings.HasPrefix(path, rbacPath+"/clusterrolebindings/")
		if !cluster && !strings.HasPrefix(path, rbacPath+"/namespaces/"+namespace+"/rolebindings/") {
			continue
		}
		var b rbacv1.RoleBinding
		text, _ := json.Marshal(o)
		_ = json.Unmarshal(text, &b)
		if !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == "ServiceAccount" && "system:serviceaccount:"+s.Namespace+":"+s.Name == user || s.Kind == "User" && s.Name == user || s.Kind == "Group" && slices.Contains(groups, s.Name)
		}) {
			continue
		}
		var role rbacv1.Role
		from := rbacPath + "/namespaces/" + b.Namespace + "/roles/" + b.RoleRef.Name
		if b.RoleRef.Kind == "ClusterRole" {
			from = rbacPath + "/clusterroles/" + b.RoleRef.Name
		}
		text, _ = json.Marshal(a.objects[from])
		_ = json.Unmarshal(text, &role)
		rules = append(rules, role.Rules...)
	}
	return rules
}
