// Command tools is kubectl or argocd, by the name that it is called by, as far as labs' scripts need them before labtest's fake API server.
// It is a program of its own, and a small one, because a test calls it a thousand times.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/jsonpath"

	"github.com/cgoa-labs/labctl/labs/labtest/resource"
)

type object = map[string]any

// tokenPath is where the fake API server gives out tokens.
const tokenPath = "/fake/token/"

func main() {
	if filepath.Base(os.Args[0]) == "argocd" {
		os.Exit(argocd(os.Args[1:]))
	}
	os.Exit(report(kubectl(os.Args[1:])))
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// flags are kubectl's arguments, sorted out.
type flags struct {
	words []string
	value map[string]string
}

func parse(args []string) flags {
	f := flags{value: map[string]string{"dry-run": "none"}}
	takes := []string{"n", "namespace", "f", "kubeconfig", "o", "as", "p", "type"}
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(strings.TrimPrefix(args[i], "-"), "-")
		if !isFlag && !strings.HasPrefix(args[i], "-") {
			f.words = append(f.words, args[i])
			continue
		}
		name, value, has := strings.Cut(name, "=")
		if !has && slices.Contains(takes, name) && i+1 < len(args) {
			i++
			value = args[i]
		}
		f.value[name] = value
	}
	if f.value["n"] == "" {
		f.value["n"] = f.value["namespace"]
	}
	return f
}

type api struct {
	client    rest.Interface
	namespace string
}

func (f flags) open() (api, error) {
	path := f.value["kubeconfig"]
	if path == "" {
		path = os.Getenv("KUBECONFIG")
	}
	if path == "" {
		path = os.Getenv("HOME") + "/.kube/config"
	}
	if _, err := os.Stat(path); err != nil {
		return api{}, errors.New("The connection to the server localhost:8080 was refused")
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return api{}, err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return api{}, err
	}
	if f.value["n"] != "" {
		namespace = f.value["n"]
	}
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	config.APIPath, config.GroupVersion = "/api", &v1
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	return api{client, namespace}, err
}

// pathOf is where an object lives.
func (a api) pathOf(kind, namespace, name string) (collection, path string, err error) {
	if namespace == "" {
		namespace = a.namespace
	}
	return resource.Path(kind, namespace, name)
}

func kubectl(args []string) error {
	f := parse(args)
	if len(f.words) == 0 {
		return errors.New("no command")
	}
	if f.words[0] == "config" {
		return f.config()
	}
	a, err := f.open()
	if err != nil {
		return err
	}
	ctx := context.Background()
	switch strings.Join(f.words[:min(2, len(f.words))], " ") {
	case "apply", "create", "auth reconcile":
		return f.apply(ctx, a)
	case "create namespace":
		return f.applyOne(ctx, a, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": f.words[2]}})
	case "create configmap":
		key, value, _ := strings.Cut(f.value["from-literal"], "=")
		return f.applyOne(ctx, a, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": f.words[2], "namespace": a.namespace}, "data": object{key: value}})
	case "create token":
		out, err := a.client.Post().AbsPath(tokenPath, a.namespace, f.words[2], f.value["duration"]).DoRaw(ctx)
		fmt.Println(string(out))
		return err
	case "auth can-i":
		return f.canI(ctx, a)
	case "annotate app":
		key, value, _ := strings.Cut(f.words[3], "=")
		patch, _ := json.Marshal(object{"metadata": object{"annotations": object{key: value}}})
		return a.patch(ctx, "app", f.words[2], patch)
	}
	switch f.words[0] {
	case "get":
		return f.get(ctx, a)
	case "patch":
		return a.patch(ctx, f.words[1], f.words[2], []byte(f.value["p"]))
	case "delete":
		_, path, err := a.pathOf(f.words[1], "", f.words[2])
		if err != nil {
			return err
		}
		return a.client.Delete().AbsPath(path).Do(ctx).Error()
	case "wait":
		return f.wait(ctx, a)
	}
	return fmt.Errorf("kubectl %q is not known here", f.words)
}

func (f flags) canI(ctx context.Context, a api) error {
	resource, group, _ := strings.Cut(f.words[3], ".")
	body, _ := json.Marshal(object{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": object{"user": f.value["as"],
		"resourceAttributes": object{"namespace": a.namespace, "verb": f.words[2], "group": group, "resource": resource}}})
	out, err := a.client.Post().AbsPath("/apis/authorization.k8s.io/v1/subjectaccessreviews").Body(body).DoRaw(ctx)
	if err != nil {
		return err
	}
	if bytes.Contains(out, []byte(`"allowed":true`)) {
		fmt.Println("yes")
		return nil
	}
	fmt.Println("no")
	return errors.New("no")
}

func (a api) patch(ctx context.Context, kind, name string, patch []byte) error {
	_, path, err := a.pathOf(kind, "", name)
	if err != nil {
		return err
	}
	return a.client.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(ctx).Error()
}

// read renders an object by a JSONPath template.
func (a api) read(ctx context.Context, kind, name, template string) (string, error) {
	_, path, err := a.pathOf(kind, "", name)
	if err != nil {
		return "", err
	}
	data, err := a.client.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return "", err
	}
	parser := jsonpath.New("").AllowMissingKeys(true)
	if err := parser.Parse(template); err != nil {
		return "", err
	}
	var out strings.Builder
	err = parser.Execute(&out, value)
	return out.String(), err
}

