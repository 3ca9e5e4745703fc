package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

const autoscalerManifest = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: $NS}
spec: {minReplicas: 1, maxReplicas: 100, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
`

const autoscaledPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors:
  - {apiVersion: apps/v1, kind: Deployment}
  - {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler}
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
`

// replicaGauge watches spec.replicas of Deployment web in a member, and compares every
// value with the requested ones.
type replicaGauge struct {
	mu    sync.Mutex
	asked map[int64]bool
	seen  []int64
	stop  func()
}

func newGauge(t *testing.T, member, ns string, asked ...int64) *replicaGauge {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath(member))
	if err != nil {
		t.Fatal(err)
	}
	watching, err := client.NewWithWatch(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var list unstructured.UnstructuredList
	list.SetAPIVersion("apps/v1")
	list.SetKind("DeploymentList")
	events, err := watching.Watch(t.Context(), &list, client.InNamespace(ns))
	if err != nil {
		t.Fatal(err)
	}
	g := &replicaGauge{asked: map[int64]bool{}, stop: events.Stop}
	g.noteAsked(asked...)
	go g.followEvents(events)
	return g
}

func (g *replicaGauge) followEvents(events watch.Interface) {
	for event := range events.ResultChan() {
		o, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		g.mu.Lock()
		if len(g.seen) == 0 || g.seen[len(g.seen)-1] != n {
			g.seen = append(g.seen, n)
		}
		g.mu.Unlock()
	}
}

// noteAsked notes values before they are asked for.
func (g *replicaGauge) noteAsked(values ...int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range values {
		g.asked[v] = true
	}
}

// checkLast checks that the last value is as wanted.
func (g *replicaGauge) checkLast(last int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.seen); n == 0 || g.seen[n-1] != last {
		return fmt.Errorf("replicas were %v, want %d at last", g.seen, last)
	}
	return nil
}

// unaskedValues lists the values that were not requested.
func (g *replicaGauge) unaskedValues() (out []int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.seen {
		if !g.asked[v] {
			out = append(out, v)
		}
	}
	return out
}

// scaleIn scales Deployment web in a member as its autoscaler does.
func scaleIn(ctx context.Context, member, ns string, replicas int64) error {
	var o unstructured.Unstructured
	o.SetAPIVersion("apps/v1")
	o.SetKind("Deployment")
	o.SetNamespace(ns)
	o.SetName("web")
	var scale unstructured.Unstructured
	scale.SetAPIVersion("autoscaling/v1")
	scale.SetKind("Scale")
	return sharedWorld.clients[member].SubResource("scale").Patch(ctx, &o,
		client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)),
		&client.SubResourcePatchOptions{SubResourceBody: &scale, PatchOptions: client.PatchOptions{FieldManager: "kube-controller-manager"}})
}

// handedOver returns a check that the member alone sets the replicas there.
func handedOver(member, ns string, want bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, member, "apps/v1", "Deployment", ns, "web")
		if err != nil || o == nil {
			return fmt.Errorf("%s has no Deployment (%v)", member, err)
		}
		for _, f := range o.GetManagedFields() {
			if f.Manager != "atoll" || f.Subresource != "" {
				continue
			}
			var fields struct {
				Spec map[string]any `json:"f:spec"`
			}
			if err := json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields); err != nil {
				return err
			}
			if _, owned := fields.Spec["f:replicas"]; owned == want {
				return fmt.Errorf("%s: atoll owns the replicas: %v", member, owned)
			}
		}
		return nil
	}
}

// Replicas go to an autoscaler and come back while it scales and users edit, and
// never have a value that neither of them asked for.
func TestReplicasNeverJump(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "autoscaled")
	apply(t, ns, webDeployment+"---"+autoscaledPolicy)
	testwait.UntilNil(t, "delivery", allChecks(fieldIs("member1", ns, "web", "status.availableReplicas", 2), fieldIs("member2", ns, "web", "status.availableReplicas", 2)))
	gauges := map[string]*replicaGauge{}
	for _, m := range memberNames[:2] {
		gauges[m] = newGauge(t, m, ns, 2)
	}

	apply(t, ns, autoscalerManifest)
	testwait.UntilNil(t, "the replicas are handed over", allChecks(
		handedOver("member1", ns, true), handedOver("member2", ns, true),
		inCluster("member1", "autoscaling/v2", "HorizontalPodAutoscaler", ns, "web", true),
		inCluster("member2", "autoscaling/v2", "HorizontalPodAutoscaler", ns, "web", true),
	))

	rng := rand.New(rand.NewPCG(1, 2))
	lastly := map[string]int64{}
	for n := range 25 {
		for _, m := range memberNames[:2] {
			lastly[m] = 3 + rng.Int64N(12)
			gauges[m].noteAsked(lastly[m])
			if err := scaleIn(t.Context(), m, ns, lastly[m]); err != nil {
				t.Fatal(err)
			}
		}
		// The template's replicas change too, and mean nothing to the members now.
		patch(t, "apps/v1", "Deployment", ns, "web", fmt.Sprintf(
			`{"spec":{"replicas":%d,"template":{"metadata":{"annotations":{"edition":"%d"}}}}}`, 20+n, n))
	}
	edition := func(m, want string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, m, "apps/v1", "Deployment", ns, "web")
			if err != nil || o == nil {
				return fmt.Errorf("%s: %v", m, err)
			}
			if got, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", "edition"); got != want {
				return fmt.Errorf("%s has edition %s, want %s", m, got, want)
			}
			return nil
		}
	}
	for m, g := range gauges {
		testwait.UntilNil(t, "the last edit", edition(m, "24"))
		testwait.UntilNil(t, "the autoscaler's word", func(context.Context) error { return g.checkLast(lastly[m]) })
	}

	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":4}}`)
	for _, g := range gauges {
		g.noteAsked(4)
	}
	remove(t, "autoscaling/v2", "HorizontalPodAutoscaler", ns, "web")
	for m, g := range gauges {
		testwait.UntilNil(t, "the replicas are taken back", allChecks(
			handedOver(m, ns, false), fieldIs(m, ns, "web", "status.availableReplicas", 4),
			inCluster(m, "autoscaling/v2", "HorizontalPodAutoscaler", ns, "web", false),
			func(context.Context) error { return g.checkLast(4) },
		))
		g.stop()
		if wrong := g.unaskedValues(); len(wrong) > 0 {
			t.Errorf("%s: replicas were %v; the test did not request %v", m, g.seen, slices.Compact(wrong))
		}
	}
}

// Scaling in a member without an autoscaler is corrected.
func TestScalingInAMemberIsDrift(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "scaled-by-hand")
	apply(t, ns, webDeployment+"---"+autoscaledPolicy)
	testwait.UntilNil(t, "delivery", fieldIs("member1", ns, "web", "status.availableReplicas", 2))
	if err := scaleIn(t.Context(), "member1", ns, 9); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "the replicas are corrected", fieldIs("member1", ns, "web", "spec.replicas", 2))
}
