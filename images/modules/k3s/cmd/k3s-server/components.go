package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletoptions "k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// components holds the parsed options of every Kubernetes component. Their own cobra commands cannot share a process: each
// installs the signal handler, which panics the second time. So the options are parsed here and the exported Run
// functions are called with one shared context.
type components struct {
	api         *apiserveroptions.ServerRunOptions
	controllers *controlleroptions.KubeControllerManagerOptions
	sched       *scheduleroptions.Options
	kubeletF    *kubeletoptions.KubeletFlags
	kubeletC    *kubeletconfig.KubeletConfiguration
	proxy       *kubeproxy.Options
}

func newComponents(cfg config, p *pki) (*components, error) {
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	c := &components{api: apiserveroptions.NewServerRunOptions(), sched: scheduleroptions.NewOptions(), kubeletF: kubeletoptions.NewKubeletFlags(), proxy: kubeproxy.NewOptions()}
	var err error
	if c.controllers, err = controlleroptions.NewKubeControllerManagerOptions(); err != nil {
		return nil, err
	}
	if c.kubeletC, err = kubeletoptions.NewKubeletConfiguration(); err != nil {
		return nil, err
	}

	apiFlags := c.api.Flags()
	if err := parse("kube-apiserver", named(apiFlags), apiServerArgs(cfg, p), cfg.APIServerArgs); err != nil {
		return nil, err
	}
	controllerFlags := c.controllers.Flags(controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases())
	c.controllers.ParsedFlags = &controllerFlags
	if err := parse("kube-controller-manager", named(controllerFlags), controllerArgs(cfg, p), cfg.ControllerArgs); err != nil {
		return nil, err
	}
	if err := parse("kube-scheduler", named(*c.sched.Flags), schedulerArgs(cfg), cfg.SchedulerArgs); err != nil {
		return nil, err
	}
	kubeletFlags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	c.kubeletF.AddFlags(kubeletFlags)
	kubeletoptions.AddKubeletConfigFlags(kubeletFlags, c.kubeletC)
	kubeletoptions.AddGlobalFlags(kubeletFlags) // cAdvisor's
	if err := parse("kubelet", kubeletFlags, kubeletArgs(cfg, p), cfg.KubeletArgs); err != nil {
		return nil, err
	}
	proxyFlags := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	c.proxy.AddFlags(proxyFlags)
	if err := parse("kube-proxy", proxyFlags, proxyArgs(cfg), cfg.ProxyArgs); err != nil {
		return nil, err
	}
	if err := c.proxy.Complete(proxyFlags); err != nil {
		return nil, fmt.Errorf("kube-proxy: %w", err)
	}
	if err := c.proxy.Validate(); err != nil {
		return nil, fmt.Errorf("kube-proxy: %w", err)
	}
	// One registry of feature gates and versions serves all components, so it is set once, after all flags are known.
	if err := c.api.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	if err := logsapi.ValidateAndApply(c.api.Logs, c.api.GenericServerRunOptions.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)); err != nil {
		return nil, err
	}
	return c, nil
}

func named(sets cliflag.NamedFlagSets) *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all
}

// parse parses the server's own flags first and then those of config.yaml, which win.
func parse(name string, flags *pflag.FlagSet, own, extra []string) error {
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags.SetOutput(io.Discard) // it would say at every start that the kubelet's flags are deprecated
	args := append([]string{}, own...)
	for _, arg := range extra {
		args = append(args, "--"+strings.TrimPrefix(arg, "--"))
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: unexpected argument %q", name, flags.Arg(0))
	}
	return nil
}

func apiServerArgs(cfg config, p *pki) []string {
	return []string{
		"--advertise-address=" + cfg.NodeIP, "--secure-port=6443", "--bind-address=0.0.0.0", "--etcd-servers=unix:///placeholder",
		"--service-cluster-ip-range=" + cfg.ServiceCIDR, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + p.clientCA.crt, "--tls-cert-file=" + p.apiServer.crt, "--tls-private-key-file=" + p.apiServer.key,
		"--kubelet-certificate-authority=" + p.serverCA.crt, "--kubelet-client-certificate=" + p.apiToKubelet.crt, "--kubelet-client-key=" + p.apiToKubelet.key,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + cfg.ClusterDomain,
		"--service-account-key-file=" + p.serviceKey, "--service-account-signing-key-file=" + p.serviceKey,
		"--requestheader-client-ca-file=" + p.frontProxyCA.crt, "--requestheader-allowed-names=system:auth-proxy",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + p.requestClient.crt, "--proxy-client-key-file=" + p.requestClient.key,
		"--profiling=false", "--v=0",
	}
}

