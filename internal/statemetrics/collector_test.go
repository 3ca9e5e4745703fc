package statemetrics

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/state"
)

// tables are tables that a test fills.
type tables struct {
	bundles  map[string]state.Bundle
	clusters map[string]*v1alpha1.Cluster
	rows     map[[2]string]rowcodec.Summary
	bundle   func(uid string)
	cluster  func(name string)
	row      func([]state.RowTransition)
}

type bundleTable struct{ *tables }
type clusterTable struct{ *tables }

func (t bundleTable) Get(uid string) (state.Bundle, bool) { b, ok := t.bundles[uid]; return b, ok }
func (t bundleTable) Subscribe(fn func(string))           { t.bundle = fn }
func (t clusterTable) Get(name string) (*v1alpha1.Cluster, bool) {
	c, ok := t.clusters[name]
	return c, ok
}
func (t clusterTable) Subscribe(fn func(string))                      { t.cluster = fn }
func (t *tables) SubscribeTransitions(fn func([]state.RowTransition)) { t.row = fn }

func newTables() (*tables, *StateCollector) {
	t := &tables{bundles: map[string]state.Bundle{}, clusters: map[string]*v1alpha1.Cluster{}, rows: map[[2]string]rowcodec.Summary{}}
	return t, New(Tables{Bundles: bundleTable{t}, Clusters: clusterTable{t}, Rows: t})
}

func (t *tables) putBundle(uid string, st v1alpha1.BundleStatus) {
	t.bundles[uid] = state.Bundle{Ref: enginev1.BundleRef{UID: uid}, Status: st}
	t.bundle(uid)
}

func (t *tables) dropBundle(uid string) {
	delete(t.bundles, uid)
	t.bundle(uid)
}

func (t *tables) putRow(bundle, cluster string, row rowcodec.Summary) {
	key := [2]string{bundle, cluster}
	t.row([]state.RowTransition{{Bundle: bundle, Cluster: cluster, Before: t.rows[key], After: row}})
	t.rows[key] = row
}

func newCondition(kind string, status metav1.ConditionStatus, reason string, since time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}
}

func expectValues(t *testing.T, c *StateCollector, metric, want string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	got, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range got {
		for _, m := range family.Metric {
			if value := m.GetGauge().GetValue(); family.GetName() == metric && value != 0 {
				labels := ""
				for _, l := range m.Label {
					labels += l.GetValue() + " "
				}
				lines = append(lines, fmt.Sprintf("%s%v", labels, value))
			}
		}
	}
	if text := strings.Join(lines, "\n"); text != want {
		t.Errorf("%s:\n%s\nwant:\n%s", metric, text, want)
	}
}

// A rollout that waits is counted by its reason, until it waits no more or its Bundle is gone.
func TestWaitingRolloutsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, c := newTables()
		for name, reason := range map[string]string{"a": "WaitsForApproval", "b": "WaitsForApproval", "c": "StageFailed", "d": "a name of a user", "e": ""} {
			tab.putBundle(name, v1alpha1.BundleStatus{Rollout: &v1alpha1.RolloutStatus{Reason: reason}})
		}
		expectValues(t, c, "atoll_bundle_rollouts_waiting", "Other 1\nStageFailed 1\nWaitsForApproval 2")
		tab.putBundle("a", v1alpha1.BundleStatus{Rollout: &v1alpha1.RolloutStatus{}})
		tab.putBundle("c", v1alpha1.BundleStatus{})
		tab.dropBundle("d")
		expectValues(t, c, "atoll_bundle_rollouts_waiting", "WaitsForApproval 1")
	})
}

func TestBundlesAreCountedByCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, c := newTables()
		now := time.Now()
		ready := newCondition(v1alpha1.BundleReady, metav1.ConditionTrue, "Ready", now)
		tab.putBundle("a", v1alpha1.BundleStatus{Clusters: v1alpha1.BundleClusters{Desired: 3, Updated: 3, Ready: 2, Away: 1}, Conditions: []metav1.Condition{ready, newCondition("Foreign", metav1.ConditionTrue, "x", now)}})
		tab.putBundle("b", v1alpha1.BundleStatus{Clusters: v1alpha1.BundleClusters{Desired: 2, Removing: 1}, Conditions: []metav1.Condition{
			newCondition(v1alpha1.BundleReady, metav1.ConditionFalse, "Progressing", now.Add(-time.Minute)), newCondition(v1alpha1.BundleRemovalHeld, metav1.ConditionTrue, "a name of a cluster", now.Add(-time.Hour)),
		}})
		tab.putBundle("c", v1alpha1.BundleStatus{Conditions: []metav1.Condition{newCondition(v1alpha1.BundleReady, metav1.ConditionFalse, "Progressing", now.Add(-time.Second))}})
		expectValues(t, c, "atoll_bundles", "Ready Progressing False 2\nReady Ready True 1\nRemovalHeld Other True 1")
		expectValues(t, c, "atoll_bundle_oldest_wait_seconds", "Ready Progressing 60\nRemovalHeld Other 3600")
		expectValues(t, c, "atoll_bundle_clusters", "Desired 5\nDisconnected 1\nReady 2\nRemoving 1\nUpdated 3")
		tab.putBundle("b", v1alpha1.BundleStatus{Conditions: []metav1.Condition{ready}})
		time.Sleep(9 * time.Second)
		expectValues(t, c, "atoll_bundles", "Ready Progressing False 1\nReady Ready True 2")
		expectValues(t, c, "atoll_bundle_oldest_wait_seconds", "Ready Progressing 10")
		tab.dropBundle("a")
		tab.dropBundle("c")
		expectValues(t, c, "atoll_bundles", "Ready Ready True 1")
		expectValues(t, c, "atoll_bundle_oldest_wait_seconds", "")
		expectValues(t, c, "atoll_bundle_clusters", "")
	})
}

func TestClustersAreCountedByCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, c := newTables()
		for _, name := range []string{"tokyo", "paris"} {
			tab.clusters[name] = &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{newCondition(v1alpha1.ClusterReady, metav1.ConditionUnknown, string(atoll.ReasonStreamLost), time.Now().Add(-5*time.Second))}}}
			tab.cluster(name)
		}
		expectValues(t, c, "atoll_clusters", "Ready StreamLost Unknown 2")
		expectValues(t, c, "atoll_cluster_oldest_wait_seconds", "Ready StreamLost 5")
		delete(tab.clusters, "paris")
		tab.cluster("paris")
		expectValues(t, c, "atoll_clusters", "Ready StreamLost Unknown 1")
	})
}

func TestRowsAreCountedByPhaseAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, c := newTables()
		ago := func(d time.Duration) int64 { return time.Now().Add(-d).Unix() }
		row := rowcodec.Summary{Phase: atoll.RowActive, Generation: 2, Since: ago(time.Hour)}
		reported := func(state atoll.RowState, since time.Duration) rowcodec.Summary {
			r := row
			r.IsReported, r.ReportedGeneration, r.State, r.StateTime, r.Applied = true, 2, state, ago(since), true
			r.WaitReason = (&atoll.RowStatus{State: state}).WaitReason()
			return r
		}
		missing, full := reported(atoll.RowProgressing, time.Second), reported(atoll.RowReady, 5*time.Second)
		missing.WaitReason, full.Reason = atoll.ReasonMissing, atoll.RowReason{Reason: atoll.ReasonNoCapacity, Text: "capacity.replicas is 18"}.String()
		behind := reported(atoll.RowReady, 0)
		behind.ReportedGeneration = 1
		leaving, removing, held, foreign := row, row, row, row
		leaving.Phase, removing.Phase, foreign.Phase = atoll.RowLeaving, atoll.RowRemoving, "Frozen"
		held.Phase, held.Reason = atoll.RowHeld, "RemovalHeld plan=ab: 3 clusters"
		removed := reported(atoll.RowRemoved, 0)
		removed.Phase = atoll.RowRemoving
		for i, r := range []rowcodec.Summary{
			row, behind, reported(atoll.RowReady, 0), reported(atoll.RowProgressing, 7*time.Second), reported(atoll.RowProgressing, 3*time.Second),
			reported(atoll.RowDegraded, time.Minute), reported(atoll.RowFailed, 2*time.Minute), missing, full, leaving, removing, removed, held, foreign,
		} {
			tab.putRow("a", fmt.Sprint(i), r)
		}
		expectValues(t, c, "atoll_rows", "Active Degraded 1\nActive Failed 1\nActive Missing 1\nActive NoCapacity 1\nActive None 1\nActive Progressing 2\nActive WaitsForApply 2\nHeld WaitsForConfirmation 1\nLeaving WaitsForReplacements 1\nOther None 1\nRemoving None 1\nRemoving WaitsForRemoval 1")
		expectValues(t, c, "atoll_row_oldest_wait_seconds", "Degraded 60\nFailed 120\nMissing 1\nNoCapacity 5\nProgressing 7\nWaitsForConfirmation 3600\nWaitsForRemoval 3600\nWaitsForReplacements 3600")
		drifted := reported(atoll.RowReady, 0)
		drifted.Drifted = 7
		tab.putRow("a", "drifted", drifted)
		tab.putRow("b", "drifted", drifted)
		expectValues(t, c, "atoll_drifted_objects", "14")
		drifted.Drifted = 0
		tab.putRow("a", "drifted", drifted)
		tab.putRow("b", "drifted", rowcodec.Summary{})
		expectValues(t, c, "atoll_drifted_objects", "")
		tab.putRow("a", "drifted", rowcodec.Summary{})
		for i := range 14 {
			tab.putRow("a", fmt.Sprint(i), rowcodec.Summary{})
		}
		tab.putRow("a", "0", reported(atoll.RowReady, 0))
		expectValues(t, c, "atoll_rows", "Active None 1")
		expectValues(t, c, "atoll_row_oldest_wait_seconds", "")
	})
}

// listObservations returns the number of observations and their sum in seconds, of each stage.
func listObservations(t *testing.T, c *StateCollector) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, f := range families {
		for _, m := range f.Metric {
			if h := m.GetHistogram(); h != nil && f.GetName() == "atoll_change_seconds" {
				out += fmt.Sprintf("%s %d %v, ", m.Label[0].GetValue(), h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
	return out
}

// TestAChangeIsMeasuredOnceAStage follows a change of two rows, of which one flaps and a third
// comes late.
func TestAChangeIsMeasuredOnceAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, c := newTables()
		old := rowcodec.Summary{Phase: atoll.RowActive, Revision: "r1", Generation: 1, IsReported: true, ReportedGeneration: 1, State: atoll.RowReady, Applied: true}
		for _, cluster := range []string{"x", "y", "late"} {
			tab.putRow("a", cluster, old)
		}
		if got := listObservations(t, c); got != "applied 0 0, bound 0 0, healthy 0 0, ordered 0 0, shown 0 0, " {
			t.Errorf("rows of before are observed: %s", got)
		}
		start := time.Now()
		time.Sleep(time.Second)
		c.BeginChange("a", "r2", start)
		next := old
		next.Revision, next.Generation = "r2", 2
		time.Sleep(time.Second)
		tab.putRow("a", "x", next)
		tab.putRow("a", "y", next)
		tab.putRow("b", "x", next)
		time.Sleep(time.Second)
		next.ReportedGeneration, next.State = 2, atoll.RowProgressing
		tab.putRow("a", "x", next)
		tab.putRow("a", "x", next)
		time.Sleep(time.Second)
		next.State = atoll.RowReady
		tab.putRow("a", "x", next)
		next.State = atoll.RowDegraded
		tab.putRow("a", "x", next)
		next.State = atoll.RowReady
		tab.putRow("a", "x", next)
		tab.putRow("a", "y", next)
		shown := v1alpha1.BundleStatus{Revision: "r1", Conditions: []metav1.Condition{newCondition(v1alpha1.BundleReady, metav1.ConditionTrue, "Ready", start)}}
		tab.putBundle("a", shown)
		c.EndChangeIfReady("a")
		time.Sleep(time.Second)
		shown.Revision = "r2"
		tab.putBundle("a", shown)
		c.EndChangeIfReady("a")
		c.EndChangeIfReady("a")
		time.Sleep(time.Hour)
		tab.putRow("a", "late", next)
		if got := listObservations(t, c); got != "applied 2 7, bound 1 1, healthy 2 8, ordered 2 4, shown 1 5, " {
			t.Errorf("observed %s", got)
		}
		c.BeginChange("a", "r3", time.Now())
		tab.dropBundle("a")
		if len(c.changes) != 0 {
			t.Error("a change of a Bundle that is gone is remembered")
		}
	})
}

