package placer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
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
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
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
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		for _, name := range []string{"a", "b", "c"} {
			m.setOnline(name, false)
		}
		time.Sleep(time.Second)
		m.placeBundle("early", v1alpha1.PlacementSpec{MaxClusters: 4}, &atoll.Content{})
		expectRows(t, m, "early", "a Active r1, b Active r1, c Active r1, d Active r1")
		time.Sleep(lossWindow + time.Second)
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
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		time.Sleep(reconnectGrace + time.Minute)
		m.placeBundle("early", v1alpha1.PlacementSpec{MaxClusters: 3}, &atoll.Content{})
		expectRows(t, m, "early", "a Active r1, b Active r1, c Active r1")
		m.setOnline("b", true)
		expectRows(t, m, "early", "a Active r1, b Active r1, c Active r1")
		m.placeBundle("late", v1alpha1.PlacementSpec{MaxClusters: 3}, &atoll.Content{})
		expectRows(t, m, "late", "a Active r1, b Active r1")
	})
}

// TestRecentLosses checks which lost clusters decisions count on.
func TestRecentLosses(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type loss struct {
		after   time.Duration
		cluster string
	}
	for name, tc := range map[string]struct {
		losses    []loss
		at        time.Duration
		connected int
		want      string
	}{
		"no loss":                    {nil, 0, 0, ""},
		"one of two":                 {[]loss{{0, "a"}}, 0, 1, ""},
		"two of three":               {[]loss{{0, "a"}, {time.Second, "b"}}, time.Second, 1, "a b"},
		"half of them":               {[]loss{{0, "a"}, {0, "b"}}, 0, 2, ""},
		"long ago":                   {[]loss{{0, "a"}, {0, "b"}}, lossWindow + 1, 1, ""},
		"some long ago":              {[]loss{{0, "a"}, {1, "b"}, {2, "c"}}, lossWindow + 1, 1, "b c"},
		"some are too few":           {[]loss{{0, "a"}, {1, "b"}, {2, "c"}}, lossWindow + 2, 1, ""},
		"lost again":                 {[]loss{{0, "a"}, {lossWindow, "a"}, {lossWindow, "b"}}, lossWindow + 1, 1, "a b"},
		"few at a time and for long": {[]loss{{0, "a"}, {lossWindow + 1, "b"}, {2*lossWindow + 2, "c"}}, 2*lossWindow + 2, 2, ""},
	} {
		l := recentLosses{at: map[string]time.Time{}}
		for _, one := range tc.losses {
			l.add(one.cluster, start.Add(one.after))
		}
		var got []string
		for _, cluster := range []string{"a", "b", "c", "d"} {
			if l.mayBeHubOutage(cluster, tc.connected, start.Add(tc.at)) {
				got = append(got, cluster)
			}
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: counts on %v", name, got)
		}
	}
}

// TestLongDisconnectedClusterGetsNothing checks that the loss of most of the fleet, and a restart of the
// hub, give nothing to clusters that were disconnected before.
func TestLongDisconnectedClusterGetsNothing(t *testing.T) {
	m := newFakeHub()
	for _, name := range []string{"a", "b", "c", "d"} {
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
	}
	m.changeCluster("never", nil)
	m.online["uid-never"] = false
	p := placementNamed("a", "b")
	p.ReplicaScheduling = dividedPlacement.ReplicaScheduling
	expectUnchanged := func(t *testing.T) {
		t.Helper()
		for range 6 {
			m.settleRows("web")
			time.Sleep(10 * time.Minute)
		}
		expectRows(t, m, "web", "a Active r3 2, b Active r3 8")
		expectRows(t, m, "four", "b Active r1, c Active r1, d Active r1")
		if held := m.takeWarnings(); len(held) > 0 {
			t.Errorf("warnings: %v", held)
		}
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", p, contentAsking("web", 4))
		m.settleRows("web")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Status.Conditions[0].Status = metav1.ConditionUnknown })
		m.setOnline("a", false)
		time.Sleep(24 * time.Hour)
		m.cutRevision("web", contentAsking("web", 10))
		m.placeBundle("four", v1alpha1.PlacementSpec{MaxClusters: 4}, &atoll.Content{})
		m.settleRows("web")
		for _, name := range []string{"b", "c"} {
			m.setOnline(name, false)
		}
		time.Sleep(time.Second)
		m.cutRevision("web", contentAsking("web", 10)) // another image
		m.settleRows("web")
		for _, name := range []string{"b", "c"} {
			m.setOnline(name, true)
		}
		expectUnchanged(t)
	})
	m.onBundle, m.onRows, m.onCluster, m.onRevision, m.onNamespace, m.onHub = nil, nil, nil, nil, nil, nil
	for _, name := range []string{"b", "c", "d"} {
		m.online["uid-"+name] = false // until they come back a moment later
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		time.Sleep(5 * time.Second)
		for _, name := range []string{"b", "c", "d"} {
			m.setOnline(name, true)
		}
		expectUnchanged(t)
	})
}