func controllerArgs(cfg config, p *pki) []string {
	return []string{
		"--kubeconfig=" + cfg.kubeconfig("controller"), "--secure-port=0", "--leader-elect=false",
		"--allocate-node-cidrs=true", "--cluster-cidr=" + cfg.ClusterCIDR, "--service-cluster-ip-range=" + cfg.ServiceCIDR,
		"--cluster-signing-cert-file=" + p.clientCA.crt, "--cluster-signing-key-file=" + p.clientCA.key,
		"--root-ca-file=" + p.serverCA.crt, "--service-account-private-key-file=" + p.serviceKey,
		"--use-service-account-credentials=true", "--profiling=false",
	}
}

func schedulerArgs(cfg config) []string {
	return []string{"--kubeconfig=" + cfg.kubeconfig("scheduler"), "--secure-port=0", "--leader-elect=false", "--profiling=false"}
}

func kubeletArgs(cfg config, p *pki) []string {
	return []string{
		"--kubeconfig=" + cfg.kubeconfig("kubelet"), "--hostname-override=" + cfg.NodeName, "--node-ip=" + cfg.NodeIP,
		"--container-runtime-endpoint=unix://" + containerdSock, "--cgroup-driver=cgroupfs", "--fail-swap-on=false",
		"--client-ca-file=" + p.clientCA.crt, "--anonymous-auth=false", "--authentication-token-webhook=true", "--authorization-mode=Webhook",
		"--tls-cert-file=" + p.kubeletServer.crt, "--tls-private-key-file=" + p.kubeletServer.key,
		"--cluster-dns=" + cfg.ClusterDNS, "--cluster-domain=" + cfg.ClusterDomain, "--read-only-port=0", "--healthz-port=0",
		// The guest has no registry to pull from again: an image that is collected is gone for good.
		"--image-gc-high-threshold=100", "--image-gc-low-threshold=99",
		"--make-iptables-util-chains=false",
		"--serialize-image-pulls=false", "--rotate-certificates=false", "--root-dir=/var/lib/kubelet", "--volume-plugin-dir=/var/lib/kubelet/volumeplugins",
	}
}

func proxyArgs(cfg config) []string {
	return []string{
		"--kubeconfig=" + cfg.kubeconfig("kube-proxy"), "--hostname-override=" + cfg.NodeName, "--cluster-cidr=" + cfg.ClusterCIDR,
		"--proxy-mode=nftables", "--healthz-bind-address=", "--metrics-bind-address=", "--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
	}
}

func (c *components) apiServer(ctx context.Context, etcd string) error {
	c.api.Etcd.StorageConfig.Transport.ServerList = []string{etcd}
	completed, err := c.api.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	return apiserver.Run(ctx, completed)
}

func (c *components) controllerManager(ctx context.Context) error {
	cfg, err := c.controllers.Config(ctx, controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases())
	if err != nil {
		return err
	}
	return controllermanager.Run(ctx, cfg.Complete())
}

func (c *components) scheduler(ctx context.Context) error {
	var err error
	if c.sched.InformerName, err = cache.NewInformerName("kube-scheduler"); err != nil {
		return err
	}
	cfg, sched, err := scheduler.Setup(ctx, c.sched)
	if err != nil {
		return err
	}
	return scheduler.Run(ctx, cfg, sched)
}

func (c *components) kubelet(ctx context.Context) error {
	if err := kubeletoptions.ValidateKubeletFlags(c.kubeletF); err != nil {
		return err
	}
	server := &kubeletoptions.KubeletServer{KubeletFlags: *c.kubeletF, KubeletConfiguration: *c.kubeletC}
	deps, err := kubelet.UnsecuredDependencies(ctx, server, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	return kubelet.Run(ctx, server, deps, utilfeature.DefaultFeatureGate)
}

func (c *components) kubeProxy(ctx context.Context) error {
	// kube-proxy's Run never watches its context; ending the process ends it.
	errs := make(chan error, 1)
	go func() { errs <- c.proxy.Run(ctx) }()
	select {
	case err := <-errs:
		return errors.Join(errors.New("kube-proxy ended"), err)
	case <-ctx.Done():
		return nil
	}
}