// TestAChangeOfOneRowCostsItself holds law 3: among 10,000 rows the change of one touches two
// series, and takes as much memory as among ten.
func TestAChangeOfOneRowCostsItself(t *testing.T) {
	allocations := func(rows int) float64 {
		tab, c := newTables()
		at := func(i int, state atoll.RowState) rowcodec.Summary {
			return rowcodec.Summary{Phase: atoll.RowActive, Generation: 1, IsReported: true, ReportedGeneration: 1, State: state, StateTime: int64(i + 1), WaitReason: (&atoll.RowStatus{State: state}).WaitReason()}
		}
		for i := range rows {
			tab.putRow("a", fmt.Sprint(i), at(i, atoll.RowProgressing))
		}
		if n := testutil.CollectAndCount(c, "atoll_rows", "atoll_row_oldest_wait_seconds"); n != 2 {
			t.Errorf("%d rows make %d series", rows, n)
		}
		ready, changes := at(0, atoll.RowReady), []state.RowTransition{{Bundle: "a", Cluster: "0"}}
		turn := false
		n := testing.AllocsPerRun(1000, func() {
			changes[0].Before, changes[0].After = at(0, atoll.RowProgressing), ready
			if turn = !turn; !turn {
				changes[0].Before, changes[0].After = changes[0].After, changes[0].Before
			}
			c.updateRows(changes)
		})
		if n := testutil.CollectAndCount(c, "atoll_rows"); n != 2 {
			t.Errorf("a change of one row makes %d series, want 2", n)
		}
		return n
	}
	if few, many := allocations(10), allocations(10_000); many > few+1 {
		t.Errorf("a change takes %v allocations among 10,000 rows, and %v among 10", many, few)
	}
}

func TestWaitAges(t *testing.T) {
	w := newWaitAges()
	check := func(want int64, waits bool) {
		t.Helper()
		if got, ok := w.oldestStart(); got != want || ok != waits {
			t.Errorf("the oldest is %d, %t; want %d, %t", got, ok, want, waits)
		}
	}
	check(0, false)
	for _, start := range []int64{5, 3, 3, 9} {
		w.addStart(start)
	}
	w.removeStart(3)
	check(3, true)
	w.removeStart(3)
	check(5, true)
	w.addStart(3)
	check(3, true)
	for _, start := range []int64{3, 5, 9} {
		w.removeStart(start)
	}
	check(0, false)
	for i := range int64(10_000) {
		w.addStart(i)
		if i > 0 {
			w.removeStart(i)
		}
	}
	if check(0, true); len(w.starts) > 10 || len(w.counts) > 10 {
		t.Errorf("%d times are kept for one wait", len(w.starts))
	}
}
