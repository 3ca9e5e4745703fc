package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

func memberCluster(name string, labels map[string]string) *v1alpha1.Cluster {
	return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func exclusiveSet(name string) *v1alpha1.ClusterSet {
	return &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSetSpec{
		ClusterSelector: v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectExclusively},
	}}
}

func selectingSet(name string, labels map[string]string) *v1alpha1.ClusterSet {
	return &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSetSpec{
		ClusterSelector: v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}},
	}}
}

func openSet(set *v1alpha1.ClusterSet) *v1alpha1.ClusterSet {
	set.Spec.UnboundNamespaces = v1alpha1.UnboundAllow
	return set
}

func setBinding(ns, set string) *v1alpha1.ClusterSetBinding {
	return &v1alpha1.ClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: set}, Spec: v1alpha1.ClusterSetBindingSpec{ClusterSet: set}}
}

// recordNotifications collects what a table tells its subscribers until it is asked.
func recordNotifications(subscribe func(func(string))) func() []string {
	var names []string
	subscribe(func(name string) { names = append(names, name) })
	return func() []string {
		defer func() { names = nil }()
		slices.Sort(names)
		return names
	}
}

// The fields clusterSelector.selectorType and clusterSelector.labelSelector.
func TestSetsOfClusters(t *testing.T) {
	clusters := newClusters()
	sets := newSets(clusters)
	news := recordNotifications(clusters.Subscribe)
	clusters.put(memberCluster("tokyo", map[string]string{"env": "prod", "atoll.dev/set": "asia"}))
	clusters.put(memberCluster("oslo", map[string]string{"env": "prod"}))
	clusters.put(memberCluster("lima", map[string]string{"atoll.dev/set": "nosuch"}))
	news()
	is := func(when string, want map[string][]string, changed ...string) {
		t.Helper()
		for name, in := range want {
			if got := clusters.SetsOfCluster(name); !slices.Equal(got, in) {
				t.Errorf("%s: %s is in %q, not in %q", when, name, got, in)
			}
		}
		if got := news(); !slices.Equal(got, changed) {
			t.Errorf("%s: notified of %q, not of %q", when, got, changed)
		}
	}
	is("before any set", map[string][]string{"tokyo": nil, "oslo": nil, "lima": nil})
	sets.put(exclusiveSet("asia"))
	is("an exclusive set", map[string][]string{"tokyo": {"asia"}, "oslo": nil, "lima": nil}, "tokyo")
	sets.put(selectingSet("default", nil))
	is("a set of all", map[string][]string{"tokyo": {"asia", "default"}, "oslo": {"default"}, "lima": {"default"}}, "lima", "oslo", "tokyo")
	sets.put(selectingSet("prod", map[string]string{"env": "prod"}))
	is("a set by labels", map[string][]string{"tokyo": {"asia", "default", "prod"}, "oslo": {"default", "prod"}, "lima": {"default"}}, "oslo", "tokyo")
	sets.put(openSet(selectingSet("prod", map[string]string{"env": "prod"})))
	is("an edit of what else a set says", nil)
	clusters.put(memberCluster("oslo", map[string]string{"atoll.dev/set": "asia"}))
	is("other labels", map[string][]string{"oslo": {"asia", "default"}}, "oslo")
	sets.put(selectingSet("asia", map[string]string{"atoll.dev/set": "nosuch"}))
	is("a set that is exclusive no more", map[string][]string{"tokyo": {"default", "prod"}, "oslo": {"default"}, "lima": {"asia", "default"}}, "lima", "oslo", "tokyo")
	sets.removeObject(exclusiveSet("asia"))
	sets.removeObject(selectingSet("default", nil))
	is("sets that are gone", map[string][]string{"tokyo": {"prod"}, "oslo": nil, "lima": nil}, "lima", "lima", "oslo", "tokyo")
	clusters.removeObject(memberCluster("tokyo", nil))
	is("a cluster that is gone", map[string][]string{"tokyo": nil}, "tokyo")
}

// The sets of a cluster are those that its labels give, after any order of events.
func TestSetsAreKeptUpWithAnyOrderOfChanges(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		clusters := newClusters()
		sets := newSets(clusters)
		labels, defs := map[string]map[string]string{}, map[string]*v1alpha1.ClusterSet{}
		for range 200 {
			name := fmt.Sprint("s", rng.IntN(4))
			switch rng.IntN(5) {
			case 0:
				defs[name] = exclusiveSet(name)
				sets.put(defs[name])
			case 1:
				defs[name] = selectingSet(name, map[string]string{"env": fmt.Sprint(rng.IntN(3))})
				sets.put(defs[name])
			case 2:
				if defs[name] != nil {
					sets.removeObject(defs[name])
					delete(defs, name)
				}
			default:
				c := fmt.Sprint("c", rng.IntN(6))
				labels[c] = map[string]string{"env": fmt.Sprint(rng.IntN(3)), "atoll.dev/set": fmt.Sprint("s", rng.IntN(4))}
				clusters.put(memberCluster(c, labels[c]))
			}
		}
		for c, of := range labels {
			var want []string
			for _, name := range []string{"s0", "s1", "s2", "s3"} {
				d := defs[name]
				if d == nil {
					continue
				}
				byLabels := d.Spec.ClusterSelector.LabelSelector
				if byLabels == nil && of["atoll.dev/set"] == name || byLabels != nil && byLabels.MatchLabels["env"] == of["env"] {
					want = append(want, name)
				}
			}
			if got := clusters.SetsOfCluster(c); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s is in %q, not in %q", seed, c, got, want)
			}
			if got := clusters.SetsOfLabels(of); !slices.Equal(got, want) {
				t.Fatalf("seed %d: labels of %s are in %q, not in %q", seed, c, got, want)
			}
		}
	}
}

