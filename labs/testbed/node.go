package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// pretender does to the API server what a kubelet does, and runs nothing: it keeps the node Ready, says that pods run, and lets them go.
type pretender struct {
	client kubernetes.Interface
	say    func(string)
	// images are those that the node had when the image was made.
	images map[string]bool
}

// beat is how often a node says that it is alive, and patience how long one request may take.
const (
	beat     = 20 * time.Second
	patience = 20 * time.Second
)

// start makes the node Ready, and goes on with that and with its pods until ctx ends.
func (p *pretender) start(ctx context.Context) error {
	n, err := p.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	p.images = map[string]bool{}
	for _, image := range n.Status.Images {
		for _, tag := range image.Names {
			p.images[whole(tag)] = true
		}
	}
	if err := p.alive(ctx); err != nil {
		return err
	}
	go func() {
		for tick := time.NewTicker(beat); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				// An API server that is away for a moment hears of the node again in the next.
				if err := p.alive(ctx); err != nil && ctx.Err() == nil {
					p.say("node: " + err.Error())
				}
			}
		}
	}()
	mine := informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=" + node })
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, mine)
	pods := factory.Core().V1().Pods().Informer()
	see := func(o any) {
		if pod, ok := o.(*corev1.Pod); ok {
			if err := p.tend(ctx, pod); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				p.say(fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, err))
			}
		}
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, now any) { see(now) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return context.Cause(ctx)
}

// whole is an image's full name, since short ones are the same image.
func whole(image string) string {
	ref, err := name.ParseReference(image)
	if err != nil {
		return image
	}
	return ref.Name()
}

// alive renews the node's lease and its conditions.
func (p *pretender) alive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now := time.Now()
	conditions := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Testbed", Message: "no kubelet: pods are only said to run",
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now)}}
	if err := p.status(ctx, map[string]any{"conditions": conditions}, func(patch []byte) error {
		_, err := p.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}); err != nil {
		return err
	}
	leases := p.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renewed := metav1.NewMicroTime(now)
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node), LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &renewed}}, metav1.CreateOptions{})
		return err
	} else if err != nil {
		return err
	}
	lease.Spec.RenewTime = &renewed
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func (p *pretender) status(_ context.Context, status map[string]any, patch func([]byte) error) error {
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return patch(data)
}

// tend does for a pod what is next: it goes, it runs, or it waits for an image that is nowhere.
func (p *pretender) tend(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := p.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
	missing := p.missing(pod)
	if ready(pod) == (len(missing) == 0) && pod.Status.Phase != corev1.PodPending || len(missing) > 0 && waits(pod) {
		return nil
	}
	return p.status(ctx, p.running(pod, missing), func(patch []byte) error {
		_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
}

// missing are a pod's images that the node does not have.
func (p *pretender) missing(pod *corev1.Pod) []string {
	var all []string
	for _, c := range pod.Spec.Containers {
		if !p.images[whole(c.Image)] {
			all = append(all, c.Image)
		}
	}
	return all
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// waits says whether a pod is already said to wait for an image.
func waits(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason == noImage {
			return true
		}
	}
	return false
}

// noImage is a kubelet's word for an image that it cannot get.
const noImage = "ImagePullBackOff"

// running is the status of a pod that runs, or that would but for its missing images.
func (p *pretender) running(pod *corev1.Pod, missing []string) map[string]any {
	now := metav1.Now()
	truth, phase := corev1.ConditionTrue, corev1.PodRunning
	if len(missing) > 0 {
		truth, phase = corev1.ConditionFalse, corev1.PodPending
	}
	var containers []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}
		if !p.images[whole(c.Image)] {
			s.Ready, s.Started = false, ptr.To(false)
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: noImage, Message: "the testbed has no image " + strings.TrimSpace(c.Image)}}
		}
		containers = append(containers, s)
	}
	condition := func(kind corev1.PodConditionType, truth corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: truth, LastTransitionTime: now}
	}
	return map[string]any{
		"phase": phase, "startTime": now, "hostIP": address, "podIP": podIP(pod), "podIPs": []corev1.PodIP{{IP: podIP(pod)}}, "containerStatuses": containers,
		"conditions": []corev1.PodCondition{condition(corev1.PodInitialized, corev1.ConditionTrue), condition(corev1.ContainersReady, truth), condition(corev1.PodReady, truth)},
	}
}

// podIP is an address for a pod, of the cluster's range and the same each time.
func podIP(pod *corev1.Pod) string {
	var sum uint16
	for _, b := range []byte(pod.UID) {
		sum = sum*31 + uint16(b)
	}
	return fmt.Sprintf("10.42.%d.%d", 1+sum>>8&0x7f, 1+sum&0x7f)
}
