package decisions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// fakeHub is its tables in memory, over a store that counts writes.
type fakeHub struct {
	mu         sync.Mutex
	client     client.Client
	placements map[types.NamespacedName]state.Placement
	decisions  map[string]state.Decision
	clusters   map[string]*v1alpha1.Cluster
	holding    bool
	writes     int

	onPlacement, onDecision []func(types.NamespacedName)
	onCluster               []func(string)
	onHub                   []func()
}

type (
	fakePlacements struct{ *fakeHub }
	fakeDecisions  struct{ *fakeHub }
	fakeClusters   struct{ *fakeHub }
	fakeHubState   struct{ *fakeHub }
)

func newFakeHub() *fakeHub {
	h := &fakeHub{placements: map[types.NamespacedName]state.Placement{}, decisions: map[string]state.Decision{}, clusters: map[string]*v1alpha1.Cluster{}}
	count := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.writes++
	}
	h.client = interceptor.NewClient(
		ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&v1alpha1.Placement{}, &v1alpha1.ClusterPlacement{}).Build(),
		interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, is := state.DecisionOf(o); is {
					count()
				}
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				count()
				return c.Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				count()
				return c.Delete(ctx, o, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				if err := c.SubResource(sub).Update(ctx, o, opts...); err != nil {
					return err
				}
				h.storeObject(o)
				return nil
			},
		})
	return h
}

// storeObject a Placement as the store has it, as the watch would.
func (h *fakeHub) storeObject(o client.Object) {
	p := state.Placement{}
	switch o := o.(type) {
	case *v1alpha1.Placement:
		p = state.Placement{Meta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
	case *v1alpha1.ClusterPlacement:
		p = state.Placement{Meta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.placements[p.Key()] = p
}

func (h fakePlacements) Get(key types.NamespacedName) (state.Placement, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.placements[key]
	return p, ok
}

func (h fakePlacements) List() (out []state.Placement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.placements {
		out = append(out, p)
	}
	return out
}
func (h fakePlacements) Subscribe(fn func(types.NamespacedName)) {
	h.onPlacement = append(h.onPlacement, fn)
}

func (h fakeDecisions) OfPlacement(key types.NamespacedName) (out []state.Decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.decisions {
		if d.Meta.Namespace == key.Namespace && d.Meta.Labels[v1alpha1.LabelPlacement] == key.Name {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b state.Decision) int { return a.SequenceNumber() - b.SequenceNumber() })
	return out
}

func (h fakeDecisions) Put(o client.Object) {
	d, _ := state.DecisionOf(o)
	h.mu.Lock()
	h.decisions[d.Meta.Namespace+"/"+d.Meta.Name] = d
	h.mu.Unlock()
	for _, fn := range h.onDecision {
		fn(types.NamespacedName{Namespace: d.Meta.Namespace, Name: d.Meta.Labels[v1alpha1.LabelPlacement]})
	}
}

func (h fakeDecisions) Remove(o client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.decisions, o.GetNamespace()+"/"+o.GetName())
}
func (h fakeDecisions) Subscribe(fn func(types.NamespacedName)) {
	h.onDecision = append(h.onDecision, fn)
}

func (h fakeClusters) Get(name string) (*v1alpha1.Cluster, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.clusters[name]
	return c, ok
}

func (h fakeClusters) List() (out []*v1alpha1.Cluster) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clusters {
		out = append(out, c)
	}
	return out
}
func (h fakeClusters) Subscribe(fn func(string)) { h.onCluster = append(h.onCluster, fn) }

func (h fakeHubState) HoldReason() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return "restored", h.holding
}
func (h fakeHubState) Subscribe(fn func()) { h.onHub = append(h.onHub, fn) }

// plainViews views see what the object alone tells.
type plainViews struct{}

