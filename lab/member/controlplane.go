package member

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllermanageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

const (
	podCIDR       = "10.244.0.1/16"
	serviceIssuer = "https://kubernetes.default.svc"
)

// enabledControllers are the controllers that a cluster without clouds, volume plugins and
// kubelets needs. The others either have nothing to act on (attach/detach, expander, IPAM,
// routes, device taints, resource claims) or only clean up after weeks.
var enabledControllers = []string{
	"serviceaccount-token-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller",
	"namespace-controller", "garbage-collector-controller", "resourcequota-controller",
	"deployment-controller", "replicaset-controller", "replicationcontroller-controller",
	"statefulset-controller", "daemonset-controller", "job-controller", "cronjob-controller",
	"ttl-after-finished-controller", "disruption-controller", "horizontal-pod-autoscaler-controller",
	"endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller",
	"pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller",
	"persistentvolume-binder-controller", "persistentvolumeclaim-protection-controller",
	"persistentvolume-protection-controller", "ephemeral-volume-controller",
	"clusterrole-aggregation-controller", "validatingadmissionpolicy-status-controller",
	"certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
}

// controlPlane holds the three components, configured but not started. They share one
// feature gate and one version registry, so they are configured together: a component
// registers its features when its options are created, and the first one that creates its
// flags closes the registry.
type controlPlane struct {
	api       *apiserveroptions.ServerRunOptions
	manager   *controllermanageroptions.KubeControllerManagerOptions
	scheduler *scheduleroptions.Options
}

func newControlPlane(o MemberOptions, keys *pki, kubeconfig string) (*controlPlane, error) {
	manager, err := controllermanageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("kube-controller-manager options: %w", err)
	}
	c := &controlPlane{api: apiserveroptions.NewServerRunOptions(), manager: manager, scheduler: scheduleroptions.NewOptions()}
	audit, err := prepareAuditArgs(o)
	if err != nil {
		return nil, err
	}
	managerFlags := manager.Flags(controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases())
	for _, component := range []struct {
		name  string
		flags cliflag.NamedFlagSets
		args  []string
	}{
		{"kube-apiserver", c.api.Flags(), append(apiServerArgs(o, keys), audit...)},
		{"kube-controller-manager", managerFlags, controllerManagerArgs(keys, kubeconfig)},
		{"kube-scheduler", *c.scheduler.Flags, schedulerArgs(kubeconfig)},
	} {
		flags := pflag.NewFlagSet(component.name, pflag.ContinueOnError)
		for _, set := range component.flags.FlagSets {
			flags.AddFlagSet(set)
		}
		if err := flags.Parse(component.args); err != nil {
			return nil, fmt.Errorf("%s flags: %w", component.name, err)
		}
	}
	if err := c.api.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, fmt.Errorf("feature gates: %w", err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return c, nil
}

func apiServerArgs(o MemberOptions, keys *pki) []string {
	args := []string{
		"--etcd-servers=unix://" + etcdClientSocket,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--secure-port=" + strconv.Itoa(o.Port),
		"--tls-cert-file=" + keys.serverCert, "--tls-private-key-file=" + keys.serverKey,
		"--client-ca-file=" + keys.caFile,
		"--requestheader-client-ca-file=" + keys.proxyCAFile,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--kubelet-client-certificate=" + keys.kubeletClientCert, "--kubelet-client-key=" + keys.kubeletClientKey,
		"--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + keys.proxyClientCert, "--proxy-client-key-file=" + keys.proxyClientKey,
		"--service-account-issuer=" + serviceIssuer,
		"--service-account-key-file=" + keys.serviceAccountKey,
		"--service-account-signing-key-file=" + keys.serviceAccountKey,
		"--service-cluster-ip-range=" + o.Services.String(),
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		"--profiling=false",
		"--shutdown-delay-duration=0s",
	}
	if o.RuntimeConfig != "" {
		args = append(args, "--runtime-config="+o.RuntimeConfig)
	}
	if o.Nodes == 0 {
		// Pods are real and reachable at their addresses. Nothing serves the addresses of
		// Services, by which the API server reaches aggregated APIs and webhooks by
		// default.
		args = append(args, "--enable-aggregator-routing=true")
	}
	return args
}

func controllerManagerArgs(keys *pki, kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--controllers=" + strings.Join(enabledControllers, ","),
		"--service-account-private-key-file=" + keys.serviceAccountKey,
		"--root-ca-file=" + keys.caFile,
		"--cluster-signing-cert-file=" + keys.caFile,
		"--cluster-signing-key-file=" + strings.TrimSuffix(keys.caFile, ".crt") + ".key",
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--node-monitor-grace-period=" + nodeGracePeriod.String(),
		"--pvclaimbinder-sync-period=30s",
	}
}

func schedulerArgs(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
}

// runAPIServer serves until ctx ends.
func (c *controlPlane) runAPIServer(ctx context.Context) error {
	completed, err := c.api.Complete(ctx)
	if err != nil {
		return fmt.Errorf("kube-apiserver options: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return fmt.Errorf("kube-apiserver options: %w", utilerrors.NewAggregate(errs))
	}
	if err := apiserver.Run(ctx, completed); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	return nil
}

// runControllerManager runs until ctx ends. The API must be served already.
func (c *controlPlane) runControllerManager(ctx context.Context) error {
	config, err := c.manager.Config(ctx, controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases())
	if err != nil {
		return fmt.Errorf("kube-controller-manager options: %w", err)
	}
	config.ControllerShutdownTimeout = 2 * time.Second
	if err := controllermanager.Run(ctx, config.Complete()); err != nil && ctx.Err() == nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	return nil
}

// runScheduler runs until ctx ends. The API must be served already.
func (c *controlPlane) runScheduler(ctx context.Context) error {
	config, sched, err := scheduler.Setup(ctx, c.scheduler)
	if err != nil {
		return fmt.Errorf("kube-scheduler options: %w", err)
	}
	if err := scheduler.Run(ctx, config, sched); err != nil && ctx.Err() == nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	return nil
}