func (f flags) get(ctx context.Context, a api) error {
	template, ok := strings.CutPrefix(f.value["o"], "jsonpath=")
	if !ok || len(f.words) != 3 {
		return fmt.Errorf("kubectl %q is not known here", f.words)
	}
	out, err := a.read(ctx, f.words[1], f.words[2], template)
	fmt.Print(out)
	return err
}

// wait knows --for=jsonpath={...}=value of one object. Here everything happens when it is looked at.
func (f flags) wait(ctx context.Context, a api) error {
	kind, name, _ := strings.Cut(f.words[1], "/")
	template, want, ok := strings.Cut(strings.TrimPrefix(f.value["for"], "jsonpath="), "}=")
	if !ok {
		return fmt.Errorf("kubectl wait for %q is not known here", f.value["for"])
	}
	const looks = 5
	var got string
	for range looks {
		var err error
		if got, err = a.read(ctx, kind, name, template+"}"); err != nil {
			return err
		}
		if got == want {
			return nil
		}
	}
	return fmt.Errorf("timed out waiting for the condition on %s: it is %q", f.words[1], got)
}

// manifests are the documents of -f: standard input, a file, or a folder's own files.
func (f flags) manifests() ([]object, error) {
	files := []string{f.value["f"]}
	if info, err := os.Stat(files[0]); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(files[0], "*.yaml"))
		if len(files) == 0 {
			return nil, errors.New("no objects passed to apply")
		}
	}
	var all []object
	for _, file := range files {
		var data []byte
		var err error
		if file == "-" {
			data, err = io.ReadAll(os.Stdin)
		} else {
			data, err = os.ReadFile(file)
		}
		if err != nil {
			return nil, err
		}
		for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
			var o object
			err := decoder.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			if o != nil {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

func (f flags) apply(ctx context.Context, a api) error {
	manifests, err := f.manifests()
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range manifests {
		errs = append(errs, f.applyOne(ctx, a, o))
	}
	return errors.Join(errs...)
}

func (f flags) applyOne(ctx context.Context, a api, o object) error {
	meta, _ := o["metadata"].(object)
	namespace, _ := meta["namespace"].(string)
	if namespace != "" && f.value["n"] != "" && namespace != f.value["n"] {
		return errors.New("the namespace from the provided object does not match")
	}
	collection, path, err := a.pathOf(fmt.Sprint(o["kind"]), namespace, fmt.Sprint(meta["name"]))
	if err != nil {
		return err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = a.client.Get().AbsPath(path).DoRaw(ctx)
	there := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if f.value["dry-run"] == "client" {
		if f.value["o"] == "json" || f.value["o"] == "yaml" { // JSON is YAML
			fmt.Println(string(body))
			return nil
		}
		fmt.Println(path, "created (dry run)")
		return nil
	}
	req := a.client.Post().AbsPath(collection)
	if there {
		req = a.client.Patch(types.MergePatchType).AbsPath(path)
	}
	if f.value["dry-run"] == "server" {
		req = req.Param("dryRun", "All")
	}
	if f.value["validate"] == "false" {
		req = req.Param("fieldValidation", "Ignore")
	}
	if err := req.Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("Error from server: %w", err)
	}
	fmt.Println(path, "done")
	return nil
}

func (f flags) config() error {
	path := f.value["kubeconfig"]
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		config = clientcmdapi.NewConfig()
	}
	name := ""
	if len(f.words) > 2 {
		name = f.words[2]
	}
	switch f.words[1] {
	case "set-cluster":
		ca, err := os.ReadFile(f.value["certificate-authority"])
		if err != nil {
			return err
		}
		config.Clusters[name] = &clientcmdapi.Cluster{Server: f.value["server"], CertificateAuthorityData: ca}
	case "set-credentials":
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: f.value["token"]}
	case "set-context":
		if name == "" {
			config.Contexts[config.CurrentContext].Namespace = f.value["namespace"]
		} else {
			config.Contexts[name] = &clientcmdapi.Context{Cluster: f.value["cluster"], AuthInfo: f.value["user"], Namespace: f.value["namespace"]}
		}
	case "use-context":
		config.CurrentContext = name
	default:
		return fmt.Errorf("kubectl config %q is not known here", f.words)
	}
	return clientcmd.WriteToFile(*config, path)
}

