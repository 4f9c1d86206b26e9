package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cgoa-labs/labctl/bootstrap"
)

// service is a process that is started again when it ends.
type service struct {
	name string
	argv []string
	env  []string
	// root is its root folder where that is not the guest's.
	root string
}

// services are the processes of a testbed.
type services struct {
	output io.Writer
	say    func(string)
}

// The shortest and the longest time that a process stays away.
const (
	soon = 250 * time.Millisecond
	late = 5 * time.Second
)

// keep starts a process, and again whenever it ends, until ctx does.
func (s services) keep(ctx context.Context, what service) {
	go func() {
		for pause := soon; ctx.Err() == nil; pause = min(2*pause, late) {
			err := s.run(ctx, what)
			if ctx.Err() == nil {
				s.say(fmt.Sprintf("%s has ended (%v) and is started again", what.name, err))
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}()
}

func (s services) run(ctx context.Context, what service) error {
	argv := what.argv
	if what.root != "" {
		argv = append([]string{"chroot", what.root}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), what.env...)
	cmd.Stdout, cmd.Stderr = s.output, s.output
	return cmd.Run()
}

// part is a workload of the platform whose process really runs, as its manifest says.
type part struct {
	namespace, name string
	stateful        bool
	port            int
	// inImage says that it runs on the files of the platform's container images, and not on the guest's.
	inImage bool
	// entrypoint is the image's, where the manifest gives arguments to it.
	entrypoint string
}

// Ports of the platform's processes, by their manifests.
const (
	redisPort      = 6379
	repoServerPort = 8081
	controllerPort = 8082
)

var parts = []part{
	{namespace: bootstrap.ArgoNamespace, name: "argocd-redis", port: redisPort, inImage: true, entrypoint: redisServer},
	{namespace: bootstrap.ArgoNamespace, name: "argocd-repo-server", port: repoServerPort, inImage: true},
	{namespace: bootstrap.ArgoNamespace, name: "argocd-application-controller", port: controllerPort, inImage: true, stateful: true},
	{namespace: bootstrap.GitNamespace, name: bootstrap.GitDaemon, port: bootstrap.GitPort},
}

// service is the workload's first container as a process.
func (p part) service(ctx context.Context, client kubernetes.Interface) (service, error) {
	none := service{}
	var pod corev1.PodSpec
	if p.stateful {
		set, err := client.AppsV1().StatefulSets(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return none, err
		}
		pod = set.Spec.Template.Spec
	} else {
		set, err := client.AppsV1().Deployments(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return none, err
		}
		pod = set.Spec.Template.Spec
	}
	c := pod.Containers[0]
	env, err := environment(ctx, client, p.namespace, c)
	if err != nil {
		return none, err
	}
	argv := slices.Concat(c.Command, c.Args)
	for i, word := range argv {
		argv[i] = reference.ReplaceAllStringFunc(word, func(all string) string { return env[reference.FindStringSubmatch(all)[1]] })
	}
	if p.entrypoint != "" {
		argv = append([]string{p.entrypoint}, argv...)
	}
	s := service{name: p.name, argv: argv}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		s.env = append(s.env, name+"="+env[name])
	}
	if p.inImage {
		s.root = imageRoot
	}
	return s, nil
}

// argoKubeconfig is the administrator's, in Argo CD's namespace: its processes have no service account's files.
const argoKubeconfig = "/run/labctl-testbed.yaml"

func writeArgoKubeconfig() error {
	config, err := clientcmd.LoadFromFile(bootstrap.Kubeconfig)
	if err != nil {
		return err
	}
	config.Contexts[config.CurrentContext].Namespace = bootstrap.ArgoNamespace
	return clientcmd.WriteToFile(*config, argoKubeconfig)
}

// reference is how a container's arguments name its variables.
var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// environment is a container's, with what it takes from ConfigMaps and Secrets. What is optional and not there stays away.
func environment(ctx context.Context, client kubernetes.Interface, namespace string, c corev1.Container) (map[string]string, error) {
	env := map[string]string{
		"ARGOCD_FAKE_IN_CLUSTER": "true", "KUBECONFIG": argoKubeconfig,
	}
	for _, e := range c.Env {
		var value string
		var there bool
		var err error
		optional := func(o *bool) bool { return o != nil && *o }
		switch from := e.ValueFrom; {
		case from == nil:
			value, there = e.Value, true
		case from.ConfigMapKeyRef != nil:
			var m *corev1.ConfigMap
			if m, err = client.CoreV1().ConfigMaps(namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{}); err == nil {
				value, there = m.Data[from.ConfigMapKeyRef.Key]
			}
			err = unless(optional(from.ConfigMapKeyRef.Optional), there, err)
		case from.SecretKeyRef != nil:
			var m *corev1.Secret
			if m, err = client.CoreV1().Secrets(namespace).Get(ctx, from.SecretKeyRef.Name, metav1.GetOptions{}); err == nil {
				var data []byte
				data, there = m.Data[from.SecretKeyRef.Key]
				value = string(data)
			}
			err = unless(optional(from.SecretKeyRef.Optional), there, err)
		}
		if err != nil {
			return nil, fmt.Errorf("variable %s of container %s: %w", e.Name, c.Name, err)
		}
		if there {
			env[e.Name] = value
		}
	}
	return env, nil
}

// unless forgives what may be missing.
func unless(optional, there bool, err error) error {
	switch {
	case there || optional && (err == nil || apierrors.IsNotFound(err)):
		return nil
	case err == nil:
		return errors.New("its key is not there")
	}
	return err
}
