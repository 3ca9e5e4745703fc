package placer

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// TestAChangeDuringAStepIsNotLost: whatever becomes of a cluster between what a step
// reads and what it writes, the rows end as a look at everything would have them.
func TestAChangeDuringAStepIsNotLost(t *testing.T) {
	tainted := func(c *v1alpha1.Cluster) {
		c.Spec.Taints = []v1alpha1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	}
	cleared := func(c *v1alpha1.Cluster) { c.Spec.Taints = nil }
	cases := map[string]struct {
		// before the step a's change is in the table, and maybe not compared; during is
		// between the step's reading and its writing.
		before, during func(m *fakeHub, r *PlacementReconciler)
		rows           string
	}{
		"undone before it was compared": {
			before: func(m *fakeHub, _ *PlacementReconciler) { m.changeCluster("a", tainted) },
			during: func(m *fakeHub, r *PlacementReconciler) {
				m.changeCluster("a", cleared)
				r.handleClusterChange(t.Context(), "a")
			},
			rows: "a Active r2, b Active r2",
		},
		"undone after it was compared": {
			before: func(m *fakeHub, r *PlacementReconciler) {
				m.changeCluster("a", tainted)
				r.handleClusterChange(t.Context(), "a")
			},
			during: func(m *fakeHub, r *PlacementReconciler) {
				m.changeCluster("a", cleared)
				r.handleClusterChange(t.Context(), "a")
			},
			rows: "a Active r2, b Active r2",
		},
		"a cluster comes, and does not fit any more when its row does": {
			before: func(m *fakeHub, r *PlacementReconciler) {
				m.changeCluster("c", nil)
				r.handleClusterChange(t.Context(), "c")
			},
			during: func(m *fakeHub, r *PlacementReconciler) {
				m.changeCluster("c", tainted)
				r.handleClusterChange(t.Context(), "c")
			},
			rows: "a Active r2, b Active r2, c Active r2",
		},
		"a cluster comes, and is gone when its row comes": {
			before: func(m *fakeHub, r *PlacementReconciler) {
				m.changeCluster("c", nil)
				r.handleClusterChange(t.Context(), "c")
			},
			during: func(m *fakeHub, r *PlacementReconciler) {
				m.deleteCluster("c")
				r.handleClusterChange(t.Context(), "c")
			},
			rows: "a Active r2, b Active r2",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newFakeHub()
				m.changeCluster("a", nil)
				m.changeCluster("b", nil)
				r, shutDown := newIdleReconciler(m)
				defer shutDown()
				step := func() {
					if err := r.reconcileBundle(t.Context(), "web"); err != nil {
						t.Fatal(err)
					}
				}
				m.changeBundle("web", nil)
				m.cutRevision("web", newRegionalContent(1))
				step()
				m.cutRevision("web", newRegionalContent(2))
				tc.before(m, r)
				m.beforeWrite = func() { tc.during(m, r) }
				step()
				step()
				expectRows(t, m, "web", tc.rows)
				if p, err := r.PreviewBundle(t.Context(), m.bundles["web"]); err != nil || len(p.Output.Changes) > 0 {
					t.Errorf("a look at everything would still change %+v, %v", p.Output.Changes, err)
				}
			})
		})
	}
}
