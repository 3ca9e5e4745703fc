package placer

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// A Bundle that waits for an earlier group is returned when a cluster of that group is connected
// or lost, and only then.
func TestConnectedOrLost(t *testing.T) {
	own := func(name string) v1alpha1.ClusterAffinityTerm {
		return v1alpha1.ClusterAffinityTerm{AffinityName: "in-" + name, ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{name}}}
	}
	placement := v1alpha1.PlacementSpec{ClusterAffinities: []v1alpha1.ClusterAffinityTerm{own("a"), own("b")}}
	x := newBundleIndex()
	for _, uid := range []string{"waits", "placed"} {
		x.entries[uid] = &bundleEntry{uid: uid, filter: schedule.PlacementTerms{Placement: placement}.CompilePlacement(), failback: failbackState{group: "in-b"}}
	}
	x.connectionWaits["waits"], x.connectionWaits["gone"] = struct{}{}, struct{}{}
	for i, step := range []struct {
		cluster   string
		connected bool
		want      []string
	}{
		{"a", false, nil}, // it was not known to be connected
		{"a", true, []string{"waits"}},
		{"a", true, nil},
		{"b", true, nil},
		{"a", false, []string{"waits"}},
		{"a", false, nil},
	} {
		c := &schedule.Cluster{ClusterView: atoll.ClusterView{Name: step.cluster}, UID: "uid-" + step.cluster, Accepted: true}
		if got, _ := x.recordConnection(c, step.connected, time.Now(), func(string) bool { return false }); !slices.Equal(got, step.want) {
			t.Errorf("%d: %v, want %v", i, got, step.want)
		}
	}
}

// A Bundle goes to the next group when it is evicted from the first, comes back after the
// first has been in touch and fitting for the hold time, and is never without a place.
func TestFallBackAndFailback(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		online := func(cluster string, on bool) {
			m.mu.Lock()
			m.online["uid-"+cluster] = on
			m.mu.Unlock()
			for _, fn := range m.onCluster {
				fn(cluster)
			}
		}
		taint := func(taints ...v1alpha1.Taint) {
			m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = taints })
		}
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement = v1alpha1.PlacementSpec{
				ClusterAffinities: []v1alpha1.ClusterAffinityTerm{
					{AffinityName: "own", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
					{AffinityName: "cloud", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
				},
				Failback: &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{Duration: 10 * time.Minute}},
			}
		})
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r1")
		m.settleRows("web")
		taint(v1alpha1.Taint{Key: "down", Effect: corev1.TaintEffectNoExecute})
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		taint()
		time.Sleep(9 * time.Minute)
		expectRows(t, m, "web", "b Active r1")
		online("a", false) // the hold time ends, and starts again when the cluster is back
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "b Active r1")
		online("a", true)
		time.Sleep(9 * time.Minute)
		expectRows(t, m, "web", "b Active r1")
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r1, b Leaving r1")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
	})
}

// A preview during the hold time of a failback reports its end as it is, with the time that passed already.
func TestAPreviewKeepsTheHoldTime(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", func(c *v1alpha1.Cluster) {
		c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
	})
	addClusters(m, "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = ownThenCloudPlacement(10 * time.Minute) })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
		since := time.Now()
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		time.Sleep(4 * time.Minute)
		b, _ := fakeBundles{m}.Get("web")
		got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-1-r1", Content: m.contents["web-1-r1"]}})
		if err != nil {
			t.Fatal(err)
		}
		if d := got[0].Decision; d.PendingFailback.Group != "own" || !d.FailbackAt.Equal(since.Add(10*time.Minute)) || rowsText(got[0].After) != "b Active" {
			t.Errorf("group %q is foreseen at %s, want own at %s; rows %s", d.PendingFailback.Group, d.FailbackAt, since.Add(10*time.Minute), rowsText(got[0].After))
		}
	})
}