// TestDeletedClustersAreNotLost checks that a cluster is disconnected although others were deleted.
func TestDeletedClustersAreNotLost(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d", "e", "f")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.setOnline("a", false)
		for _, name := range []string{"c", "d", "e"} {
			m.deleteCluster(name)
		}
		time.Sleep(time.Second)
		m.placeBundle("three", v1alpha1.PlacementSpec{MaxClusters: 3}, &atoll.Content{})
		expectRows(t, m, "three", "b Active r1, f Active r1")
	})
}

// TestConnectionDuringStepIsNotLost checks that a cluster which connects while a step leaves it out gets its
// part.
func TestConnectionDuringStepIsNotLost(t *testing.T) {
	for name, tc := range map[string]struct {
		placement v1alpha1.PlacementSpec
		content   *atoll.Content
		want      string
	}{
		"a choice":   {v1alpha1.PlacementSpec{MaxClusters: 2}, &atoll.Content{}, "a Active r1, b Active r1"},
		"a division": {dividedPlacement, contentAsking("web", 10), "a Active r1 5, b Active r1 5"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a", "b")
			m.online["uid-a"] = false
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.beforeWrite = func() {
					m.setOnline("a", true)
					time.Sleep(time.Second) // it is compared
				}
				m.placeBundle("web", tc.placement, tc.content)
				for range 3 {
					m.settleRows("web")
					time.Sleep(time.Hour)
				}
				expectRows(t, m, "web", tc.want)
			})
		})
	}
}

// TestConnectionOfClusterThatAdmitsNoNewcomers checks that a cluster which may only keep what it has gets its
// share again.
func TestConnectionOfClusterThatAdmitsNoNewcomers(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		day := int64(90000)
		p := dividedPlacement
		p.ClusterTolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: &day}}
		m.placeBundle("web", p, contentAsking("web", 4))
		m.settleRows("web")
		now := metav1.NewTime(time.Now())
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute, TimeAdded: &now}}
		})
		m.settleRows("web")
		m.setOnline("a", false)
		m.cutRevision("web", contentAsking("web", 10))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 2, b Active r2 8")
		m.setOnline("a", true)
		m.settleRows("web")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 5, b Active r2 5")
	})
}

// TestOtherConnectionsCostNothing counts the steps of Bundles that wait for a cluster while another one
// is lost and connects.
func TestOtherConnectionsCostNothing(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d", "e")
	m.online["uid-a"] = false
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		for i := range 50 {
			m.placeBundle(fmt.Sprint("web", i), dividedPlacement, contentAsking("web", 10))
			m.settleRows(fmt.Sprint("web", i))
		}
		time.Sleep(time.Minute)
		_, before := m.countsAfterWait()
		m.setOnline("b", false)
		m.setOnline("b", true)
		time.Sleep(time.Minute)
		if _, after := m.countsAfterWait(); after != before {
			t.Errorf("they made %d steps", after-before)
		}
	})
}

// TestSupposedClusterCountsAsConnected checks that a preview gives replicas to a cluster that does not
// exist yet, and none to one that is disconnected.
func TestSupposedClusterCountsAsConnected(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	m.online["uid-b"] = false
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		f, _ := r.forkForPreview(SupposedTables{}, nil)
		for name, want := range map[string]bool{"a": true, "b": false, "supposed": true} {
			c := &schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name}
			if got := f.isConnected(c); got != want {
				t.Errorf("%s counts as connected: %t", name, got)
			}
		}
	})
}
