package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/lab"
)

const namespace = "bench"

var members = []string{"member1", "member2", "member3"}

// bench holds clients of the lab's clusters and what their watches saw.
type bench struct {
	lab    *lab.Lab
	hub    kubernetes.Interface
	member map[string]kubernetes.Interface
}

// policy sends every Deployment and ConfigMap of the namespace to all members.
const policy = `{"apiVersion":"atoll.dev/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"all","namespace":"bench"},
"spec":{"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment"},{"apiVersion":"v1","kind":"ConfigMap","labelSelector":{"matchLabels":{"bench":"yes"}}}],
"groupBy":{"type":"Object"}}}`

func newBench(ctx context.Context, l *lab.Lab) (*bench, error) {
	b := &bench{lab: l, member: map[string]kubernetes.Interface{}}
	for _, name := range append([]string{"hub"}, members...) {
		config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig(name))
		if err != nil {
			return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
		}
		config.QPS, config.Burst = 500, 1000
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", name, err)
		}
		if name == "hub" {
			b.hub = c
		} else {
			b.member[name] = c
		}
	}
	if _, err := b.hub.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make the namespace on the hub: %w", err)
	}
	err := b.hub.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath("/apis/atoll.dev/v1alpha1/namespaces/"+namespace+"/propagationpolicies/all").
		Param("fieldManager", "kubectl").Body([]byte(policy)).Do(ctx).Error()
	if err != nil {
		return nil, fmt.Errorf("apply the policy: %w", err)
	}
	return b, nil
}

// apply a Deployment as `kubectl apply --server-side` does.
func (b *bench) apply(ctx context.Context, name string, replicas int) error {
	body := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},
"template":{"metadata":{"labels":{"app":%q}},"spec":{"containers":[{"name":"app","image":"registry.example/app:1"}]}}}}`, name, replicas, name, name)
	_, err := b.hub.AppsV1().Deployments(namespace).Patch(ctx, name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "kubectl"})
	if err != nil {
		return fmt.Errorf("apply Deployment %s: %w", name, err)
	}
	return nil
}

// sighting is an object that appeared in a member.
type sighting struct {
	name string
	at   time.Time
}

// latency is from the return of apply to the object being in all three members, as
// watches of theirs tell.
func (b *bench) latency(ctx context.Context, o options) ([]number, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan sighting, 1000)
	for _, m := range members {
		w, err := b.member[m].AppsV1().Deployments(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", m, err)
		}
		go func() {
			for e := range w.ResultChan() {
				if d, ok := e.Object.(*appsv1.Deployment); ok && e.Type == watch.Added && d.Namespace == namespace {
					seen <- sighting{name: d.Name, at: time.Now()}
				}
			}
		}()
	}
	var took []float64
	for i := range o.rounds {
		name := fmt.Sprintf("latency-%d", i)
		if err := b.apply(ctx, name, 2); err != nil {
			return nil, err
		}
		last, err := lastSighting(ctx, seen, name, time.Now())
		if err != nil {
			return nil, err
		}
		took = append(took, last.Seconds())
	}
	slices.Sort(took)
	how := fmt.Sprintf("%d Deployments, one after the other; from apply's return to the last member's watch event", o.rounds)
	return []number{
		{What: "apply to existing in 3 members, p50", Value: took[len(took)/2], Unit: "s", How: how},
		{What: "apply to existing in 3 members, p95", Value: took[min(len(took)-1, len(took)*95/100)], Unit: "s", Goal: "< 1 s", How: how},
	}, nil
}

// lastSighting waits until the object was seen in every member; negative latencies,
// of members that were faster than apply's return, count as none.
func lastSighting(ctx context.Context, seen <-chan sighting, name string, applied time.Time) (time.Duration, error) {
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	last := time.Duration(0)
	for n := 0; n < len(members); {
		select {
		case s := <-seen:
			if s.name == name {
				last, n = max(last, s.at.Sub(applied)), n+1
			}
		case <-limit.C:
			return 0, fmt.Errorf("%s was in %d of %d members after a minute", name, n, len(members))
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return last, nil
}

// agentMemory is that of the largest agent once each member holds so many objects.
func (b *bench) agentMemory(ctx context.Context, o options) ([]number, error) {
	have, err := b.hub.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range max(0, o.objects-len(have.Items)) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("memory-%d", i), Labels: map[string]string{"bench": "yes"}}, Data: map[string]string{"key": "value"}}
		if _, err := b.hub.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make ConfigMap %s: %w", cm.Name, err)
		}
	}
	if err := pause(ctx, o.idle); err != nil {
		return nil, err
	}
	status, err := b.lab.Status(ctx)
	if err != nil {
		return nil, err
	}
	largest := 0.0
	for _, c := range status.Components {
		if strings.HasPrefix(c.Name, "agent/") {
			m, err := resident(c.PID)
			if err != nil {
				return nil, err
			}
			largest = max(largest, m)
		}
	}
	return []number{{
		What: "agent memory", Value: largest, Unit: "MB", Goal: "< 35 MB",
		How: fmt.Sprintf("resident, the largest of three, with 3 nodes and %d objects, %s after the last", max(o.objects, len(have.Items)), o.idle),
	}}, nil
}
