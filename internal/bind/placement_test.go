package bind

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind/defaulting"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// placements is a table of them.
type placements map[types.NamespacedName]v1alpha1.PlacementSpec

func (x placements) Get(key types.NamespacedName) (state.Placement, bool) {
	spec, ok := x[key]
	return state.Placement{Spec: spec}, ok
}
func (placements) Subscribe(func(types.NamespacedName)) {}

// stored is as much of the table of Bundles as reading one needs.
type stored struct {
	Bundles
	by map[claim.BundleID]state.Bundle
}

func (x stored) ByName(ns, name string) (state.Bundle, bool) {
	b, ok := x.by[claim.BundleID{Namespace: ns, Name: name}]
	return b, ok
}
func (stored) Put(client.Object) {}

// both kinds of policies.
type both struct {
	Policies
	own     map[string]*v1alpha1.PropagationPolicy
	cluster map[string]*v1alpha1.ClusterPropagationPolicy
}

func (x both) PropagationPolicy(_, name string) (*v1alpha1.PropagationPolicy, bool) {
	p, ok := x.own[name]
	return p, ok
}

func (x both) ClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool) {
	p, ok := x.cluster[name]
	return p, ok
}

func (x both) Propagation(ns string) (out []*v1alpha1.PropagationPolicy) {
	for _, p := range x.own {
		if p.Namespace == ns {
			out = append(out, p)
		}
	}
	return out
}

func (x both) ClusterPropagation() (out []*v1alpha1.ClusterPropagationPolicy) {
	for _, p := range x.cluster {
		out = append(out, p)
	}
	return out
}

func inClusters(names ...string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: names}}
}

func chosen(p v1alpha1.PlacementSpec) string {
	if p.ClusterAffinity == nil {
		return "*"
	}
	return strings.Join(p.ClusterAffinity.ClusterNames, ",")
}

// A policy that refers to a Placement wants what that says: one of its own namespace, or
// a ClusterPlacement for a cluster policy. One that is gone leaves a Bundle where it is,
// and makes none.
func TestPlacementRef(t *testing.T) {
	ref := v1alpha1.PropagationSpec{PlacementRef: &v1alpha1.PlacementRef{Name: "edge"}}
	b, _, _ := newShell(t)
	id := claim.BundleID{Namespace: "shop", Name: "web"}
	is := state.Bundle{Ref: enginev1.BundleRef{UID: "u", Namespace: "shop", Name: "web"}, Spec: v1alpha1.BundleSpec{Placement: inClusters("was")}}
	for name, tc := range map[string]struct {
		kind  string
		spec  v1alpha1.PropagationSpec
		known placements
		had   bool
		want  string // the clusters, or "" for no intent
		says  string
	}{
		"of its namespace":        {ppKind, ref, placements{{Namespace: "shop", Name: "edge"}: inClusters("a")}, true, "a", ""},
		"of another namespace":    {ppKind, ref, placements{{Namespace: "else", Name: "edge"}: inClusters("a")}, true, "was", "Placement shop/edge"},
		"without a namespace":     {ppKind, ref, placements{{Name: "edge"}: inClusters("a")}, true, "was", "Placement shop/edge"},
		"of a cluster policy":     {v1alpha1.SourceClusterPropagationPolicy, ref, placements{{Name: "edge"}: inClusters("b")}, true, "b", ""},
		"a cluster policy's, own": {v1alpha1.SourceClusterPropagationPolicy, ref, placements{{Namespace: "shop", Name: "edge"}: inClusters("a")}, true, "was", "ClusterPlacement edge"},
		"gone, nothing placed":    {ppKind, ref, nil, false, "", "Placement shop/edge"},
		"gone, something placed":  {ppKind, ref, nil, true, "was", "Placement shop/edge"},
		"none":                    {ppKind, v1alpha1.PropagationSpec{}, nil, true, "*", ""},
		"a placement":             {ppKind, v1alpha1.PropagationSpec{Placement: inClusters("c")}, nil, true, "c", ""},
	} {
		table := stored{by: map[claim.BundleID]state.Bundle{}}
		if tc.had {
			table.by[id] = is
		}
		b.Bundles, b.Placements = table, tc.known
		got := ""
		if intent := b.placed(id, tc.kind, tc.spec); intent != nil {
			got = chosen(intent.Spec.Placement)
		}
		if got != tc.want {
			t.Errorf("%s: placed in %q, want %q", name, got, tc.want)
		}
		if says := b.unplaced(tc.kind, "shop", &tc.spec); (tc.says == "") != (says == "") || !strings.HasPrefix(says, tc.says) {
			t.Errorf("%s: says %q, want %q", name, says, tc.says)
		}
	}
}

