package rollout

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// A row that has no capacity for the newer revision loses nothing by that revision's
// override rules: neither does it count among removals, nor its share shrink.
func TestWhatHasNoCapacityLosesNothing(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	row := atoll.RowSpec{UID: "uid-a", Generation: 5, Revision: "r1", Phase: atoll.RowActive, Since: 1}
	d := schedule.Schedule(schedule.Input{
		Bundle: "b", Now: now, Rows: map[string]atoll.RowSpec{"a": row},
		Clusters: []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a", Accepted: true}},
	}).Hold(map[string]string{"a": "capacity.replicas is 3"})
	in := Input{
		Bundle: "b", Revision: "r2", Now: now, Decision: d, Rows: map[string]Row{"a": {Spec: row, Online: true}},
		Unwanted: map[string][]Unwanted{"a": {{Key: "apps/Deployment/ns/web", UID: "u"}}},
	}
	out := Advance(in)
	if len(out.Outs) > 0 || out.Plan != nil {
		t.Errorf("outs %v, plan %v", out.Outs, out.Plan)
	}
	if is := out.Changes["a"]; is == nil || is.Revision != "r1" || len(is.NotHere)+len(is.NotYet) > 0 || atoll.ParseRowReason(is.Reason).Word != atoll.RowNoCapacity {
		t.Errorf("a is %+v", is)
	}
}
