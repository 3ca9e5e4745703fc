package placer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
)

// A member whose placement drops the term leaves its groups, and the members that wait for its cluster are decided.
func TestAMemberWithoutTheTermFreesItsCluster(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
		m.addMember("m1", keptApart(), nil)
		expectRows(t, m, "m1", "")
		m.changeBundle("m0", func(b *state.Bundle) { b.Spec.Placement.WorkloadAffinity = nil })
		expectRows(t, m, "m0", "a Active r1")
		expectRows(t, m, "m1", "a Active r1")
	})
}

// A member that stays in a drained or lost cluster because of another one leaves when that one leaves.
func TestAMemberThatCouldNotLeaveIsWoken(t *testing.T) {
	for name, taint := range map[string]v1alpha1.Taint{"drained": drained, "lost": {Key: v1alpha1.LossTaints[0], Effect: drained.Effect}} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.addMember("web", keptApart(), nil)
				m.settleRows("web")
				addClusters(m, "b")
				m.addMember("m1", keptApart(), nil)
				m.settleRows("m1")
				m.setTaints("a", taint)
				expectRows(t, m, "web", "a Active r1")
				m.deleteBundle("m1")
				m.settleRows("web")
				t.Log(m.rowsOf("web"))
				if got := m.clustersChosen("web"); len(got) != 1 || got[0] != "b" {
					t.Errorf("web is in %v: %s", got, m.rowsOf("web"))
				}
			})
		})
	}
}

// A member that a group of clusterAffinities refused goes there when the other member leaves.
func TestAMemberFailsBackWhenItsGroupLeaves(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
		addClusters(m, "b")
		m.addMember("m1", keptApart(), func(b *state.Bundle) {
			b.Spec.Placement.ClusterAffinities = []v1alpha1.ClusterAffinityTerm{
				{AffinityName: "first", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}},
				{AffinityName: "second", ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}},
			}
			b.Spec.Placement.Failback = &v1alpha1.Failback{Policy: v1alpha1.FailbackWhenHealthy, HoldTime: &metav1.Duration{}}
		})
		m.settleRows("m1")
		expectRows(t, m, "m1", "b Active r1")
		m.deleteBundle("m0")
		m.settleRows("m1")
		if got := m.clustersChosen("m1"); len(got) != 1 || got[0] != "a" {
			t.Errorf("m1 is in %v: %s", got, m.rowsOf("m1"))
		}
	})
}

// Members whose choices are held back, as by a freeze, come to rest: they do not wake each other again and again.
func TestMembersInAFreezeComeToRest(t *testing.T) {
	m, s := newFakeHub(), &fakeSettings{}
	addClusters(m, "a")
	runWith(t, m, func(c *Config) { c.Settings = s }, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
		s.setFreeze("alice", 0)
		addClusters(m, "b")
		for _, uid := range []string{"m1", "m2", "m3"} {
			m.addMember(uid, keptApart(), func(b *state.Bundle) { b.Spec.Placement.MaxClusters = 0 })
		}
		time.Sleep(time.Hour)
		_, steps := m.countsAfterWait()
		time.Sleep(time.Hour)
		if _, n := m.countsAfterWait(); n > steps+100 {
			t.Errorf("%d reads of rows in an hour of the freeze", n-steps)
		}
		s.setFreeze("", 0)
		synctest.Wait()
		time.Sleep(time.Hour)
		if all := slices.Concat(m.clustersChosen("m1"), m.clustersChosen("m2"), m.clustersChosen("m3")); !slices.Equal(all, []string{"b"}) {
			t.Errorf("after the freeze the members are in %v", all)
		}
	})
}

// A step under way counts in the groups that its Bundle has since then.
func TestADecisionCountsInLaterGroups(t *testing.T) {
	x, m := newGroupIndex(), newFakeHub()
	db, web := groupKey{"shop", "tier", "db"}, groupKey{"shop", "tier", "web"}
	set := func(key groupKey) {
		x.markBundleStale("shop", "m0", true)
		x.setMember(groupMember{uid: "m0", namespace: "shop", groups: []groupKey{key}}, x.copyStale("shop")["m0"], fakeRows{m}.ListOfBundle)
	}
	set(db)
	x.recordDecision("m0", map[string]bool{"a": true})
	set(web)
	for key, want := range map[groupKey]bool{db: false, web: true} {
		if got := x.othersIn("m1", key, true, nil).Others["a"]; got != want {
			t.Errorf("during the step: is m0 in %s: %t", key.value, got)
		}
	}
	x.endDecision("m0", fakeRows{m})
	if x.othersIn("m1", web, true, nil).Others["a"] {
		t.Error("a step that wrote nothing takes its cluster")
	}
}

// The last member of a group is free to choose when the other one leaves the cluster that both have.
func TestAMemberThatIsLeftAloneIsFree(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptTogether(), nil)
		m.settleRows("m0")
		m.addMember("m1", keptTogether(), func(b *state.Bundle) { b.Spec.Placement.MaxClusters = 0 })
		m.settleRows("m1")
		addClusters(m, "b")
		expectRows(t, m, "m1", "a Active r1")
		m.deleteBundle("m0")
		expectRows(t, m, "m1", "a Active r1, b Active r1")
	})
}
