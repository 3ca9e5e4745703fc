package placer

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

var ledgerTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// There is more capacity where some resource has more in all nodes together.
func TestHasMoreCapacity(t *testing.T) {
	was := freecapacity.NodeClasses{{Nodes: 2, CPU: 1000, Memory: 100, Pods: 10, Other: map[string]int64{"gpu": 1}}}
	for _, tc := range []struct {
		name string
		is   freecapacity.NodeClasses
		want bool
	}{
		{"the same", was, false},
		{"as much on other nodes", freecapacity.NodeClasses{{Nodes: 1, CPU: 2000, Memory: 200, Pods: 20, Other: map[string]int64{"gpu": 2}}}, false},
		{"less", freecapacity.NodeClasses{{Nodes: 1, CPU: 1000, Memory: 100, Pods: 10, Other: map[string]int64{"gpu": 1}}}, false},
		{"none", nil, false},
		{"more CPU", freecapacity.NodeClasses{{Nodes: 1, CPU: 2001}}, true},
		{"more memory", freecapacity.NodeClasses{{Nodes: 1, Memory: 201}}, true},
		{"more pods", freecapacity.NodeClasses{{Nodes: 1, Pods: 21}}, true},
		{"more of another resource", freecapacity.NodeClasses{{Nodes: 3, Other: map[string]int64{"gpu": 1}}}, true},
		{"a resource that was not there", freecapacity.NodeClasses{{Nodes: 1, Other: map[string]int64{"fpga": 1}}}, true},
	} {
		if got := hasMoreCapacity(tc.is, was); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// A report matters where a Bundle waits for capacity and there is more than before. A cluster that stops to report
// matters too, since it takes what fits nowhere else.
func TestReportsThatMayEndAWait(t *testing.T) {
	report := func(name string, change ...func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, f := range change {
			f(c)
		}
		return c
	}
	ignored := func(c *v1alpha1.Cluster) { c.Spec.ReportedRoom = v1alpha1.RoomIgnore }
	for _, tc := range []struct {
		name    string
		was, is *v1alpha1.Cluster
		waits   bool
		want    bool
		known   bool
	}{
		{"more", report("a", withFreeCPUs(1)), report("a", withFreeCPUs(2)), true, true, true},
		{"more, and none waits", report("a", withFreeCPUs(1)), report("a", withFreeCPUs(2)), false, false, true},
		{"the same", report("a", withFreeCPUs(1)), report("a", withFreeCPUs(1)), true, false, true},
		{"less", report("a", withFreeCPUs(2)), report("a", withFreeCPUs(1)), true, false, true},
		{"the first report", report("a"), report("a", withFreeCPUs(1)), true, true, true},
		{"no report any more", report("a", withFreeCPUs(1)), report("a"), true, true, false},
		{"no report any more, and none waits", report("a", withFreeCPUs(1)), report("a"), false, false, false},
		{"no report at all", report("a"), report("a"), true, false, false},
		{"it is not trusted any more", report("a", withFreeCPUs(1)), report("a", withFreeCPUs(9), ignored), true, true, false},
	} {
		x, rows := newCapacityLedger(), fakeRows{newFakeHub()}
		x.setReportedCapacity(tc.was, rows, ledgerTime)
		x.recordGroupShortage("web", tc.waits, false)
		got := x.setReportedCapacity(tc.is, rows, ledgerTime)
		if _, known := x.totalFittingReplicas("a", nil, nil); got != tc.want || known != tc.known {
			t.Errorf("%s: ends a wait %t, known %t; want %t, %t", tc.name, got, known, tc.want, tc.known)
		}
	}
}

// promisedRow is a row that acted on a promise of generation 3 that many seconds after ledgerTime.
func promisedRow(generation int64, applied bool, st atoll.RowState, actedAfter int64) *state.Row {
	return &state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Generation: 3}, Status: &atoll.RowStatus{
		Generation: generation, Applied: applied, State: st, Since: ledgerTime.Unix() + actedAfter,
	}}
}

