package placer

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// The Bundle's removal mode decides whether an edit takes rows out at once.
func TestRemovalBudgetOfABundle(t *testing.T) {
	for _, tc := range []struct {
		budget intstr.IntOrString
		want   string
	}{
		{intstr.FromInt32(0), "a Active r1, b Held r1"},
		{intstr.FromInt32(1), "a Active r1, b Removing r1"},
	} {
		t.Run(tc.budget.String(), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				set := func(p v1alpha1.PlacementSpec) {
					m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = p, &tc.budget })
				}
				set(placementNamed("a", "b"))
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				set(placementNamed("a"))
				expectRows(t, m, "web", tc.want)
			})
		})
	}
}

// A cluster whose labels drift keeps what it runs, unless the Bundle says otherwise.
func TestWhenUnfitOfABundle(t *testing.T) {
	for unfit, then := range map[v1alpha1.WhenUnfit]string{
		v1alpha1.UnfitKeep:   "a Active r1, b Active r1",
		v1alpha1.UnfitRemove: "a Removing r1, b Active r1",
	} {
		t.Run(string(unfit), func(t *testing.T) {
			m := newFakeHub()
			prod := map[string]string{"env": "prod"}
			for _, name := range []string{"a", "b"} {
				m.changeCluster(name, func(c *v1alpha1.Cluster) { c.Labels = prod })
			}
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.WhenUnfit = placementLabelled(prod), unfit })
				m.cutRevision("web", &atoll.Content{})
				m.settleRows("web")
				m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = nil })
				expectRows(t, m, "web", then)
			})
		})
	}
}

// A move removes the old copy first where the Bundle states it, or where its content has copies of which
// two should not run. A disconnected cluster delays a replacement only where it is stated.
func TestMoveOrderOfABundle(t *testing.T) {
	claim := &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}, Object: []byte(`{}`)}}}
	for name, tc := range map[string]struct {
		order       v1alpha1.MoveOrder
		content     *atoll.Content
		away, moved string
	}{
		"nothing stated":          {"", &atoll.Content{}, "a Leaving r1, b Active r1", "a Leaving r1, b Active r1"},
		"stated":                  {v1alpha1.MoveRecreate, &atoll.Content{}, "a Removing r1", "a Removing r1"},
		"a claim":                 {"", claim, "a Leaving r1, b Active r1", "a Removing r1"},
		"a claim with Surge":      {v1alpha1.MoveSurge, claim, "a Leaving r1, b Active r1", "a Leaving r1, b Active r1"},
		"a claim, stated as well": {v1alpha1.MoveRecreate, claim, "a Removing r1", "a Removing r1"},
	} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, connected %t", name, connected), func(t *testing.T) {
				m := newFakeHub()
				addClusters(m, "a", "b")
				runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
					place := func(cluster string) {
						m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed(cluster), tc.order })
					}
					place("a")
					m.cutRevision("web", tc.content)
					m.settleRows("web")
					want := tc.moved
					if !connected {
						m.setOnline("a", false)
						want = tc.away
					}
					place("b")
					expectRows(t, m, "web", want)
					m.setOnline("a", true)
					m.settleRows("web")
					expectRows(t, m, "web", "b Active r1")
				})
			})
		}
	}
}

// A replacement that waits for the old copy by default comes when the old cluster is disconnected, and one that
// is stated to wait comes when the policy does not state it any more.
func TestReplacementsThatStopWaiting(t *testing.T) {
	set := &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}, Object: []byte(`{}`)}}}
	for name, tc := range map[string]struct {
		order v1alpha1.MoveOrder
		then  func(m *fakeHub)
	}{
		"disconnected": {"", func(m *fakeHub) { m.setOnline("a", false) }},
		"edited": {v1alpha1.MoveRecreate, func(m *fakeHub) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.MoveOrder = v1alpha1.MoveSurge })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement, b.Spec.MoveOrder = placementNamed("a"), tc.order })
				m.cutRevision("web", set)
				m.settleRows("web")
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
				expectRows(t, m, "web", "a Removing r1")
				tc.then(m)
				expectRows(t, m, "web", "a Removing r1, b Active r1")
			})
		})
	}
}
