package decommission

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

var drainBegin = metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))

// drainRows are rows of a drained cluster, by what they wait for.
var drainRows = map[string]state.Row{
	"undecided": newRow("new", atoll.RowActive, "", nil),
	"leaving":   newRow("web", atoll.RowLeaving, "Evicted: taint atoll.dev/drain:NoExecute is not tolerated", nil),
	"budget":    newRow("shop", atoll.RowLeaving, "DisruptionBudget: Evicted: taint atoll.dev/drain:NoExecute is not tolerated", nil),
	"pods":      newRow("cart", atoll.RowLeaving, "PodDisruptionBudget: Evicted: taint atoll.dev/drain:NoExecute is not tolerated", nil),
	"strict":    newRow("pay", atoll.RowLeaving, "DisruptionBudgetTooStrict: Evicted: taint atoll.dev/drain:NoExecute is not tolerated", nil),
	"going":     newRow("api", atoll.RowRemoving, "Evicted", nil),
	"held":      newRow("mail", atoll.RowHeld, "RemovalHeld plan=0123456789abcdef: Evicted", nil),
	"stuck": newRow("disk", atoll.RowRemoving, "Evicted", &atoll.RowStatus{State: atoll.RowProgressing, Items: []atoll.ItemStatus{
		{Key: atoll.ItemKey{Kind: "PersistentVolumeClaim", Name: "data"}, Reason: "Terminating", Message: "its deletion waits for a/b"},
	}}),
	"blocked":   newRow("db", atoll.RowActive, "NoReplacement: no other cluster can take its place", nil),
	"full":      newRow("big", atoll.RowActive, "NoCapacity: NoReplacement: no other cluster can take its place; capacity.pods is 3", nil),
	"copy":      newRow("logs", atoll.RowActive, "CopyInEachCluster", nil),
	"tolerates": newRow("edge", atoll.RowActive, "DrainTolerated", nil),
	"delayed":   newRow("slow", atoll.RowActive, "DrainDelayed: the placement tolerates the drain until 12:00", nil),
	"exclusive": newRow("sql", atoll.RowActive, "WaitsForCluster: the cluster is disconnected", nil),
}

func TestWhatADrainWaitsFor(t *testing.T) {
	for _, tc := range []struct {
		name, rows     string
		offline, holds bool
		former         *v1alpha1.ClusterDrainStatus
		done           bool
		reason         atoll.Reason
		want           v1alpha1.ClusterDrainStatus
		contains       string
	}{
		{name: "nothing was there", done: true, reason: atoll.ReasonDrained, contains: "0 of 0 bundles left"},
		{name: "just begun", rows: "undecided leaving", reason: atoll.ReasonBundlesLeave, want: v1alpha1.ClusterDrainStatus{Bundles: 2, Waiting: 2}, contains: "1 are to be decided, such as shop/new"},
		{name: "replacements", rows: "leaving going", reason: atoll.ReasonWaitsForReplacements, want: v1alpha1.ClusterDrainStatus{Bundles: 2, Waiting: 2}, contains: "`atoll explain bundle/web -n shop`"},
		{name: "a disruption budget", rows: "leaving budget", reason: atoll.ReasonDisruptionBudget, want: v1alpha1.ClusterDrainStatus{Bundles: 2, Waiting: 2}, contains: "1 cannot leave because of a disruption budget until more copies are available, such as shop/shop (`atoll explain bundle/shop -n shop`)"},
		{name: "a budget of pods", rows: "pods going", reason: atoll.ReasonPodDisruptionBudget, want: v1alpha1.ClusterDrainStatus{Bundles: 2, Waiting: 2}, contains: "1 cannot leave because of a disruption budget until a PodDisruptionBudget in the cluster allows it"},
		{name: "a budget that lets no copy go", rows: "strict", reason: atoll.ReasonCannotLeave, want: v1alpha1.ClusterDrainStatus{Bundles: 1, CannotLeave: 1}, contains: "1 cannot leave, such as shop/pay: its disruptionBudget lets no copy go, even while all are available, and has to be edited"},
		{name: "over the budget", rows: "leaving held", reason: atoll.ReasonWaitsForConfirmation, want: v1alpha1.ClusterDrainStatus{Bundles: 2, Waiting: 2}, contains: "`atoll confirm bundle/mail -n shop --plan 0123456789abcdef`"},
		{name: "disconnected", rows: "leaving going exclusive", offline: true, reason: atoll.ReasonWaitsForCluster, want: v1alpha1.ClusterDrainStatus{Bundles: 3, Waiting: 3}, contains: "3 wait for the cluster"},
		{name: "blocked in the member", rows: "stuck", reason: atoll.ReasonWaitsForMember, want: v1alpha1.ClusterDrainStatus{Bundles: 1, Waiting: 1}, contains: "its deletion waits for a/b"},
		{name: "on its way", rows: "going blocked", reason: atoll.ReasonBundlesLeave, want: v1alpha1.ClusterDrainStatus{Bundles: 2, Waiting: 1, CannotLeave: 1}, contains: "1 cannot leave, such as shop/db: no other cluster can take its place"},
		{name: "later", rows: "delayed", reason: atoll.ReasonDrainDelayed, want: v1alpha1.ClusterDrainStatus{Bundles: 1, Waiting: 1}, contains: "until 12:00"},
		{name: "blocked", rows: "blocked copy", reason: atoll.ReasonCannotLeave, want: v1alpha1.ClusterDrainStatus{Bundles: 2, CannotLeave: 1, Stays: 1}, contains: "1 cannot leave"},
		{name: "blocked at an older revision", rows: "full", reason: atoll.ReasonCannotLeave, want: v1alpha1.ClusterDrainStatus{Bundles: 1, CannotLeave: 1}, contains: "1 cannot leave, such as shop/big"},
		{name: "done", rows: "copy tolerates", former: &v1alpha1.ClusterDrainStatus{Since: drainBegin, Bundles: 9}, done: true, reason: atoll.ReasonDrained, want: v1alpha1.ClusterDrainStatus{Bundles: 9, Left: 7, Stays: 2}, contains: "7 of 9 bundles left; 2 stay"},
		{name: "a later drain begins at 0", rows: "copy", former: &v1alpha1.ClusterDrainStatus{Since: metav1.NewTime(drainBegin.Add(-time.Hour)), Bundles: 9}, done: true, reason: atoll.ReasonDrained, want: v1alpha1.ClusterDrainStatus{Bundles: 1, Stays: 1}, contains: "0 of 1 bundle left"},
		{name: "the hub holds", rows: "leaving", holds: true, reason: atoll.ReasonHubHolds, want: v1alpha1.ClusterDrainStatus{Bundles: 1, Waiting: 1}, contains: "atoll restore accept"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := drainFacts{name: "tokyo", since: drainBegin, formerStatus: tc.former, accepted: true, online: !tc.offline, holding: tc.holds}
			for _, name := range strings.Fields(tc.rows) {
				s.rows = append(s.rows, drainRows[name])
			}
			tc.want.Since = drainBegin
			if v := decideDrain(s); v.isDone != tc.done || v.reason != tc.reason || v.status != tc.want || !strings.Contains(v.message, tc.contains) {
				t.Errorf("done %t, %s: %s\n%+v", v.isDone, v.reason, v.message, v.status)
			}
		})
	}
}