// A new report of the cluster includes the pods of a row once it is applied and Ready for some seconds.
func TestReportsIncludeReadyRows(t *testing.T) {
	for _, tc := range []struct {
		name  string
		row   *state.Row
		after time.Duration
		want  bool
	}{
		{"ready for long enough", promisedRow(3, true, atoll.RowReady, 0), reportSettleTime, true},
		{"ready for too short", promisedRow(3, true, atoll.RowReady, 0), reportSettleTime - time.Second, false},
		{"a later generation", promisedRow(4, true, atoll.RowReady, 0), reportSettleTime, true},
		{"an earlier generation", promisedRow(2, true, atoll.RowReady, 0), reportSettleTime, false},
		{"not applied", promisedRow(3, false, atoll.RowReady, 0), reportSettleTime, false},
		{"not ready", promisedRow(3, true, atoll.RowProgressing, 0), reportSettleTime, false},
		{"without a status", &state.Row{Cluster: "a"}, time.Hour, false},
		{"no row", nil, time.Hour, false},
	} {
		m := newFakeHub()
		if tc.row != nil {
			m.rows["web"] = map[string]state.Row{"a": *tc.row}
		}
		p := &capacityPromise{bundle: "web", cluster: "a", generation: 3, madeAt: ledgerTime}
		if got := p.isReported(fakeRows{m}, ledgerTime.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// A promise ends some time after the agent acted on it, or when no agent acts on it for very long. A cluster that
// checks in gets two intervals more.
func TestPromisesExpire(t *testing.T) {
	for _, tc := range []struct {
		name  string
		row   *state.Row
		every time.Duration
		after time.Duration
		want  bool
	}{
		{"no agent acts", promisedRow(2, true, atoll.RowReady, 0), 0, promiseMaxAge - 1, false},
		{"no agent acts for very long", promisedRow(2, true, atoll.RowReady, 0), 0, promiseMaxAge, true},
		{"no agent has checked in twice", promisedRow(2, true, atoll.RowReady, 0), time.Hour, promiseMaxAge + 2*time.Hour - 1, false},
		{"no agent acts after two check-ins", promisedRow(2, true, atoll.RowReady, 0), time.Hour, promiseMaxAge + 2*time.Hour, true},
		{"the row is not written yet", nil, 0, promiseSettleTime - 1, false},
		{"the row is deleted", nil, 0, promiseSettleTime, true},
		{"applied", promisedRow(3, true, atoll.RowProgressing, 60), 0, time.Minute + promiseSettleTime - 1, false},
		{"applied for long enough", promisedRow(3, true, atoll.RowProgressing, 60), 0, time.Minute + promiseSettleTime, true},
		{"applied, and the next check-ins are due", promisedRow(3, true, atoll.RowReady, 0), time.Minute, promiseSettleTime + 2*time.Minute - 1, false},
		{"applied, and two check-ins are over", promisedRow(3, true, atoll.RowReady, 0), time.Minute, promiseSettleTime + 2*time.Minute, true},
		{"the agent's clock is behind", promisedRow(3, true, atoll.RowReady, -3600), 0, promiseSettleTime - 1, false},
		{"the agent's clock is behind, and it is over", promisedRow(3, true, atoll.RowReady, -3600), 0, promiseSettleTime, true},
	} {
		m := newFakeHub()
		if tc.row != nil {
			m.rows["web"] = map[string]state.Row{"a": *tc.row}
		}
		p := &capacityPromise{bundle: "web", cluster: "a", generation: 3, madeAt: ledgerTime}
		if got := p.isExpired(fakeRows{m}, tc.every, ledgerTime.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// dividedInput is the input of a step that divides a workload among a and b, whose rows have some replicas.
func dividedInput(t *testing.T, replicas int64, has map[string]int64) (*rollout.Input, string) {
	t.Helper()
	workloads, err := schedule.WorkloadsOf(contentAsking("web", int(replicas)))
	if err != nil {
		t.Fatal(err)
	}
	key := workloads[0].Key.String()
	in := &rollout.Input{BundleUID: "web", Now: ledgerTime, Rows: map[string]rollout.Row{}}
	in.Decision = schedule.DecidePlacement(schedule.Input{Placement: byFreeCapacity, Workloads: workloads, Clusters: []schedule.Cluster{
		{ClusterView: atoll.ClusterView{Name: "a"}, Accepted: true}, {ClusterView: atoll.ClusterView{Name: "b"}, Accepted: true}}})
	for cluster, n := range has {
		row := in.Rows[cluster]
		row.Spec.Assigned = map[string]int64{key: n}
		in.Rows[cluster] = row
	}
	return in, key
}

// freeCPUsOf is what a cluster has left, in thousandths, by the ledger; negative: not known.
func freeCPUsOf(x *capacityLedger, rows Rows, d schedule.Decision, cluster, key string, now time.Time) (fit int64, promised bool) {
	out, promised := x.decisionWithFreeCapacity(d, rows, now)
	if all, known := out.FreeReplicasOf(cluster); known {
		return all[key], promised
	}
	return -1, promised
}

// Only what rows get on top of what they had is promised, until the promises are withdrawn or settle.
func TestPromisesCountUntilTheySettle(t *testing.T) {
	x, m := newCapacityLedger(), newFakeHub()
	rows := fakeRows{m}
	for _, c := range []*v1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}} {
		withFreeCPUs(10)(c)
		x.setReportedCapacity(c, rows, ledgerTime)
	}
	in, key := dividedInput(t, 20, map[string]int64{"a": 3, "b": 5})
	expect := func(when string, after time.Duration, a, b int64, promised bool) {
		t.Helper()
		gotA, hasA := freeCPUsOf(x, rows, in.Decision, "a", key, ledgerTime.Add(after))
		gotB, hasB := freeCPUsOf(x, rows, in.Decision, "b", key, ledgerTime.Add(after))
		if gotA != a || gotB != b || hasA != promised || hasB != promised {
			t.Errorf("%s: %d and %d fit, promised %t and %t; want %d, %d, %t", when, gotA, gotB, hasA, hasB, a, b, promised)
		}
	}
	expect("before", 0, 10, 10, false)
	changes := map[string]*atoll.RowSpec{"a": {Generation: 1, Assigned: map[string]int64{key: 7}}, "b": {Generation: 1, Assigned: map[string]int64{key: 2}}, "c": nil}
	back := x.promiseCapacity(in, changes)
	expect("promised", 0, 6, 10, true)
	back()
	expect("withdrawn", 0, 10, 10, false)
	x.promiseCapacity(in, changes)
	expect("promised again", 0, 6, 10, true)
	expect("not written for too short", promiseSettleTime-time.Second, 6, 10, true)
	expect("never written", promiseSettleTime, 10, 10, false)
	in.Decision = schedule.Decision{}
	x.promiseCapacity(in, changes)()
	if len(x.members["a"].promises) != 0 {
		t.Error("what is not divided is promised")
	}
}

// Promises are looked at once a second at most: there can be many, and each reads a row.
func TestPromisesAreReadOnceASecond(t *testing.T) {
	m := newFakeHub()
	member := &memberCapacity{isKnown: true, promises: []*capacityPromise{{bundle: "web", cluster: "a", madeAt: ledgerTime}}}
	for _, tc := range []struct {
		at    time.Duration
		reads int
	}{{0, 1}, {time.Second - 1, 1}, {time.Second, 2}} {
		member.settlePromises(fakeRows{m}, ledgerTime.Add(tc.at))
		if m.contentReads != tc.reads {
			t.Errorf("after %s %d reads, want %d", tc.at, m.contentReads, tc.reads)
		}
	}
}

// A preview changes its own copy of the promises.
func TestClonedLedgerChangesApart(t *testing.T) {
	x := newCapacityLedger()
	x.addPromise(&capacityPromise{cluster: "a", replicas: 1})
	other := x.clone()
	other.addPromise(&capacityPromise{cluster: "a", replicas: 2})
	other.removeMember("b")
	if len(x.members["a"].promises) != 1 || len(other.members["a"].promises) != 2 || len(other.shortBundles) != 0 {
		t.Errorf("%d promises, the copy has %d", len(x.members["a"].promises), len(other.members["a"].promises))
	}
}

// A Bundle waits for capacity in its own group, or in another one, or not at all.
func TestRecordGroupShortage(t *testing.T) {
	x := newCapacityLedger()
	for _, tc := range []struct{ here, earlier, waits, inOwn bool }{
		{true, false, true, true}, {false, true, true, false}, {true, true, true, true}, {false, false, false, false},
	} {
		x.recordGroupShortage("web", tc.here, tc.earlier)
		inOwn, waits := x.copyShortages()["web"]
		if waits != tc.waits || inOwn != tc.inOwn {
			t.Errorf("here %t, earlier %t: waits %t, in its own group %t", tc.here, tc.earlier, waits, inOwn)
		}
	}
}

// After a start only rows that an agent has not made Ready, and that grew lately, get their promises again.
func TestPromisesOfYoungRowsAreRestored(t *testing.T) {
	content := contentAsking("web", 9)
	key := content.Items[0].Key.String()
	young, old := time.Now().Unix(), time.Now().Add(-promiseMaxAge-time.Second).Unix()
	ready := func(generation int64, st atoll.RowState) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: generation, State: st}
	}
	for _, tc := range []struct {
		name string
		row  state.Row
		want []int64
	}{
		{"young", state.Row{Spec: atoll.RowSpec{Since: young, Generation: 2, Assigned: map[string]int64{key: 4}}}, []int64{4}},
		{"grown lately", state.Row{Spec: atoll.RowSpec{Since: old, GrownAt: young, Assigned: map[string]int64{key: 4}}}, []int64{4}},
		{"old", state.Row{Spec: atoll.RowSpec{Since: old, Assigned: map[string]int64{key: 4}}}, nil},
		{"ready", state.Row{Spec: atoll.RowSpec{Since: young, Generation: 2, Assigned: map[string]int64{key: 4}}, Status: ready(2, atoll.RowReady)}, nil},
		{"ready of an earlier generation", state.Row{Spec: atoll.RowSpec{Since: young, Generation: 2, Assigned: map[string]int64{key: 4}}, Status: ready(1, atoll.RowReady)}, []int64{4}},
		{"not ready", state.Row{Spec: atoll.RowSpec{Since: young, Generation: 2, Assigned: map[string]int64{key: 4}}, Status: ready(2, atoll.RowProgressing)}, []int64{4}},
		{"no replicas", state.Row{Spec: atoll.RowSpec{Since: young, Assigned: map[string]int64{key: 0}}}, nil},
		{"nothing divided", state.Row{Spec: atoll.RowSpec{Since: young}}, nil},
	} {
		m := newFakeHub()
		m.placeBundle("web", byFreeCapacity, content)
		tc.row.Bundle.UID, tc.row.Cluster = "web", "a"
		m.rows["web"] = map[string]state.Row{"a": tc.row}
		r := New(m.reconcilerConfig())
		r.restoreCapacityPromises(t.Context())
		var got []int64
		for _, p := range r.capacity.ensureMember("a").promises {
			if p.bundle != "web" || p.item != key || p.generation != tc.row.Spec.Generation || p.requests.CPU != 1000 {
				t.Errorf("%s: %+v", tc.name, p)
			}
			got = append(got, p.replicas)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: promised %v, want %v", tc.name, got, tc.want)
		}
	}
}
