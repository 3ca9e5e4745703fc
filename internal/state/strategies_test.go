package state

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// strategyFor returns a strategy of a namespace; without one it is enforced for the namespaces of a tier, if one is given.
func strategyFor(namespace, name, kind, tier string, generation int64) client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", Generation: generation}
	if namespace != "" {
		return &v1alpha1.RolloutStrategy{ObjectMeta: meta, Spec: v1alpha1.Rollout{Type: v1alpha1.RolloutType(kind)}}
	}
	out := &v1alpha1.ClusterRolloutStrategy{ObjectMeta: meta, Spec: v1alpha1.ClusterRolloutStrategySpec{Rollout: v1alpha1.Rollout{Type: v1alpha1.RolloutType(kind)}}}
	if tier != "" {
		out.Spec.EnforcedFor = &v1alpha1.StrategyEnforcement{NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}
	}
	return out
}

func namespaceOfTier(name, tier string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}
}

// describeStrategies returns the keys with the types of rollouts, and the strategies that are enforced for a tier.
func describeStrategies(s *RolloutStrategyTable, tier string) string {
	var out []string
	for _, one := range s.List() {
		r, ok := s.GetRollout(one.Key())
		out = append(out, fmt.Sprintf("%s=%s %v", one.Key(), r.Type, ok))
	}
	return fmt.Sprint(out) + fmt.Sprint(s.ListEnforcedFor(map[string]string{"tier": tier}))
}