func (plainViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster { return schedule.ClusterOf(c) }
func (plainViews) Subscribe(func(string))                      {}

// The acts of users and members.

func (h *fakeHub) changeCluster(name string, change func(*v1alpha1.Cluster)) {
	h.mu.Lock()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	if old, ok := h.clusters[name]; ok {
		c = old.DeepCopy()
	}
	if change != nil {
		change(c)
	}
	h.clusters[name] = c
	h.mu.Unlock()
	for _, fn := range h.onCluster {
		fn(name)
	}
}

func (h *fakeHub) putPlacement(t *testing.T, ns string, spec v1alpha1.PlacementSpec) {
	t.Helper()
	key := types.NamespacedName{Namespace: ns, Name: "edge"}
	p, had := fakePlacements{h}.Get(key)
	p.Spec = spec
	p.Meta.Generation++
	var err error
	var obj client.Object
	if had {
		obj = p.ToObject()
		err = h.client.Update(t.Context(), obj)
		h.writes--
	} else {
		p.Meta = metav1.ObjectMeta{Namespace: ns, Name: "edge", UID: types.UID("uid-" + ns), Generation: 1}
		obj = p.ToObject()
		err = h.client.Create(t.Context(), obj)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.storeObject(obj)
	for _, fn := range h.onPlacement {
		fn(key)
	}
}

// publishedText clusters, in the order of the objects.
func (h *fakeHub) publishedText(ns string) string {
	time.Sleep(2 * clusterDebounce)
	synctest.Wait()
	var out []string
	for _, d := range (fakeDecisions{h}).OfPlacement(types.NamespacedName{Namespace: ns, Name: "edge"}) {
		for _, c := range d.Status.Decisions {
			name := c.ClusterName
			if c.Reason != "" {
				name += "!"
			}
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

func (h *fakeHub) statusText(ns string) string {
	p, _ := fakePlacements{h}.Get(types.NamespacedName{Namespace: ns, Name: "edge"})
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PlacementSatisfied)
	if c == nil {
		return ""
	}
	if p.Status.ObservedGeneration != p.Meta.Generation {
		return fmt.Sprintf("observedGeneration %d of %d", p.Status.ObservedGeneration, p.Meta.Generation)
	}
	return fmt.Sprintf("%d %s %s", p.Status.NumberOfSelectedClusters, c.Status, c.Reason)
}

func runPublisher(t *testing.T, test func(t *testing.T, h *fakeHub)) {
	t.Helper()
	runWith(t, func(*Config) {}, test)
}

func runWith(t *testing.T, change func(*Config), test func(t *testing.T, h *fakeHub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		cfg := Config{Placements: fakePlacements{h}, Decisions: fakeDecisions{h}, Clusters: fakeClusters{h}, Hub: fakeHubState{h}, Views: plainViews{}, Client: h.client}
		change(&cfg)
		p := New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		test(t, h)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		// Queues end their goroutines a moment after they are shut down.
		time.Sleep(time.Minute)
	})
}

func withEnv(value string) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": value} }
}

func placementLabelled(value string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": value}},
	}}
}

// A Placement's choice is published, in a namespace and without one, and follows its edits and
// changes of clusters.
func TestPublishesWhatItChooses(t *testing.T) {
	for _, ns := range []string{"shop", ""} {
		runPublisher(t, func(t *testing.T, h *fakeHub) {
			want := func(names, status string) {
				t.Helper()
				if got := h.publishedText(ns); got != names {
					t.Fatalf("published %q, want %q", got, names)
				}
				if got := h.statusText(ns); got != status {
					t.Fatalf("status %q, want %q", got, status)
				}
			}
			for _, n := range []string{"a", "b", "c"} {
				h.changeCluster(n, withEnv("prod"))
			}
			h.changeCluster("d", withEnv("test"))
			h.putPlacement(t, ns, placementLabelled("prod"))
			want("a b c", "3 True Chosen")
			pl, _ := fakePlacements{h}.Get(types.NamespacedName{Namespace: ns, Name: "edge"})
			for _, is := range atoll.ConditionTypes["Placement"] {
				if c := meta.FindStatusCondition(pl.Status.Conditions, is.Type); c == nil || c.Status != is.Normal || c.Reason == "" || c.ObservedGeneration != pl.Meta.Generation {
					t.Errorf("condition %s of a new Placement: %+v", is.Type, c)
				}
			}
			h.changeCluster("d", withEnv("prod"))
			want("a b c d", "4 True Chosen")
			h.changeCluster("b", withEnv("test"))
			want("a c d", "3 True Chosen")
			h.putPlacement(t, ns, placementLabelled("test"))
			want("b", "1 True Chosen")
			// Nothing fits any more: what was chosen stays chosen.
			h.changeCluster("b", withEnv("prod"))
			want("b!", "1 False NoClusterFits")
			h.changeCluster("a", withEnv("test"))
			want("a", "1 True Chosen")
		})
	}
}

// An eviction that is due later is published when it is due.
func TestPublishesWhenTimeChangesIt(t *testing.T) {
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		h.changeCluster("a", nil)
		h.changeCluster("b", nil)
		seconds := int64(600)
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{ClusterTolerations: []corev1.Toleration{{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}})
		h.publishedText("shop")
		at := metav1.Now()
		h.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}}
		})
		if got := h.publishedText("shop"); got != "a b" {
			t.Fatalf("published %q before the toleration ends", got)
		}
		time.Sleep(10 * time.Minute)
		if got := h.publishedText("shop"); got != "b" {
			t.Fatalf("published %q after the toleration ended", got)
		}
	})
}

