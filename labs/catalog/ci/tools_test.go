package ci_test

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
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/cgoa-labs/labctl/labs/catalog/ci/ground"
)

// TestMain makes the test binary its own kubectl and argocd, so that real scripts can call them.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "kubectl":
		os.Exit(report(kubectl(os.Args[1:])))
	case "argocd":
		os.Exit(report(argocd(os.Args[1:])))
	}
	os.Exit(m.Run())
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
	takes := []string{"n", "namespace", "f", "kubeconfig", "o", "as"}
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
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return api{}, err
	}
	return api{clients.CoreV1().RESTClient(), namespace}, nil
}

// pathOf is where an object lives.
func (a api) pathOf(kind, namespace, name string) (collection, path string, err error) {
	if namespace == "" {
		namespace = a.namespace
	}
	in := func(prefix, plural string) (string, string, error) {
		c := prefix + "/namespaces/" + namespace + "/" + plural
		return c, c + "/" + name, nil
	}
	switch strings.ToLower(kind) {
	case "namespace":
		return "/api/v1/namespaces", "/api/v1/namespaces/" + name, nil
	case "serviceaccount":
		return in("/api/v1", "serviceaccounts")
	case "configmap":
		return in("/api/v1", "configmaps")
	case "role":
		return in(rbacPath, "roles")
	case "rolebinding":
		return in(rbacPath, "rolebindings")
	case "clusterrolebinding":
		return rbacPath + "/clusterrolebindings", rbacPath + "/clusterrolebindings/" + name, nil
	case "deployment", "deploy", "deployments", "deployments.apps":
		return in("/apis/apps/v1", "deployments")
	case "application", "app":
		return in("/apis/argoproj.io/v1alpha1", "applications")
	}
	return "", "", fmt.Errorf("no kind %q", kind)
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
	case "create token":
		out, err := a.client.Post().AbsPath("/fake/token", a.namespace, f.words[2], f.value["duration"]).DoRaw(ctx)
		fmt.Println(string(out))
		return err
	case "auth can-i":
		return f.canI(ctx, a)
	case "annotate app":
		_, path, _ := a.pathOf("app", "", f.words[2])
		key, value, _ := strings.Cut(f.words[3], "=")
		patch, _ := json.Marshal(object{"metadata": object{"annotations": object{key: value}}})
		return a.client.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(ctx).Error()
	}
	if f.words[0] == "get" {
		return f.get(ctx, a)
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

func (f flags) get(ctx context.Context, a api) error {
	_, path, err := a.pathOf(f.words[1], "", f.words[2])
	if err != nil {
		return err
	}
	out, err := a.client.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(out, &value); err != nil {
		return err
	}
	for word := range strings.SplitSeq(strings.Trim(strings.TrimPrefix(f.value["o"], "jsonpath="), "{.}"), ".") {
		value = value.(object)[word]
	}
	fmt.Print(value)
	return nil
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
		documents, err := ground.Documents(data)
		if err != nil {
			return nil, err
		}
		for _, document := range documents {
			var o object
			if err := yaml.Unmarshal(document, &o); err != nil {
				return nil, err
			}
			all = append(all, o)
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

// argocd knows terminate-op.
func argocd(args []string) error {
	f := parse(args)
	if len(f.words) != 3 || f.words[1] != "terminate-op" {
		return fmt.Errorf("argocd %q is not known here", args)
	}
	a, err := f.open()
	if err != nil {
		return err
	}
	if a.namespace != "argocd" {
		return fmt.Errorf("configmap argocd-cm not found in namespace %s", a.namespace)
	}
	_, path, _ := a.pathOf("app", "", f.words[2])
	patch, _ := json.Marshal(object{"status": object{"operationState": object{"phase": "Terminating"}}})
	return a.client.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(context.Background()).Error()
}
