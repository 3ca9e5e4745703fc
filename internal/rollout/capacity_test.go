package rollout

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// A row that does not change keeps the ordinal starts of the items that are still divided.
func TestKeepOrdinals(t *testing.T) {
	old := map[string]int64{"db": 2000, "queue": 0}
	for _, c := range []struct {
		name                string
		old, assigned, want map[string]int64
	}{
		{"both are divided", old, map[string]int64{"db": 3, "queue": 0}, old},
		{"one is divided", old, map[string]int64{"db": 3}, map[string]int64{"db": 2000}},
		{"one of the two starts at 0", old, map[string]int64{"queue": 1}, map[string]int64{"queue": 0}},
		{"none is divided", old, map[string]int64{"web": 1}, nil},
		{"none has a start", nil, map[string]int64{"web": 1}, nil},
	} {
		if got := pruneUnassignedOrdinalStarts(c.old, c.assigned); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if len(old) != 2 {
		t.Errorf("the old starts changed: %v", old)
	}
}

// A leaving row keeps its own shares, and none of items that were divided later.
func TestKeepDividedShares(t *testing.T) {
	web, db := atoll.ItemKey{Group: "apps", Kind: "Deployment", Name: "web"}, atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Name: "db"}
	old := map[string]int64{web.String(): 3, "gone": 1}
	for _, c := range []struct {
		name      string
		workloads []schedule.Workload
		want      map[string]int64
	}{
		{"none is divided", nil, old},
		{"one is divided", []schedule.Workload{{Key: web, Replicas: 5}}, map[string]int64{web.String(): 3}},
		{"another was divided later", []schedule.Workload{{Key: web, Replicas: 5}, {Key: db, Replicas: 2}}, map[string]int64{web.String(): 3, db.String(): 0}},
	} {
		s := newRolloutStep(Input{Decision: schedule.DecidePlacement(schedule.Input{
			BundleUID: "b", Workloads: c.workloads, Placement: v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}},
			Clusters: []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a", Accepted: true}},
		})}, false)
		if got := s.keepDividedShares(old); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A row that has no capacity for the newer revision loses nothing by that revision's
// override rules: neither does it count among removals, nor its share shrink.
func TestRowWithoutCapacityLosesNothing(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	row := atoll.RowSpec{UID: "uid-a", Generation: 5, Revision: "r1", Phase: atoll.RowActive, Since: 1}
	d := schedule.DecidePlacement(schedule.Input{
		BundleUID: "b", Now: now, Rows: map[string]atoll.RowSpec{"a": row},
		Clusters: []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a", Accepted: true}},
	}).KeepRowsAtRevision(map[string]string{"a": "capacity.replicas is 3"})
	in := Input{
		BundleUID: "b", Revision: "r2", Now: now, Decision: d, Rows: map[string]Row{"a": {Spec: row, Online: true}},
		ExcludedItems: map[string][]ExcludedItem{"a": {{Key: "apps/Deployment/ns/web", UID: "u"}}},
	}
	out := AdvanceRows(in)
	if len(out.RemovedByEdit) > 0 || out.PendingRemoval != nil {
		t.Errorf("outs %v, plan %v", out.RemovedByEdit, out.PendingRemoval)
	}
	for i := range in.Decision.Verdicts { // as in a drained cluster
		v := &in.Decision.Verdicts[i]
		n := v.Notes()
		n.DrainReason, n.DrainText = atoll.ReasonNoReplacement, "no other"
		v.SetNotes(n)
	}
	if is, want := AdvanceRows(in).Changes["a"], "NoCapacity: NoReplacement: no other; capacity.replicas is 3"; is == nil || is.Reason != want {
		t.Errorf("a drained a is %+v, want the reason %q", is, want)
	}
	if is := out.Changes["a"]; is == nil || is.Revision != "r1" || len(is.Absent)+len(is.ExcludedPending) > 0 || atoll.ParseRowReason(is.Reason).Reason != atoll.ReasonNoCapacity {
		t.Errorf("a is %+v", is)
	}
}
