package placer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/schedule"
)

// Among fitting clusters those with free capacity, beside reservations of others, are chosen.
func TestChosenClustersHaveRoom(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("big", withFreeCPUs(13))
	m.changeCluster("large", withFreeCPUs(5))
	for i := range 6 {
		m.changeCluster(fmt.Sprint("small", i), withFreeCPUs(1))
	}
	m.changeCluster("unknown", nil)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		p := byFreeCapacity
		p.MaxClusters = 1
		var went []string
		for i := range 4 { // of 4 replicas each: three fit into the big one, one into the large one
			uid := fmt.Sprint("web", i)
			m.placeBundle(uid, p, contentAsking(uid, 4))
			m.settleRows(uid)
			went = append(went, clustersHolding(m, uid)...)
		}
		if n := strings.Count(strings.Join(went, " "), "big"); n < 2 || n > 3 || strings.Contains(strings.Join(went, " "), "small") || strings.Contains(strings.Join(went, " "), "unknown") {
			t.Errorf("went to %s", went)
		}
	})
}

// withNodes is what a cluster's agent reports of one group of nodes, of which each has so many CPUs left.
func withNodes(labels map[string]string, freeCPUs, size int64) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		class := freecapacity.NodeClass{Nodes: 1, CPU: freeCPUs * 1000, Pods: 500}
		group := freecapacity.NodeGroup{Size: freecapacity.NodeClass{Nodes: 1, CPU: size * 1000, Pods: 500}, Labels: labels}
		c.Status.Resources.FreeCapacity = freecapacity.NodeClasses{class}.WithGroups([]freecapacity.NodeGroup{group}, []int32{1}, nil).ToStatus()
	}
}

// contentSelectingGPU is a Deployment of one pod of two CPUs that selects nodes, whose replicas may be divided.
func contentSelectingGPU(divided bool, replicas int) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, APIVersion: "apps/v1", UID: "web", Divided: divided,
		Object: fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":%d,"template":{"spec":{"nodeSelector":{"pool":"gpu"},"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}}}`, replicas),
	}}}
}

// Undivided pods go where nodes that they select have room, and where they fit nowhere now, to the clusters where they fit
// first. Running pods stay. An agent that reports no labels keeps nothing away.
func TestPodsChooseClustersOfTheirNodes(t *testing.T) {
	gpu, cpu := map[string]string{"pool": "gpu"}, map[string]string{"pool": "cpu"}
	m := newFakeHub()
	for i := range 5 {
		m.changeCluster(fmt.Sprint("cpu", i), withNodes(cpu, 30, 64))
	}
	m.changeCluster("free", withNodes(gpu, 3, 8))
	m.changeCluster("full", withNodes(gpu, 1, 8))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{MaxClusters: 1}, contentSelectingGPU(false, 1))
		m.settleRows("web")
		expectRows(t, m, "web", "free Active r1")
		m.changeCluster("free", withNodes(gpu, 0, 8))
		time.Sleep(time.Minute)
		expectRows(t, m, "web", "free Active r1")
		m.placeBundle("later", v1alpha1.PlacementSpec{MaxClusters: 2}, contentSelectingGPU(false, 1))
		m.settleRows("later")
		expectRows(t, m, "later", "free Active r1, full Active r1")
		m.changeCluster("old", withFreeCPUs(9))
		time.Sleep(time.Minute) // the cluster is known
		m.placeBundle("other", v1alpha1.PlacementSpec{MaxClusters: 1}, contentSelectingGPU(false, 1))
		m.settleRows("other")
		expectRows(t, m, "other", "old Active r1")
		b, _ := r.Bundles.Get("other")
		b.Spec.Placement.MaxClusters = 0
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for cluster, want := range map[string]schedule.FitTime{"cpu0": schedule.FitNever, "free": schedule.FitAfterScaleUp, "full": schedule.FitAfterScaleUp, "old": ""} {
			if v, ok := p.Decision.FindVerdict(cluster); !ok || v.Outcome != schedule.OutcomePlaced || v.PodFit().When != want {
				t.Errorf("%s: %+v, want it placed, and %q", cluster, v.PodFit(), want)
			}
		}
	})
}

// Replicas that lack a place are explained by the nodes of the clusters that hold the Bundle.
func TestExplainShortage(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withNodes(map[string]string{"pool": "cpu"}, 9, 16))
	m.changeCluster("b", withNodes(map[string]string{"pool": "gpu"}, 5, 16))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", byFreeCapacity, contentSelectingGPU(true, 5))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 0, b Active r1 2")
		workloads, err := schedule.WorkloadsOf(contentSelectingGPU(true, 5))
		if err != nil {
			t.Fatal(err)
		}
		const want = "they fit after scale-up of the nodes in b"
		if got := r.ExplainShortage("web", &workloads[0]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		b, _ := r.Bundles.Get("web")
		if p, err := r.PreviewBundle(t.Context(), b); err != nil || len(p.Output.Shortages) != 1 || p.Output.Shortages[0].Fit != want {
			t.Errorf("previewed: %+v, %v", p.Output.Shortages, err)
		}
		m.changeCluster("a", withNodes(map[string]string{"pool": "gpu"}, 9, 16))
		time.Sleep(2 * freeCapacityDebounce)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 2")
		m.changeCluster("a", withNodes(map[string]string{"pool": "cpu"}, 3, 16))
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.Status.Resources.FreeCapacity = nil })
		if got := r.ExplainShortage("web", &workloads[0]); got != "" {
			t.Errorf("without a report of b: %q", got)
		}
		if got := r.ExplainShortage("none", &workloads[0]); got != "" {
			t.Errorf("of no Bundle: %q", got)
		}
	})
}
