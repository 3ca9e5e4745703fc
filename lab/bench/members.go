package bench

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/lab"
)

const (
	benchNamespace = "bench"
	hubName        = "hub"
)

var memberNames = []string{"member1", "member2", "member3"}

// labBench holds clients of the lab's clusters and the events of their watches.
type labBench struct {
	lab           *lab.Lab
	hubClient     kubernetes.Interface
	memberClients map[string]kubernetes.Interface
}

// policyManifest sends every Deployment and ConfigMap of the namespace to all members.
const policyManifest = `{"apiVersion":"atoll.dev/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"all","namespace":"bench"},
"spec":{"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment"},{"apiVersion":"v1","kind":"ConfigMap","labelSelector":{"matchLabels":{"bench":"yes"}}}],
"groupBy":{"type":"Object"}}}`

func prepareLabBench(ctx context.Context, l *lab.Lab) (*labBench, error) {
	b := &labBench{lab: l, memberClients: map[string]kubernetes.Interface{}}
	for _, name := range append([]string{hubName}, memberNames...) {
		config, err := clientcmd.BuildConfigFromFlags("", l.KubeconfigPath(name))
		if err != nil {
			return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
		config.QPS, config.Burst = 500, 1000
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", name, err)
		}
		if name == hubName {
			b.hubClient = c
		} else {
			b.memberClients[name] = c
		}
	}
	if _, err := b.hubClient.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make the namespace on the hub: %w", err)
	}
	err := b.hubClient.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath("/apis/atoll.dev/v1alpha1/namespaces/"+benchNamespace+"/propagationpolicies/all").
		Param("fieldManager", "kubectl").Body([]byte(policyManifest)).Do(ctx).Error()
	if err != nil {
		return nil, fmt.Errorf("apply the policy: %w", err)
	}
	return b, nil
}

// applyDeployment applies a Deployment as `kubectl apply --server-side` does.
func applyDeployment(ctx context.Context, c kubernetes.Interface, name string, replicas int) error {
	body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},
"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"app","image":"registry.example/app:1"}]}}}}`, name, replicas, name, name)
	_, err := c.AppsV1().Deployments(benchNamespace).Patch(ctx, name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "kubectl"})
	if err != nil {
		return fmt.Errorf("apply Deployment %s: %w", name, err)
	}
	return nil
}

// measureAgentMemory measures the memory of the largest agent when each member holds the given
// number of objects.
func (b *labBench) measureAgentMemory(ctx context.Context, o benchOptions) ([]benchNumber, error) {
	have, err := b.hubClient.AppsV1().Deployments(benchNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range max(0, o.objects-len(have.Items)) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("memory-%d", i), Labels: map[string]string{"bench": "yes"}}, Data: map[string]string{"key": "value"}}
		if _, err := b.hubClient.CoreV1().ConfigMaps(benchNamespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make ConfigMap %s: %w", cm.Name, err)
		}
	}
	if err := lab.PauseFor(ctx, o.idle); err != nil {
		return nil, err
	}
	status, err := b.lab.ReadStatus(ctx)
	if err != nil {
		return nil, err
	}
	largest := 0.0
	for _, c := range status.Components {
		if strings.HasPrefix(c.Name, "agent/") {
			m, err := residentMB(c.PID)
			if err != nil {
				return nil, err
			}
			largest = max(largest, m)
		}
	}
	return []benchNumber{{
		What: "agent memory", Value: largest, Unit: "MB", Goal: "< 35 MB",
		How: fmt.Sprintf("resident, the largest of three, with 3 nodes and %d objects, %s after the last", max(o.objects, len(have.Items)), o.idle),
	}}, nil
}