// argocd knows terminate-op and rollback in core mode, and speaks as the real one does.
func argocd(args []string) int {
	err := argocdApp(context.Background(), parse(args))
	if err == nil {
		return 0
	}
	line, _ := json.Marshal(map[string]string{"level": "fatal", "msg": err.Error(), "time": "2026-01-01T00:00:00Z"})
	fmt.Fprintln(os.Stderr, string(line))
	const failed = 20
	return failed
}

func argocdApp(ctx context.Context, f flags) error {
	if _, core := f.value["core"]; !core || len(f.words) < 3 || f.words[0] != "app" {
		return fmt.Errorf("argocd %q is not known here", f.words)
	}
	a, err := f.open()
	if err != nil {
		return err
	}
	if a.namespace != "argocd" {
		return errors.New(`configmap "argocd-cm" not found`)
	}
	switch f.words[1] {
	case "terminate-op":
		return a.patch(ctx, "app", f.words[2], []byte(`{"status":{"operationState":{"phase":"Terminating"}}}`))
	case "rollback":
		return a.rollback(ctx, f.words[2], f.words[3])
	}
	return fmt.Errorf("argocd %q is not known here", f.words)
}

func (a api) rollback(ctx context.Context, app, id string) error {
	history, err := a.read(ctx, "app", app, "{range .status.history[*]}{.id}={.revision} {end}")
	if err != nil {
		return err
	}
	revision := ""
	for entry := range strings.FieldsSeq(history) {
		if sha, ok := strings.CutPrefix(entry, id+"="); ok {
			revision = sha
		}
	}
	if revision == "" {
		return fmt.Errorf("application '%s' does not have deployment id '%s' in history", app, id)
	}
	automated, err := a.read(ctx, "app", app, "{.spec.syncPolicy.automated}")
	if err != nil {
		return err
	}
	if automated != "" {
		return errors.New("rpc error: code = FailedPrecondition desc = rollback cannot be initiated when auto-sync is enabled")
	}
	return a.patch(ctx, "app", app, fmt.Appendf(nil, `{"operation":{"sync":{"revision":%q}}}`, revision))
}
