// Package testbed is a guest without a machine: a golden image's own files, with its Kubernetes, Argo CD and git daemon as plain processes in
// namespaces of their own, at the speed of this machine. Labs are proved in it. There is no kubelet: pods are said to run where the image has
// what they run, and only what the labs stand on really does. Where it and a VM disagree, the VM is right.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cgoa-labs/labctl/bootstrap"
	"github.com/cgoa-labs/labctl/labs/check"
)

// node is the guest's node.
const node = "lab"

// startTime bounds the way to a testbed that is ready.
const startTime = 3 * time.Minute

// Options say of what to make a testbed.
type Options struct {
	// Disk is a golden image's disk, which is only read.
	Disk string
	// Dir is an empty folder to work on. What is mounted on it is seen by nobody else.
	Dir string
	// Say receives what goes on, and Output what the processes print.
	Say    func(string)
	Output io.Writer
}

// Run is a testbed until ctx ends; ready is called once, when labs can be proved in it. It must be the first process in namespaces of its own, which
// is what ends every other process with it.
func Run(ctx context.Context, o Options, ready func()) error {
	if os.Getpid() != 1 {
		return errors.New("a testbed needs namespaces of its own, with this as their first process")
	}
	if err := enter(o.Disk, o.Dir); err != nil {
		return err
	}
	// The parent's settings must not reach the guest's programs.
	os.Clearenv()
	for name, value := range map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	s := services{output: o.Output, say: o.Say}
	o.Say("Kubernetes")
	if err := withoutAgent(); err != nil {
		return err
	}
	s.keep(ctx, service{name: "k3s", argv: []string{"k3s", "server"}})
	client, err := connect(ctx)
	if err != nil {
		return err
	}
	n := pretender{client: client, say: o.Say}
	if err := n.start(ctx); err != nil {
		return err
	}
	if err := (forwards{}).serve(ctx, o.Say); err != nil {
		return err
	}
	if err := writeArgoKubeconfig(); err != nil {
		return err
	}
	if err := unpack(); err != nil {
		return err
	}
	for _, p := range parts {
		o.Say(p.name)
		made, err := p.service(ctx, client)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		s.keep(ctx, made)
	}
	for _, p := range parts {
		if err := answers(ctx, p.name, p.port); err != nil {
			return err
		}
	}
	ready()
	<-ctx.Done()
	return context.Cause(ctx)
}

// withoutAgent tells k3s to leave the node's part away: containerd, kubelet and kube-proxy want more of a machine than namespaces have.
func withoutAgent() (err error) {
	f, err := os.OpenFile("/etc/rancher/k3s/config.yaml", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString("\ndisable-agent: true\n")
	return err
}

// connect waits for the API server, and for the node that the image was made with.
func connect(ctx context.Context) (*kubernetes.Clientset, error) {
	var client *kubernetes.Clientset
	_, err := wait(ctx, "Kubernetes", func(ctx context.Context) (check.Outcome, error) {
		not := func(err error) (check.Outcome, error) {
			return check.NotYet("the API server knows node "+node, err.Error(), ""), nil
		}
		config, err := clientcmd.BuildConfigFromFlags("", bootstrap.Kubeconfig)
		if err != nil {
			return not(err)
		}
		config.QPS = -1
		if client, err = kubernetes.NewForConfig(config); err != nil {
			return not(err)
		}
		if _, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return check.Outcome{}, fmt.Errorf("the image's cluster has no node %s: %w", node, err)
		} else if err != nil {
			return not(err)
		}
		return check.Pass(""), nil
	})
	return client, err
}

// answers waits until something listens.
func answers(ctx context.Context, name string, port int) error {
	_, err := wait(ctx, name, func(ctx context.Context) (check.Outcome, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return check.NotYet("it listens", err.Error(), ""), nil
		}
		return check.Pass(""), conn.Close()
	})
	return err
}

func wait(ctx context.Context, what string, ask func(context.Context) (check.Outcome, error)) (check.Result, error) {
	return check.Wait{Timeout: startTime, Attempt: 20 * time.Second, First: 100 * time.Millisecond, Most: time.Second}.
		For(ctx, check.Check{ID: "testbed", Title: what, Ask: ask})
}