// Clusters that are in the same sets share one list of them.
func TestSetsAreShared(t *testing.T) {
	clusters := newClusters()
	newSets(clusters).put(selectingSet("default", nil))
	clusters.put(memberCluster("a", nil))
	clusters.put(memberCluster("b", nil))
	a, b := clusters.SetsOfCluster("a"), clusters.SetsOfCluster("b")
	if len(a) != 1 || len(b) != 1 || &a[0] != &b[0] {
		t.Errorf("a has %q, b has %q, each its own", a, b)
	}
}

// The fields clusterSet of a binding and unboundNamespaces of a set.
func TestBoundSets(t *testing.T) {
	sets := newSets(newClusters())
	news := recordNotifications(sets.Subscribe)
	is := func(when, ns string, want []string, changed ...string) {
		t.Helper()
		if got := sets.AllowedSets(ns); !slices.Equal(got, want) {
			t.Errorf("%s: %s may place on %q, not on %q", when, ns, got, want)
		}
		if got := news(); !slices.Equal(got, changed) {
			t.Errorf("%s: notified of %q, not of %q", when, got, changed)
		}
	}
	is("without anything", "shop", nil)
	sets.put(openSet(selectingSet("default", nil)))
	is("the set that is open", "shop", []string{"default"}, "")
	sets.put(setBinding("shop", "prod"))
	is("a binding takes the open set away", "shop", []string{"prod"}, "shop")
	is("a namespace without one", "blog", []string{"default"})
	sets.put(setBinding("shop", "asia"))
	sets.put(setBinding("shop", "asia"))
	is("two bindings", "shop", []string{"asia", "prod"}, "shop")
	sets.put(selectingSet("default", nil))
	is("the switch is strict", "blog", nil, "")
	is("which bindings do not care for", "shop", []string{"asia", "prod"})
	sets.removeObject(setBinding("shop", "asia"))
	sets.removeObject(setBinding("shop", "prod"))
	is("no binding any more", "shop", nil, "shop", "shop")
	if !sets.HasUniversalSet([]string{"prod", "default"}) || sets.HasUniversalSet([]string{"prod"}) || sets.HasUniversalSet(nil) {
		t.Error("only default holds all clusters")
	}
	sets.put(selectingSet("default", map[string]string{"env": "prod"}))
	if sets.HasUniversalSet([]string{"default"}) {
		t.Error("a set with a selector holds not all clusters")
	}
}

// TestNumbersOfClustersInSets walks randomly over clusters and sets, and compares the numbers with a count of
// all clusters. Each change of a number must be notified.
func TestNumbersOfClustersInSets(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	clusters := newClusters()
	sets := newSets(clusters)
	notified := recordNotifications(sets.SubscribeSets)
	shown := map[string]int{}
	for range 3000 {
		name := fmt.Sprintf("c%d", random.IntN(6))
		labels := map[string]string{"env": []string{"prod", "dev"}[random.IntN(2)], "atoll.dev/set": []string{"asia", "eu", ""}[random.IntN(3)]}
		switch random.IntN(5) {
		case 0:
			clusters.removeObject(memberCluster(name, nil))
		case 1:
			sets.put([]*v1alpha1.ClusterSet{exclusiveSet("asia"), exclusiveSet("eu"), selectingSet("prod", map[string]string{"env": "prod"})}[random.IntN(3)])
		case 2:
			sets.removeObject([]*v1alpha1.ClusterSet{exclusiveSet("asia"), exclusiveSet("eu"), selectingSet("prod", nil)}[random.IntN(3)])
		default:
			clusters.put(memberCluster(name, labels))
		}
		names := notified()
		for _, set := range []string{"asia", "eu", "prod"} {
			want := 0
			for _, c := range clusters.List() {
				if slices.Contains(clusters.SetsOfCluster(c.Name), set) {
					want++
				}
			}
			if got := sets.CountClusters(set); got != want {
				t.Fatalf("%s has %d clusters, and %d are counted", set, want, got)
			}
			if _, exists := sets.Get(set); exists && shown[set] != want && !slices.Contains(names, set) {
				t.Fatalf("%s has %d clusters after %d, and nothing notified of it", set, want, shown[set])
			}
			shown[set] = want
		}
	}
}
