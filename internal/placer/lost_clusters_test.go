package placer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// A lost cluster with the taint of the hub loses a Bundle to a replacement, which starts first. A Bundle of which two copies
// should not run stays, unless its order says that they may.
func TestALostClusterIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		content *atoll.Content
		order   v1alpha1.MoveOrder
		want    string
	}{
		"stateless":                {&atoll.Content{}, "", "a Leaving r1, b Active r1"},
		"with a volume":            {statefulSetContent(), "", "a Active r1"},
		"with a volume, surging":   {statefulSetContent(), v1alpha1.MoveSurge, "a Leaving r1, b Active r1"},
		"stateless, the old first": {&atoll.Content{}, v1alpha1.MoveRecreate, "a Active r1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement.MaxClusters, b.Spec.MoveOrder = 1, tc.order })
				m.cutRevision("web", tc.content)
				m.settleRows("web")
				expectRows(t, m, "web", "a Active r1")
				m.setOnline("a", false)
				m.changeCluster("a", func(c *v1alpha1.Cluster) {
					c.Spec.Taints = []v1alpha1.Taint{{Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute}}
				})
				expectRows(t, m, "web", "a Active r1") // nothing else fits
				addClusters(m, "b")
				expectRows(t, m, "web", tc.want)
			})
		})
	}
}

// The connection of a lost cluster decides about its old copy: it goes when the cluster is back and the replacement is
// healthy at that time.
func TestAnOldCopyGoesAtTheReturn(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement.MaxClusters = 1 })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		addClusters(m, "b")
		m.setOnline("a", false)
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute}}
		})
		m.settleRows("web")
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.setOnline("b", false)
		m.setOnline("a", true)
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.setOnline("b", true)
		expectRows(t, m, "web", "a Removing r1, b Active r1")
	})
}