// Objects whose policy refers to a Placement that is not there say so after a while, and
// once; one that comes soon is no reason for words.
func TestWaitingForAPlacementIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := newShell(t)
		told := events{}
		b.Events, b.placeless = told, newWaits[claim.BundleID]()
		b.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[claim.BundleID]())
		defer b.queue.ShutDown()
		id, web := claim.BundleID{Namespace: "shop", Name: "web"}, obj("Deployment", "web")
		await := func(claimed ...atoll.ItemKey) []string {
			b.awaitPlacement(id, "Placement shop/egde does not exist", claimed)
			return told[web]
		}
		if got := await(web); len(got) != 0 {
			t.Errorf("at once it says %q", got)
		}
		time.Sleep(waitsLong + time.Second)
		if b.queue.Len() != 1 {
			t.Error("nobody looks again")
		}
		want := []string{"PlacementMissing: Placement shop/egde does not exist; members keep what they have of it"}
		for range 2 {
			if got := await(web); !reflect.DeepEqual(got, want) {
				t.Errorf("later it says %q, want %q", got, want)
			}
		}
		await()
		if got := await(web); !reflect.DeepEqual(got, want) || b.reports.said[id] != nil {
			t.Errorf("what waits anew says %q", got)
		}
	})
}

// A policy without a placement is what the schema makes of one that says {}: every cluster,
// duplicated, and not a difference that would write Bundles again and again.
func TestNoPlacementIsEveryCluster(t *testing.T) {
	b, _, _ := newShell(t)
	intent := b.placed(claim.BundleID{Namespace: "shop", Name: "web"}, ppKind, v1alpha1.PropagationSpec{})
	if got := intent.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType; got != v1alpha1.Duplicated || intent.Spec.Placement.ClusterAffinity != nil {
		t.Errorf("the placement is %+v", intent.Spec.Placement)
	}
	given := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}}
	if got := atoll.Placement(given).ReplicaScheduling.ReplicaSchedulingType; got != v1alpha1.Divided {
		t.Errorf("what is said is taken back: %s", got)
	}
}

// The schema may come to have more defaults: a policy without a placement gets all of them.
func TestNoPlacementIsWhatTheSchemaMakesOfOne(t *testing.T) {
	manifest, err := crds.Files.ReadFile("atoll.dev_placements.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &crd.Object); err != nil {
		t.Fatal(err)
	}
	empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "Placement", "spec": map[string]any{}}}
	filled, err := defaulting.New(func(schema.GroupKind) *unstructured.Unstructured { return crd }).Default(empty)
	if err != nil {
		t.Fatal(err)
	}
	var typed v1alpha1.Placement
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(filled.Object, &typed); err != nil {
		t.Fatal(err)
	}
	if got := atoll.Placement(v1alpha1.PlacementSpec{}); !reflect.DeepEqual(got, typed.Spec) {
		t.Errorf("without a placement it is %+v, and the schema makes %+v of an empty one: let atoll.Placement give the difference", got, typed.Spec)
	}
}