// The table has strategies of both kinds, and those that are enforced. Subscribers are notified of specs alone.
func TestTableOfStrategies(t *testing.T) {
	s := newStrategies()
	var notified []types.NamespacedName
	s.Subscribe(func(key types.NamespacedName) { notified = append(notified, key) })
	expect := func(what, want string, keys ...types.NamespacedName) {
		t.Helper()
		if got := describeStrategies(s, "prod"); got != want || !slices.Equal(notified, keys) {
			t.Errorf("%s: %s after %v, want %s after %v", what, got, notified, want, keys)
		}
		notified = nil
	}
	own, all := types.NamespacedName{Namespace: "shop", Name: "a"}, types.NamespacedName{Name: "a"}
	s.put(strategyFor("shop", "a", "All", "", 1))
	s.put(strategyFor("", "a", "Staged", "", 1))
	s.put(&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	expect("two", "[/a=Staged true shop/a=All true][]", own, all)
	if _, ok := s.GetRollout(types.NamespacedName{Name: "none"}); ok {
		t.Error("a strategy that is not there has a rollout")
	}
	status := strategyFor("", "a", "Staged", "", 1).(*v1alpha1.ClusterRolloutStrategy)
	status.Status.Policies = 3
	s.put(status)
	expect("a status", "[/a=Staged true shop/a=All true][]")
	if is, _ := s.Get(all); is.Status.Policies != 3 || is.ToObject().(*v1alpha1.ClusterRolloutStrategy).Status.Policies != 3 {
		t.Errorf("the status is not in the table: %+v", is.Status)
	}
	s.put(strategyFor("", "a", "All", "prod", 2))
	s.put(strategyFor("", "b", "All", "prod", 1))
	expect("enforced", "[/a=All true /b=All true shop/a=All true][a b]", all, types.NamespacedName{Name: "b"})
	s.put(strategyFor("", "a", "All", "test", 3))
	s.removeObject(strategyFor("shop", "a", "All", "", 1))
	expect("for another tier", "[/a=All true /b=All true][b]", all, own)
	if is, _ := s.Get(own); is.Meta.Name != "" {
		t.Errorf("a deleted strategy: %+v", is)
	}
	s.removeObject(strategyFor("", "b", "All", "prod", 1))
	expect("deleted", "[/a=All true][]", types.NamespacedName{Name: "b"})
}

// A table as it would be has what is supposed, and the other one does not.
func TestSupposedStrategies(t *testing.T) {
	s := newStrategies()
	s.put(strategyFor("shop", "a", "All", "", 1))
	s.put(strategyFor("", "a", "All", "prod", 1))
	s.put(strategyFor("", "b", "All", "prod", 1))
	s.Subscribe(func(key types.NamespacedName) { t.Errorf("%s is notified", key) })
	next := s.SupposeWritten(strategyFor("shop", "a", "Staged", "", 1), deletedObject(strategyFor("", "a", "All", "prod", 1)), strategyFor("", "b", "Staged", "test", 1), strategyFor("", "c", "All", "prod", 0),
		&v1alpha1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	if got, want := describeStrategies(next, "prod"), "[/b=Staged true /c=All true shop/a=Staged true][c]"; got != want {
		t.Errorf("as supposed: %s, want %s", got, want)
	}
	if got, want := describeStrategies(s, "prod"), "[/a=All true /b=All true shop/a=All true][a b]"; got != want {
		t.Errorf("as before: %s, want %s", got, want)
	}
}

// A strategy as an object is of its kind, with all of it.
func TestStrategiesAsObjects(t *testing.T) {
	s := newStrategies()
	s.put(strategyFor("shop", "a", "All", "", 1))
	s.put(strategyFor("", "a", "Staged", "prod", 1))
	own, _ := s.Get(types.NamespacedName{Namespace: "shop", Name: "a"})
	all, _ := s.Get(types.NamespacedName{Name: "a"})
	if o, ok := own.ToObject().(*v1alpha1.RolloutStrategy); !ok || o.Spec.Type != v1alpha1.RolloutAll || o.Namespace != "shop" {
		t.Errorf("of a namespace: %+v", own.ToObject())
	}
	o, ok := all.ToObject().(*v1alpha1.ClusterRolloutStrategy)
	if !ok || o.Spec.Type != v1alpha1.RolloutStaged || o.Spec.EnforcedFor.NamespaceSelector.MatchLabels["tier"] != "prod" {
		t.Fatalf("of all: %+v", all.ToObject())
	}
	o.Spec.EnforcedFor.NamespaceSelector.MatchLabels["tier"] = "test"
	if got := s.ListEnforcedFor(map[string]string{"tier": "prod"}); len(got) != 1 || all.Spec.EnforcedFor.NamespaceSelector.MatchLabels["tier"] != "prod" {
		t.Errorf("the object shares what the table has: %v", got)
	}
}

// A deletion of a strategy counts the policies that name it, by kind, and the namespaces in which it is enforced.
func TestReferrersOfAStrategy(t *testing.T) {
	tables := &HubTables{Policies: newPolicies(), Strategies: newStrategies(), Namespaces: newNamespaces()}
	ref := func(kind, name string) v1alpha1.PropagationSpec {
		return v1alpha1.PropagationSpec{RolloutRef: &v1alpha1.RolloutRef{Kind: kind, Name: name}}
	}
	for _, p := range []v1alpha1.PropagationPolicy{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}, Spec: ref("", "web")},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "b"}, Spec: ref("RolloutStrategy", "web")},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}, Spec: ref("ClusterRolloutStrategy", "web")},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "blog", Name: "d"}, Spec: ref("", "web")},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "blog", Name: "e"}, Spec: v1alpha1.PropagationSpec{}},
	} {
		tables.Policies.put(&p)
	}
	tables.Policies.put(&v1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "f"}, Spec: ref("", "web")})
	for _, name := range []string{"first", "web"} {
		tables.Strategies.put(strategyFor("", name, "All", map[string]string{"first": "test", "web": "prod"}[name], 1))
	}
	for name, tier := range map[string]string{"shop": "prod", "blog": "prod", "lab": "test", "none": ""} {
		tables.Namespaces.put(namespaceOfTier(name, tier))
	}
	for _, c := range []struct {
		kind string
		key  types.NamespacedName
		want []Referrers
	}{
		{"RolloutStrategy", types.NamespacedName{Namespace: "shop", Name: "web"}, []Referrers{{"PropagationPolicy", 2}}},
		{"RolloutStrategy", types.NamespacedName{Namespace: "shop", Name: "none"}, nil},
		{"ClusterRolloutStrategy", types.NamespacedName{Name: "web"}, []Referrers{{"PropagationPolicy", 1}, {"ClusterPropagationPolicy", 1}, {"Namespace", 2}}},
		{"ClusterRolloutStrategy", types.NamespacedName{Name: "first"}, []Referrers{{"Namespace", 1}}},
	} {
		if got := tables.FindReferrers(c.kind, c.key); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %v, want %v", c.kind, c.key, got, c.want)
		}
	}
	tables.Strategies.put(strategyFor("", "a", "All", "prod", 1))
	if got := tables.FindReferrers("ClusterRolloutStrategy", types.NamespacedName{Name: "web"}); len(got) != 2 {
		t.Errorf("one that another outranks: %v", got)
	}
}
