package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// fieldManager owns what is deployed from the manifests folder, under the name that k3s uses.
const fieldManager = "deploy@k3s"

// rescan is how often the manifests folder is looked at again.
const rescan = 15 * time.Second

// stateName is the ConfigMap in kube-system that remembers the digest of each deployed file.
const stateName = "k3s-deployed-manifests"

func waitForAPI(ctx context.Context, timeout time.Duration) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfigPath)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 200, 400
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		_, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the API server did not get ready: %w", errors.Join(last, context.Cause(ctx)))
	}
	return cfg, nil
}

// deployManifests applies every *.yaml of the manifests folder whose content it has not applied yet, and goes on looking
// for new or changed ones, as k3s does.
func deployManifests(ctx context.Context, cfg config, admin *rest.Config) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(admin)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	log := klog.Background()
	for {
		if err := deployOnce(ctx, cfg, client, dyn, mapper); err != nil && ctx.Err() == nil {
			log.Error(err, "Deploying manifests")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rescan):
		}
	}
}

func deployOnce(ctx context.Context, cfg config, client kubernetes.Interface, dyn dynamic.Interface, mapper meta.ResettableRESTMapper) error {
	files, err := filepath.Glob(filepath.Join(cfg.manifestDir(), "*.yaml"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	var state *corev1.ConfigMap
	var failures []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		sum := sha256.Sum256(data)
		name, digest := filepath.Base(file), hex.EncodeToString(sum[:])
		if deployed[name] == digest {
			continue
		}
		if state == nil {
			if state, err = loadState(ctx, client); err != nil {
				return err
			}
		}
		if state.Data[name] != digest {
			if err := applyFile(ctx, dyn, mapper, data, applied(digest)); err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", name, err))
				continue
			}
			if state.Data == nil {
				state.Data = map[string]string{}
			}
			state.Data[name] = digest
			if state, err = client.CoreV1().ConfigMaps("kube-system").Update(ctx, state, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		deployed[name] = digest
	}
	return errors.Join(failures...)
}

// appliedObjects is, by file digest, which objects of a file that could not be deployed whole were: they are not applied again at
// the next try, since some, such as large definitions, cost the API server a lot.
var appliedObjects = map[string]map[int]bool{}

func applied(digest string) map[int]bool {
	if appliedObjects[digest] == nil {
		appliedObjects[digest] = map[int]bool{}
	}
	return appliedObjects[digest]
}

// deployed is what this process knows to be deployed, so that an idle server asks the API server nothing.
var deployed = map[string]string{}

func loadState(ctx context.Context, client kubernetes.Interface) (*corev1.ConfigMap, error) {
	maps := client.CoreV1().ConfigMaps("kube-system")
	state, err := maps.Get(ctx, stateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: stateName}}, metav1.CreateOptions{})
	}
	return state, err
}

func applyFile(ctx context.Context, dyn dynamic.Interface, mapper meta.ResettableRESTMapper, data []byte, done map[int]bool) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var failures []error
	for n := 0; ; n++ {
		var obj unstructured.Unstructured
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if len(obj.Object) == 0 || done[n] {
			continue
		}
		if err := applyObject(ctx, dyn, mapper, &obj); err != nil {
			failures = append(failures, fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err))
			continue
		}
		done[n] = true
	}
	return errors.Join(failures...)
}

func applyObject(ctx context.Context, dyn dynamic.Interface, mapper meta.ResettableRESTMapper, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	// A kind whose definition was applied a moment ago is served a little later.
	// The first request to a new kind waits while the server compiles its definition, which can take a minute under emulation.
	return wait.PollUntilContextTimeout(ctx, time.Second, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			mapper.Reset()
			return false, nil
		}
		if err != nil {
			return false, err
		}
		var target dynamic.ResourceInterface = dyn.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			ns := obj.GetNamespace()
			if ns == "" {
				ns = "default"
			}
			target = dyn.Resource(mapping.Resource).Namespace(ns)
		}
		body, err := obj.MarshalJSON()
		if err != nil {
			return false, err
		}
		force := true
		_, err = target.Patch(ctx, obj.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
		if apierrors.IsNotFound(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) {
			return false, nil
		}
		return err == nil, err
	})
}
