package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// While scheduling is suspended, the rows show the decision: chosen clusters stay with their shares and fingerprints, leaving ones leave, and
// others are not chosen.
func TestTheLastDecisionStays(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := metav1.NewTime(now.Add(-time.Hour))
	workload := Workload{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "ns", Name: "web"}, Replicas: 10}
	key := workload.Key.String()
	row := func(name string, phase atoll.RowPhase, n int64, reason string) atoll.RowSpec {
		return atoll.RowSpec{UID: "uid-" + name, Phase: phase, PlacementFingerprint: "old", Reason: reason, Assigned: map[string]int64{key: n}}
	}
	in := Input{
		BundleUID: "bundle", Now: now, Workloads: []Workload{workload}, KeepsDecision: true,
		Placement: v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"fits", "new", "pending", "leaving", "removing", "tainted", "going", "recreated"}}},
		Rows: map[string]atoll.RowSpec{
			"fits": row("fits", atoll.RowActive, 1, ""), "edited": row("edited", atoll.RowActive, 2, ""), "tainted": row("tainted", atoll.RowActive, 3, ""),
			"pending": row("pending", atoll.RowPending, 1, ""), "leaving": row("leaving", atoll.RowLeaving, 4, "Evicted: a taint"),
			"held": row("held", atoll.RowHeld, 4, "RemovalHeld plan=abc: PlacementEdited: not named"), "removing": row("removing", atoll.RowRemoving, 5, ""),
			"going": row("going", atoll.RowActive, 0, ""), "vanished": row("vanished", atoll.RowActive, 0, ""), "recreated": row("before", atoll.RowActive, 0, ""),
		},
	}
	for _, name := range []string{"fits", "edited", "tainted", "pending", "leaving", "held", "removing", "going", "recreated", "new", "other"} {
		c := Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name, Accepted: true}
		switch name {
		case "tainted":
			c.Taints = []v1alpha1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}}
		case "going":
			c.Removal = v1alpha1.ClusterOrphan
		}
		in.Clusters = append(in.Clusters, c)
	}
	d := DecidePlacement(in)
	for name, want := range map[string]string{
		"fits":      "Placed",
		"edited":    "Kept (suspension: scheduling is suspended; without that, the copy would leave: not named in clusterNames)",
		"tainted":   "Kept (suspension: scheduling is suspended; without that, the copy would leave",
		"pending":   "Placed",
		"leaving":   "Leaves (suspension: a taint)",
		"held":      "Leaves (clusterNames: not named in clusterNames)",
		"removing":  "Out (suspension: scheduling is suspended; without that, the cluster would be chosen)",
		"new":       "Out (suspension: scheduling is suspended; without that, the cluster would be chosen)",
		"recreated": "Out (suspension",
		"other":     "Out (clusterNames",
		"going":     "Leaves (removal",
		"vanished":  "Gone",
	} {
		v, _ := d.FindVerdict(name)
		if got := v.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
		if v.IsHolder() && (v.PlacementFingerprint != "old" || v.FromScratch || v.LeavesDrained) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v, _ := d.FindVerdict("tainted"); v.Notes().DrainReason != atoll.ReasonSchedulingSuspended {
		t.Errorf("a drain counts the row by %q", v.Notes().DrainReason)
	}
	shares, got := d.AssignReplicas(nil), ""
	for s := range shares.Shares() {
		got += fmt.Sprint(s.Cluster, "=", s.Replicas[0], " ")
	}
	if got != "edited=2 fits=1 pending=1 tainted=3 " || len(shares.Shortages) != 1 || shares.Shortages[0].Unplaced != 3 || shares.Shortages[0].Fit != suspendedText {
		t.Errorf("shares %s, shortages %+v", got, shares.Shortages)
	}
	in.Workloads[0].Replicas = 2
	if shares = DecidePlacement(in).AssignReplicas(nil); len(shares.Shortages) > 0 || shares.ShareOf("tainted").Replicas[0] != 3 {
		t.Errorf("fewer replicas: %+v", shares)
	}
}

// The last copy of a Bundle stays although its Cluster leaves the fleet, or although it was leaving: nothing may be chosen in its place.
func TestTheLastCopyStays(t *testing.T) {
	for name, c := range map[string]struct {
		phase     atoll.RowPhase
		isRemoved bool
		others    map[string]atoll.RowPhase
		unlisted  int
		names     []string
		want      string
	}{
		"its Cluster leaves":                      {atoll.RowActive, true, nil, 0, []string{"a", "b"}, "Kept (suspension: scheduling is suspended; without that, the copy would leave"},
		"another copy stays":                      {atoll.RowActive, true, map[string]atoll.RowPhase{"b": atoll.RowActive}, 0, []string{"a", "b"}, "Leaves (removal"},
		"another copy stays, which is not listed": {atoll.RowActive, true, nil, 1, []string{"a", "b"}, "Leaves (removal"},
		"its replacement waits":                   {atoll.RowActive, true, map[string]atoll.RowPhase{"b": atoll.RowPending}, 0, []string{"a", "b"}, "Leaves (removal"},
		"it was leaving with its Cluster":         {atoll.RowLeaving, true, nil, 0, []string{"a", "b"}, "Kept (suspension"},
		"it never came":                           {atoll.RowPending, true, nil, 0, []string{"a", "b"}, "Out (removal"},
		"it left already":                         {atoll.RowRemoving, true, nil, 0, []string{"a", "b"}, "Out (removal"},
		"its replacement is gone":                 {atoll.RowLeaving, false, nil, 0, []string{"a", "b"}, "Placed"},
		"its replacement is there":                {atoll.RowLeaving, false, map[string]atoll.RowPhase{"b": atoll.RowActive}, 0, []string{"a", "b"}, "Leaves (suspension"},
		"a person takes it out":                   {atoll.RowLeaving, false, nil, 0, []string{"b"}, "Leaves (clusterNames"},
	} {
		in := Input{
			KeepsDecision: true, UnlistedHolders: c.unlisted, Placement: v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: c.names}},
			Rows: map[string]atoll.RowSpec{"a": {UID: "uid-a", Phase: c.phase, PlacementFingerprint: "old"}},
		}
		for _, n := range []string{"a", "b"} {
			cluster := Cluster{ClusterView: atoll.ClusterView{Name: n}, UID: "uid-" + n, Accepted: true}
			if n == "a" && c.isRemoved {
				cluster.Removal = v1alpha1.ClusterClean
			}
			in.Clusters = append(in.Clusters, cluster)
		}
		for n, phase := range c.others {
			in.Rows[n] = atoll.RowSpec{UID: "uid-" + n, Phase: phase}
		}
		d := DecidePlacement(in)
		if v, _ := d.FindVerdict("a"); !strings.HasPrefix(v.String(), c.want) {
			t.Errorf("%s: %s, want %s", name, v, c.want)
		}
		if v, _ := d.FindVerdict("b"); c.others == nil && v.IsHolder() {
			t.Errorf("%s: a cluster is chosen", name)
		}
	}
}