// The counts add up, a drain is done when no Bundle is to leave, and one that is not done has a reason of the table.
func TestDrainsAddUp(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		s := drainFacts{name: "tokyo", since: drainBegin, accepted: random.IntN(5) > 0, online: random.IntN(3) > 0, holding: random.IntN(9) == 0}
		for _, row := range drainRows {
			for range random.IntN(3) {
				s.rows = append(s.rows, row)
			}
		}
		if random.IntN(2) == 0 {
			s.formerStatus = &v1alpha1.ClusterDrainStatus{Since: drainBegin, Bundles: random.Int32N(30)}
		}
		v := decideDrain(s)
		d := v.status
		if d.Left+d.Waiting+d.CannotLeave+d.Stays != d.Bundles || d.Left < 0 || v.isDone != (d.Waiting+d.CannotLeave == 0) || !atoll.IsReason(v.reason) || !s.holding && v.isDone != (v.reason == atoll.ReasonDrained) {
			t.Fatalf("seed %d: %+v of %+v", seed, v, s)
		}
	}
}

// A drain is reported on the Cluster while it has the taint, only when that is news, and not while the cluster is removed.
func TestADrainIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, nil, drainRows["going"], drainRows["copy"])
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		edit := func(change func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
			t.Helper()
			c := m.getCluster(t)
			change(c)
			if err := m.Update(ctx, c); err != nil {
				t.Fatal(err)
			}
			m.notifyChanged()
			synctest.Wait()
			return m.getCluster(t)
		}
		drain := v1alpha1.Taint{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute, TimeAdded: &drainBegin}
		c := edit(func(c *v1alpha1.Cluster) { c.Spec.Taints = []v1alpha1.Taint{drain} })
		if s := c.Status.Drain; s == nil || s.Waiting != 1 || s.Stays != 1 || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterDraining) {
			t.Fatalf("at first: %+v", c.Status)
		}
		version := c.ResourceVersion
		m.notifyChanged()
		if time.Sleep(time.Minute); m.getCluster(t).ResourceVersion != version {
			t.Error("what is no news was written")
		}
		m.mu.Lock()
		m.rows = m.rows[1:]
		m.mu.Unlock()
		for _, fn := range m.moved {
			fn("b-api", []string{"tokyo"})
		}
		time.Sleep(2 * gather)
		synctest.Wait()
		c = m.getCluster(t)
		if s := c.Status.Drain; s.Left != 1 || !meta.IsStatusConditionFalse(c.Status.Conditions, v1alpha1.ClusterDraining) || len(m.reported) != 1 || !strings.HasPrefix(m.reported[0], "tokyo Drained: 1 of 2") {
			t.Errorf("at the end: %+v, reported %q", s, m.reported)
		}
		c = edit(func(c *v1alpha1.Cluster) { c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan} })
		if c.Status.Drain != nil || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterDraining) != nil || removalCondition(c) == nil {
			t.Errorf("during a removal: %+v", c.Status)
		}
		edit(func(c *v1alpha1.Cluster) { c.Spec.Removal = nil })
		if c = edit(func(c *v1alpha1.Cluster) { c.Spec.Taints = nil }); c.Status.Drain != nil || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterDraining) != nil {
			t.Errorf("after the drain: %+v", c.Status)
		}
	})
}
