package decisions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

func chosenClusters(names ...string) map[string]v1alpha1.ClusterDecision {
	out := map[string]v1alpha1.ClusterDecision{}
	for _, n := range names {
		out[n] = v1alpha1.ClusterDecision{ClusterName: n, ClusterUID: "uid-" + n}
	}
	return out
}

func fleetNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("c%04d", i))
	}
	return names
}

// pages are what the store would have after the layout.
func apply(now []state.Decision, l objectChanges) []state.Decision {
	gone := map[string]bool{}
	for _, d := range slices.Concat(l.toWrite, l.toDelete) {
		gone[d.Meta.Name] = true
	}
	now = slices.DeleteFunc(slices.Clone(now), func(d state.Decision) bool { return gone[d.Meta.Name] })
	for _, d := range l.toWrite {
		d.Meta.ResourceVersion = "1"
		now = append(now, d)
	}
	slices.SortFunc(now, func(a, b state.Decision) int { return a.SequenceNumber() - b.SequenceNumber() })
	return now
}

func TestLayout(t *testing.T) {
	pl := state.Placement{Meta: metav1.ObjectMeta{Namespace: "shop", Name: "edge", UID: "u"}}
	now := apply(nil, arrangeDecisions(pl, nil, chosenClusters(fleetNames(250)...)))
	if len(now) != 3 || len(now[0].Status.Decisions) != 100 || len(now[2].Status.Decisions) != 50 {
		t.Fatalf("250 clusters are in %d objects", len(now))
	}
	if now[1].Meta.Name != "edge-decision-2" || now[1].Meta.Namespace != "shop" || now[1].Meta.Labels[v1alpha1.LabelPlacement] != "edge" {
		t.Errorf("the second is %+v", now[1].Meta)
	}
	if ref := metav1.GetControllerOf(&now[0].Meta); ref == nil || ref.UID != "u" || ref.Kind != "Placement" {
		t.Errorf("the owner is %+v", ref)
	}
	if l := arrangeDecisions(pl, now, chosenClusters(fleetNames(250)...)); len(l.toWrite)+len(l.toDelete) != 0 {
		t.Errorf("nothing changed, and %d are written", len(l.toWrite)+len(l.toDelete))
	}
	// One goes from the first object and another comes: that one is filled.
	next := slices.Delete(fleetNames(251), 7, 8)
	l := arrangeDecisions(pl, now, chosenClusters(next...))
	if len(l.toWrite) != 1 || l.toWrite[0].SequenceNumber() != 1 || len(l.toWrite[0].Status.Decisions) != 100 {
		t.Fatalf("a change of one place writes %+v", l.toWrite)
	}
	now = apply(now, l)
	// All of the second go.
	next = slices.DeleteFunc(next, func(n string) bool { return n >= "c0100" && n < "c0200" })
	l = arrangeDecisions(pl, now, chosenClusters(next...))
	if len(l.toWrite) != 0 || len(l.toDelete) != 1 || l.toDelete[0].SequenceNumber() != 2 {
		t.Fatalf("the second is empty: writes %d, drops %+v", len(l.toWrite), l.toDelete)
	}
	// An object without a valid number, or a copy, is deleted.
	stray := newDecision(pl, 9)
	stray.Meta.Name, stray.Meta.ResourceVersion = "mine", "1"
	if l = arrangeDecisions(pl, append(apply(now, l), stray), chosenClusters(next...)); len(l.toDelete) != 1 || l.toDelete[0].Meta.Name != "mine" {
		t.Errorf("a stray object stays: %+v", l.toDelete)
	}
	// Another cluster of the same name is another decision.
	again := chosenClusters("c0001")
	again["c0001"] = v1alpha1.ClusterDecision{ClusterName: "c0001", ClusterUID: "new"}
	one := apply(nil, arrangeDecisions(pl, nil, chosenClusters("c0001")))
	if l = arrangeDecisions(pl, one, again); len(l.toWrite) != 1 || l.toWrite[0].Status.Decisions[0].ClusterUID != "new" {
		t.Errorf("a cluster that was recreated: %+v", l.toWrite)
	}
}

// Clusters come and go. Every chosen cluster is in exactly one object of at most a hundred, a
// staying cluster does not move, and only objects with changes are written.
func TestLayoutProperties(t *testing.T) {
	pl := state.Placement{Meta: metav1.ObjectMeta{Name: "edge", UID: "u"}}
	r := rand.New(rand.NewPCG(4, 2))
	var now []state.Decision
	all := fleetNames(600)
	for range 200 {
		before, was := map[string]string{}, map[string][]v1alpha1.ClusterDecision{}
		for _, d := range now {
			was[d.Meta.Name] = d.Status.Decisions
			for _, c := range d.Status.Decisions {
				before[c.ClusterName] = d.Meta.Name
			}
		}
		share := r.Float64()
		chosen := chosenClusters(slices.DeleteFunc(slices.Clone(all), func(string) bool { return r.Float64() > share })...)
		l := arrangeDecisions(pl, now, chosen)
		for _, d := range l.toWrite {
			if slices.Equal(was[d.Meta.Name], d.Status.Decisions) {
				t.Fatalf("%s is written and did not change", d.Meta.Name)
			}
		}
		now = apply(now, l)
		seen := map[string]bool{}
		for _, d := range now {
			if len(d.Status.Decisions) == 0 || len(d.Status.Decisions) > v1alpha1.MaxDecisions {
				t.Fatalf("%s has %d", d.Meta.Name, len(d.Status.Decisions))
			}
			for _, c := range d.Status.Decisions {
				if old := before[c.ClusterName]; seen[c.ClusterName] || old != "" && old != d.Meta.Name {
					t.Fatalf("%s is twice, or moved from %q to %s", c.ClusterName, old, d.Meta.Name)
				}
				seen[c.ClusterName] = true
			}
		}
		if len(seen) != len(chosen) {
			t.Fatalf("%d are listed of %d", len(seen), len(chosen))
		}
	}
}
