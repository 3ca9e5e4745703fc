package member

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/controllers"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwokclient "sigs.k8s.io/kwok/pkg/utils/client"

	"atoll.dev/atoll/lab"
)

const (
	// nodeGracePeriod is long so that a starved machine does not turn nodes
	// NotReady by itself; leases are renewed at a quarter of their duration.
	nodeGracePeriod      = 10 * time.Minute
	leaseDurationSeconds = 60
)

// ensureNodes creates missing nodes; it never removes one.
func ensureNodes(ctx context.Context, client kubernetes.Interface, o MemberOptions) error {
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the cluster: %w", err)
	}
	for i := range o.Nodes {
		name := fmt.Sprintf("node-%d", i+1)
		capacity := corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse(o.NodeCPU),
			corev1.ResourceMemory:           resource.MustParse(o.NodeMemory),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
			corev1.ResourcePods:             *resource.NewQuantity(int64(o.NodePods), resource.DecimalSI),
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name,
				Labels: map[string]string{
					corev1.LabelHostname:           name,
					corev1.LabelOSStable:           "linux",
					corev1.LabelArchStable:         "amd64",
					corev1.LabelTopologyRegion:     o.Region,
					corev1.LabelTopologyZone:       o.Region + string(rune('a'+i%3)),
					"node-role.kubernetes.io/node": "",
					"lab.atoll.dev/fake":           "true",
				},
			},
			Status: corev1.NodeStatus{
				Capacity: capacity, Allocatable: capacity,
				NodeInfo: corev1.NodeSystemInfo{
					KubeletVersion: version.GitVersion, OSImage: "atoll lab", ContainerRuntimeVersion: "kwok",
					OperatingSystem: "linux", Architecture: "amd64",
				},
			},
		}
		_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	return nil
}

// deleteNodeLeases removes the node leases of an earlier process. kwok creates a lease that its
// cache does not show yet. If the creation fails because the cache was late, kwok leaves
// the node for a whole renewal interval.
func deleteNodeLeases(ctx context.Context, client kubernetes.Interface) error {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if err := leases.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("remove old node leases: %w", err)
	}
	return nil
}

// startKwok starts the controllers that simulate the kubelets; they stop with ctx.
func startKwok(ctx context.Context, kubeconfig string) error {
	stages, err := kwokStages()
	if err != nil {
		return err
	}
	clients, err := kwokclient.NewClientset("", kubeconfig)
	if err != nil {
		return fmt.Errorf("kwok client: %w", err)
	}
	config, err := clients.ToRESTConfig()
	if err != nil {
		return fmt.Errorf("kwok client: %w", err)
	}
	dynamicClient, err := clients.ToDynamicClient()
	if err != nil {
		return err
	}
	mapper, err := clients.ToRESTMapper()
	if err != nil {
		return fmt.Errorf("kwok discovery: %w", err)
	}
	restClient, err := rest.RESTClientFor(config)
	if err != nil {
		return fmt.Errorf("kwok client: %w", err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kwok client: %w", err)
	}
	controller, err := kwok.NewController(kwok.Config{
		Clock:                      clock.RealClock{},
		DynamicClient:              dynamicClient,
		RESTClient:                 restClient,
		RESTMapper:                 mapper,
		ImpersonatingDynamicClient: clients.ToImpersonatingDynamicClient(),
		ImpersonatingTypedClient:   clients.ToImpersonatingTypedClient(),
		TypedClient:                typed,
		ManageAllNodes:             true,
		CIDR:                       podCIDR,
		NodeIP:                     "127.0.0.1",
		LocalStages:                stages,
		PodPlayStageParallelism:    4,
		NodePlayStageParallelism:   2,
		NodeLeaseDurationSeconds:   leaseDurationSeconds,
		NodeLeaseParallelism:       2,
		PodsOnNodeSyncParallelism:  2,
		ID:                         "atoll-lab",
	})
	if err != nil {
		return fmt.Errorf("kwok: %w", err)
	}
	ctx = kwoklog.NewContext(ctx, kwoklog.NewLogger(io.Discard, kwoklog.LevelError))
	if err := controller.Start(ctx); err != nil {
		return fmt.Errorf("kwok: %w", err)
	}
	return nil
}

// kwokStages returns kwok's own life cycles for nodes and pods, with delays of realistic
// starts.
func kwokStages() (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	out := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for _, s := range []struct {
		source     string
		delay      time.Duration
		annotation string
	}{
		{source: nodefast.DefaultNodeInit},
		{source: heartbeat.DefaultNodeHeartbeatWithLease, delay: 30 * time.Minute},
		{source: podfast.DefaultPodReady, delay: 300 * time.Millisecond, annotation: lab.ReadyAfterAnnotation},
		{source: podfast.DefaultPodComplete, delay: 2 * time.Second, annotation: lab.CompleteAfterAnnotation},
		{source: podfast.DefaultPodDelete, delay: 100 * time.Millisecond},
	} {
		stage, err := kwokconfig.UnmarshalWithType[*internalversion.Stage](s.source)
		if err != nil {
			return nil, fmt.Errorf("kwok stage: %w", err)
		}
		if s.delay > 0 {
			stage.Spec.Delay = &internalversion.StageDelay{DurationMilliseconds: ptr.To(s.delay.Milliseconds())}
		}
		if s.annotation != "" {
			stage.Spec.Delay.DurationFrom = &internalversion.ExpressionFrom{
				JQ: &internalversion.ExpressionJQ{Expression: fmt.Sprintf(".metadata.annotations[%q]", s.annotation)},
			}
		}
		out[stage.Spec.ResourceRef] = append(out[stage.Spec.ResourceRef], stage)
	}
	return out, nil
}