// A change is a write of the object that it is in; many that come together are one.
func TestWritesOnlyWhatChanges(t *testing.T) {
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		for _, n := range fleetNames(350) {
			h.changeCluster(n, withEnv("prod"))
		}
		h.putPlacement(t, "shop", placementLabelled("prod"))
		h.publishedText("shop")
		if h.writes != 4 {
			t.Fatalf("350 clusters are %d writes, want 4", h.writes)
		}
		for _, n := range []string{"c0001", "c0002", "c0003"} {
			h.changeCluster(n, withEnv("test"))
		}
		h.publishedText("shop")
		if h.writes != 5 {
			t.Errorf("three clusters of one object are %d writes, want 1", h.writes-4)
		}
		h.changeCluster("c0300", func(c *v1alpha1.Cluster) { c.Status.KubernetesVersion = "v1.37.0" })
		h.publishedText("shop")
		if h.writes != 5 {
			t.Errorf("news that choose nothing are %d writes", h.writes-5)
		}
	})
}

// A deleted decision comes back, and a hub that holds writes nothing.
func TestComesBackAndHolds(t *testing.T) {
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		h.changeCluster("a", nil)
		h.holding = true
		h.putPlacement(t, "shop", v1alpha1.PlacementSpec{})
		if got := h.publishedText("shop"); got != "" || h.writes != 0 {
			t.Fatalf("a hub that holds published %q", got)
		}
		h.holding = false
		for _, fn := range h.onHub {
			fn()
		}
		if got := h.publishedText("shop"); got != "a" {
			t.Fatalf("published %q", got)
		}
		d := (fakeDecisions{h}).OfPlacement(types.NamespacedName{Namespace: "shop", Name: "edge"})[0]
		if err := h.client.Delete(t.Context(), d.ToObject()); err != nil {
			t.Fatal(err)
		}
		fakeDecisions{h}.Remove(d.ToObject())
		for _, fn := range h.onDecision {
			fn(types.NamespacedName{Namespace: "shop", Name: "edge"})
		}
		if got := h.publishedText("shop"); got != "a" {
			t.Fatalf("published %q after it was deleted", got)
		}
	})
}

// A published decision has groups, and stays published though others are better.
func TestPublishesGroupsAndKeepsWhatItChose(t *testing.T) {
	runPublisher(t, func(t *testing.T, h *fakeHub) {
		zone := func(zone, env string) func(c *v1alpha1.Cluster) {
			return func(c *v1alpha1.Cluster) {
				c.Spec.Zone, c.Labels = zone, map[string]string{"env": env}
			}
		}
		h.changeCluster("a", zone("x", "canary"))
		h.changeCluster("b", zone("y", "prod"))
		p := v1alpha1.PlacementSpec{
			MaxClusters:       2,
			SpreadConstraints: []v1alpha1.SpreadConstraint{{SpreadByField: v1alpha1.SpreadByZone, MinGroups: 2}},
			DecisionGroups: []v1alpha1.DecisionGroup{
				{GroupName: "first", LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"env": "canary"}}},
			},
		}
		h.putPlacement(t, "shop", p)
		if got := h.publishedText("shop"); got != "a b" {
			t.Fatalf("published %q", got)
		}
		groups := map[string]string{}
		for _, d := range h.decisions {
			for _, c := range d.Status.Decisions {
				groups[c.ClusterName] = c.GroupName
			}
		}
		if groups["a"] != "first" || groups["b"] != "" {
			t.Errorf("groups are %v", groups)
		}
		// Others come, and one drifts to where the other is: nothing moves.
		for _, c := range []string{"c", "d", "e"} {
			h.changeCluster(c, zone("z"+c, "prod"))
		}
		h.changeCluster("b", zone("x", "prod"))
		if got := strings.ReplaceAll(h.publishedText("shop"), "!", ""); got != "a b" {
			t.Errorf("after a drift published %q", got)
		}
		// An edit may move what does not keep to it any more.
		p.MaxClusters = 3
		h.putPlacement(t, "shop", p)
		if got := h.publishedText("shop"); strings.Count(got, " ") != 2 || !strings.HasPrefix(got, "a b ") {
			t.Errorf("after an edit published %q", got)
		}
	})
}
