package placer

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// TestReplicasAvoidDisconnectedCluster checks that new replicas grow elsewhere while a cluster is
// disconnected, and that its connection divides them again. Nothing else does.
func TestReplicasAvoidDisconnectedCluster(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, r *Reconciler) {
		m.placeBundle("web", dividedPlacement, contentAsking("web", 4))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 2, b Active r1 2")
		m.setOnline("a", false)
		time.Sleep(time.Minute)
		expectRows(t, m, "web", "a Active r1 2, b Active r1 2")
		m.cutRevision("web", contentAsking("web", 10))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 2, b Active r2 8")
		p, err := r.PreviewBundle(t.Context(), m.bundles["web"])
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := p.Decision.FindVerdict("a"); !v.GetsNothingNew {
			t.Errorf("explained as %+v", v)
		}
		writes, _ := m.countsAfterWait()
		m.setOnline("b", false)
		m.setOnline("b", true)
		if now, _ := m.countsAfterWait(); now != writes {
			t.Errorf("a lost connection of a cluster that waits for nothing costs %d writes", now-writes)
		}
		m.setOnline("a", true)
		m.settleRows("web")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 5, b Active r2 5")
	})
}

// TestBundleAvoidsDisconnectedCluster checks that a new Bundle goes to connected clusters, and to the
// others when they connect, as far as it wants more.
func TestBundleAvoidsDisconnectedCluster(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	m.online["uid-a"], m.online["uid-b"] = false, false
	runReconciler(t, m, func(t *testing.T, _ *Reconciler) {
		m.placeBundle("one", v1alpha1.PlacementSpec{MaxClusters: 1}, &atoll.Content{})
		m.placeBundle("two", v1alpha1.PlacementSpec{MaxClusters: 2}, &atoll.Content{})
		m.placeBundle("all", v1alpha1.PlacementSpec{}, &atoll.Content{})
		expectRows(t, m, "one", "c Active r1")
		expectRows(t, m, "two", "c Active r1")
		expectRows(t, m, "all", "a Active r1, b Active r1, c Active r1")
		m.setOnline("a", true)
		expectRows(t, m, "one", "c Active r1")
		expectRows(t, m, "two", "a Active r1, c Active r1")
		m.setOnline("b", true)
		m.setOnline("c", false)
		time.Sleep(time.Hour)
		expectRows(t, m, "one", "c Active r1")
		expectRows(t, m, "two", "a Active r1, c Active r1")
	})
}

// TestLostFleetIsNotAvoided checks that the loss of most clusters at once changes no decision, as if the
// hub itself was cut off, and that a loss which lasts does.
func TestLostFleetIsNotAvoided(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d")
	runReconciler(t, m, func(t *testing.T, _ *Reconciler) {
		for _, name := range []string{"a", "b", "c"} {
			m.setOnline(name, false)
		}
		time.Sleep(time.Second)
		m.placeBundle("early", v1alpha1.PlacementSpec{MaxClusters: 4}, &atoll.Content{})
		expectRows(t, m, "early", "a Active r1, b Active r1, c Active r1, d Active r1")
		time.Sleep(massLossWindow + time.Second)
		m.placeBundle("late", v1alpha1.PlacementSpec{MaxClusters: 4}, &atoll.Content{})
		expectRows(t, m, "late", "d Active r1")
		m.setOnline("a", true)
		expectRows(t, m, "late", "a Active r1, d Active r1")
	})
}

// TestStartedHubCountsOnReadyClusters checks that a hub that sees few of the clusters which were ready
// before its start counts on all of them for a while.
func TestStartedHubCountsOnReadyClusters(t *testing.T) {
	m := newFakeHub()
	for _, name := range []string{"a", "b", "c"} {
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
		m.online["uid-"+name] = name == "a"
	}
	runReconciler(t, m, func(t *testing.T, _ *Reconciler) {
		time.Sleep(reconnectGrace + time.Minute)
		m.placeBundle("early", v1alpha1.PlacementSpec{MaxClusters: 3}, &atoll.Content{})
		expectRows(t, m, "early", "a Active r1, b Active r1, c Active r1")
		m.setOnline("b", true)
		expectRows(t, m, "early", "a Active r1, b Active r1, c Active r1")
		m.placeBundle("late", v1alpha1.PlacementSpec{MaxClusters: 3}, &atoll.Content{})
		expectRows(t, m, "late", "a Active r1, b Active r1")
	})
}

// TestMassLoss checks what counts as a loss of most clusters at once.
func TestMassLoss(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type loss struct {
		after  time.Duration
		before int
	}
	for name, tc := range map[string]struct {
		losses    []loss
		at        time.Duration
		connected int
		want      bool
	}{
		"no loss":                  {nil, 0, 0, false},
		"one of two":               {[]loss{{0, 2}}, 0, 1, false},
		"two of three":             {[]loss{{0, 3}, {time.Second, 2}}, time.Second, 1, true},
		"one of many":              {[]loss{{0, 1000}}, 0, 999, false},
		"most are back":            {[]loss{{0, 4}, {0, 3}, {0, 2}}, time.Minute, 2, false},
		"long ago":                 {[]loss{{0, 4}, {0, 3}, {0, 2}}, massLossWindow + 1, 1, false},
		"it goes on":               {[]loss{{0, 9}, {0, 8}, {0, 5}, {massLossWindow, 4}}, 2 * massLossWindow, 3, true},
		"few at a time, for long":  {[]loss{{0, 8}, {6 * time.Minute, 7}, {12 * time.Minute, 6}, {18 * time.Minute, 5}, {24 * time.Minute, 4}}, 24 * time.Minute, 3, false},
		"the window is over first": {[]loss{{0, 100}, {massLossWindow + 1, 99}, {massLossWindow + 2, 98}}, massLossWindow + 2, 40, true},
	} {
		var m massLoss
		for _, l := range tc.losses {
			m.recordLoss(start.Add(l.after), l.before)
		}
		if got := m.isUnderway(start.Add(tc.at), tc.connected); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestSupposedClusterCountsAsConnected checks that a preview gives replicas to a cluster that does not
// exist yet, and none to one that is disconnected.
func TestSupposedClusterCountsAsConnected(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	m.online["uid-b"] = false
	runReconciler(t, m, func(t *testing.T, r *Reconciler) {
		f, _ := r.forkForPreview(SupposedTables{}, nil)
		for name, want := range map[string]bool{"a": true, "b": false, "supposed": true} {
			c := &schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name}
			if got := f.isConnected(c); got != want {
				t.Errorf("%s counts as connected: %t", name, got)
			}
		}
	})
}