// An edit of a Placement is one of the policies that refer to it, of their Bundles and of
// what they say; other policies have nothing to do with it.
func TestPlacementTouchesThosePoliciesThatRefer(t *testing.T) {
	policy := func(ns, name, ref string) *v1alpha1.PropagationPolicy {
		p := &v1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		if ref != "" {
			p.Spec.PlacementRef = &v1alpha1.PlacementRef{Name: ref}
		}
		return p
	}
	b, _, _ := newShell(t)
	b.Policies = both{
		own: map[string]*v1alpha1.PropagationPolicy{
			"web": policy("shop", "web", "edge"), "api": policy("shop", "api", "core"), "own": policy("shop", "own", ""), "far": policy("else", "far", "edge"),
		},
		cluster: map[string]*v1alpha1.ClusterPropagationPolicy{"all": {ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policy("", "", "edge").Spec}},
	}
	for _, o := range []struct{ kind, ns, name string }{{ppKind, "shop", "web"}, {ppKind, "shop", "api"}, {ppKind, "shop", "own"}, {ppKind, "else", "far"}, {v1alpha1.SourceClusterPropagationPolicy, "shop", "all"}} {
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: o.ns, Name: o.name}
		b.claims.place(key, claim.BundleID{Namespace: o.ns, Name: o.name}, origin{source: v1alpha1.BundleSource{Kind: o.kind, Name: o.name}})
	}
	touched := make(chan claim.BundleID, 10)
	b.quiet = newDebouncer(func(id claim.BundleID) { touched <- id })
	defer b.quiet.stop()
	for key, want := range map[types.NamespacedName]string{{Namespace: "shop", Name: "edge"}: "web", {Name: "edge"}: "all", {Namespace: "shop", Name: "core"}: "api"} {
		b.placementChanged(key)
		select {
		case id := <-touched:
			if id.Name != want {
				t.Errorf("%s touches %s, want %s", key, id, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s touches nothing", key)
		}
		select {
		case id := <-touched:
			t.Errorf("%s touches %s too", key, id)
		case <-time.After(2 * quiet):
		}
	}
}

// The policy and its Bundles say that the Placement is missing, and what to do; when it
// comes back, that all is well.
func TestMissingPlacementIsSaid(t *testing.T) {
	bundle := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	policy := &v1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.PropagationSpec{PlacementRef: &v1alpha1.PlacementRef{Name: "edge"}}}
	b, _, p := newShell(t, bundle, policy)
	p.own = []*v1alpha1.PropagationPolicy{policy}
	b.unread = newWaits[schema.GroupKind]()
	from := origin{source: v1alpha1.BundleSource{Kind: ppKind, Name: "web"}}
	id := claim.BundleID{Namespace: "shop", Name: "web"}
	b.claims.place(atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}, id, from)
	for _, step := range []struct {
		known  placements
		status metav1.ConditionStatus
		reason string
	}{
		{nil, metav1.ConditionFalse, reasonNoPlacement},
		{placements{{Namespace: "shop", Name: "edge"}: {}}, metav1.ConditionTrue, ""},
	} {
		b.Placements = step.known
		var now v1alpha1.Bundle
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(bundle), &now); err != nil {
			t.Fatal(err)
		}
		is, _ := state.BundleOf(&now)
		if err := b.tell(t.Context(), is, from, b.unplacedSource(id, from), nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(bundle), &now); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.BundleBound)
		if c == nil || c.Status != step.status || step.reason != "" && (c.Reason != step.reason || !strings.Contains(c.Message, "Create it")) {
			t.Errorf("the Bundle says %+v", c)
		}
		got := meta.FindStatusCondition(b.reports.status(policyKey{ppKind, "shop", "web"}, v1alpha1.PropagationStatus{}, 1, &policy.Spec).Conditions, ConditionApplied)
		if got.Status != step.status || step.reason != "" && (got.Reason != step.reason || !strings.Contains(got.Message, "Placement shop/edge")) {
			t.Errorf("the policy says %+v", got)
		}
	}
}
