package placer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// failingRevisions fails to read any content, and counts the reads.
type failingRevisions struct {
	fakeRevisions
	err   error
	reads *int
}

func (f failingRevisions) GetContent(context.Context, string) (*atoll.Content, error) {
	*f.reads++
	return nil, f.err
}

// boundedCluster is the cluster a, whose capacity bounds replicas.
func boundedCluster(replicas int64) schedule.Cluster {
	return schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a", Accepted: true, Capacity: schedule.ResourceUsage{{Name: schedule.MeasureReplicas, Quantity: replicas}}}
}

func replicaUsage(n int64) schedule.ResourceUsage {
	return schedule.ResourceUsage{{Name: schedule.MeasureReplicas, Quantity: n}}
}

// A row uses nothing of a cluster where it is vacant, has no content, or belongs to an earlier cluster of that
// name.
func TestRowUse(t *testing.T) {
	content := undividedContent("web", 3)
	for _, tc := range []struct {
		name string
		spec *atoll.RowSpec
		want int64
	}{
		{"an active row", &atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive, Revision: "r"}, 3},
		{"a row that is being removed", &atoll.RowSpec{UID: "uid-a", Phase: atoll.RowRemoving, Revision: "r"}, 3},
		{"a vacant row", &atoll.RowSpec{UID: "uid-a", Phase: atoll.RowVacant, Revision: "r"}, 0},
		{"a row without content", &atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive}, 0},
		{"a row of an earlier cluster", &atoll.RowSpec{UID: "uid-b", Phase: atoll.RowActive, Revision: "r"}, 0},
		{"no row", nil, 0},
	} {
		m := newFakeHub()
		m.contents["r"] = content
		if tc.spec != nil {
			m.rows["web"] = map[string]state.Row{"a": {Cluster: "a", Spec: *tc.spec}}
		}
		c := boundedCluster(9)
		use, err := New(m.reconcilerConfig()).rowUse(t.Context(), "web", &c)
		if got := use.QuantityOf(schedule.MeasureReplicas); err != nil || got != tc.want || len(use) > 0 != (tc.want > 0) {
			t.Errorf("%s: uses %v, %v", tc.name, use, err)
		}
	}
}

// A content that is lost uses nothing. One that cannot be read now makes the count fail, by the cluster's name.
func TestUsageOfUnreadableContent(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"it is lost", apierrors.NewNotFound(schema.GroupResource{Resource: "revisions"}, "r"), ""},
		{"it cannot be read", errors.New("timeout"), "count what cluster a holds: timeout"},
	} {
		m, reads := newFakeHub(), 0
		m.rows["web"] = map[string]state.Row{"a": {Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive, Revision: "r"}}}
		m.rows["web"]["a"] = withBundle(m.rows["web"]["a"], "web")
		cfg := m.reconcilerConfig()
		cfg.Revisions = failingRevisions{fakeRevisions{m}, tc.err, &reads}
		r, c := New(cfg), boundedCluster(9)
		others, own, err := r.usedCapacity(t.Context(), &c, "api")
		if got := formatError(err); got != tc.want || len(others)+len(own) > 0 || reads != 1 {
			t.Errorf("%s: %q, others use %v, own %v after %d reads", tc.name, got, others, own, reads)
		}
		_, loaded := r.usage.findMember("uid-a")
		if loaded != (tc.want == "") {
			t.Errorf("%s: all rows are counted: %t", tc.name, loaded)
		}
	}
}

func withBundle(row state.Row, uid string) state.Row {
	row.Bundle.UID = uid
	return row
}

func formatError(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A decision asks about a cluster once. After an error it asks about no other one.
func TestUsageIsReadOnceInADecision(t *testing.T) {
	m, reads := newFakeHub(), 0
	m.rows["web"] = map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive, Revision: "r"}}, "web")}
	m.contents["r"] = undividedContent("web", 3)
	r, c := New(m.reconcilerConfig()), boundedCluster(9)
	reader := usageReader{r: r, ctx: t.Context(), bundle: "api", demand: &capacityDemand{answers: map[string]usageAnswer{}}}
	if others, own := reader.usageOf(&c); others.QuantityOf(schedule.MeasureReplicas) != 3 || own != nil || reader.err != nil {
		t.Fatalf("others use %v, own %v, %v", others, own, reader.err)
	}
	m.dropRow("web", "a")
	r.markRowsStale("web", []string{"a"})
	if others, _ := reader.usageOf(&c); others.QuantityOf(schedule.MeasureReplicas) != 3 {
		t.Errorf("within a decision the answer changes to %v", others)
	}
	failing := m.reconcilerConfig()
	failing.Revisions = failingRevisions{fakeRevisions{m}, errors.New("timeout"), &reads}
	m.rows["web"] = map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive, Revision: "r"}}, "web")}
	reader = usageReader{r: New(failing), ctx: t.Context(), bundle: "api", demand: &capacityDemand{answers: map[string]usageAnswer{}}}
	for range 2 {
		if others, own := reader.usageOf(&c); others != nil || own != nil || reader.err == nil {
			t.Errorf("others use %v, own %v, %v", others, own, reader.err)
		}
	}
	if reads != 1 || len(reader.demand.answers) != 0 {
		t.Errorf("%d reads, answers %v", reads, reader.demand.answers)
	}
}

// Rows are summed by Bundle, and a smaller use frees capacity.
func TestSetUse(t *testing.T) {
	m := &memberUsage{byBundle: map[string]schedule.ResourceUsage{}}
	for _, tc := range []struct {
		name, bundle string
		use          schedule.ResourceUsage
		freed        bool
		total        int64
	}{
		{"the first", "web", replicaUsage(3), false, 3}, {"another", "api", replicaUsage(2), false, 5}, {"as much", "web", replicaUsage(3), false, 5},
		{"more", "web", replicaUsage(4), false, 6}, {"less", "web", replicaUsage(1), true, 3}, {"nothing", "web", nil, true, 2}, {"nothing again", "web", nil, false, 2},
	} {
		if freed := m.setUse(tc.bundle, tc.use); freed != tc.freed || m.total.QuantityOf(schedule.MeasureReplicas) != tc.total {
			t.Errorf("%s: freed %t, in all %v; want %t, %d", tc.name, freed, m.total, tc.freed, tc.total)
		}
	}
	if len(m.byBundle) != 1 {
		t.Errorf("Bundles %v", m.byBundle)
	}
}

// The usage that is read of a row counts unless the row changed again, or a step is about to write it.
func TestRecordUse(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change uint64
		taken  bool
		freed  bool
		want   int64
		stale  bool
	}{
		{"as it was read", 7, false, true, 1, false}, {"it changed again", 6, false, false, 5, true}, {"it is taken", 7, true, false, 5, true},
	} {
		m := &memberUsage{
			total: replicaUsage(5), byBundle: map[string]schedule.ResourceUsage{"web": replicaUsage(5)},
			staleBundles: map[string]uint64{"web": 7}, takenBundles: map[string]bool{"web": tc.taken}, changeCount: 7,
		}
		freed := newCapacityUsage().recordUse(m, "web", tc.change, replicaUsage(1))
		if _, stale := m.staleBundles["web"]; freed != tc.freed || stale != tc.stale || m.total.QuantityOf(schedule.MeasureReplicas) != tc.want {
			t.Errorf("%s: freed %t, stale %t, in all %v", tc.name, freed, stale, m.total)
		}
	}
}

// A row that changed is read later. A row that is gone frees its capacity at once, unless not all rows are counted
// yet, or a step is about to write it.
func TestRecordRowChange(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		there, loaded, taken bool
		freed                bool
	}{
		{"it is there", true, true, false, false}, {"it is gone", false, true, false, true},
		{"not all are counted", false, false, false, false}, {"it is taken", false, true, true, false},
	} {
		u := newCapacityUsage()
		m := &memberUsage{
			isLoaded: tc.loaded, total: replicaUsage(5), byBundle: map[string]schedule.ResourceUsage{"web": replicaUsage(5)},
			staleBundles: map[string]uint64{}, takenBundles: map[string]bool{"web": tc.taken},
		}
		u.members["uid-a"] = m
		freed := u.recordRowChange("web", "uid-a", tc.there)
		if left := m.total.QuantityOf(schedule.MeasureReplicas); freed != tc.freed || m.staleBundles["web"] != 1 || (left == 0) != tc.freed {
			t.Errorf("%s: freed %t, stale %v, in all %v", tc.name, freed, m.staleBundles, m.total)
		}
		if u.recordRowChange("web", "uid-b", false) {
			t.Errorf("%s: a cluster that is not counted frees capacity", tc.name)
		}
		u.markRowStale("web", "uid-b")
		if u.markRowStale("web", "uid-a"); m.staleBundles["web"] != 2 || len(u.members) != 1 {
			t.Errorf("%s: stale %v, members %d", tc.name, m.staleBundles, len(u.members))
		}
	}
}

// A step that was not written has its rows counted as before, and read again. Capacity that it does not use is free.
func TestSettleUse(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after int64
		written       bool
		want          int64
		freed, stale  bool
	}{
		{"it grew", 2, 6, true, 6, false, false}, {"it did not grow after all", 2, 6, false, 2, true, true},
		{"it shrank", 6, 2, true, 2, true, false}, {"it did not shrink after all", 6, 2, false, 6, false, true},
	} {
		u := newCapacityUsage()
		m := &memberUsage{
			name: "a", total: replicaUsage(max(tc.before, tc.after)), byBundle: map[string]schedule.ResourceUsage{"web": replicaUsage(max(tc.before, tc.after))},
			staleBundles: map[string]uint64{}, takenBundles: map[string]bool{"web": true},
		}
		u.members["uid-a"] = m
		after := map[string]schedule.ResourceUsage{"uid-a": replicaUsage(tc.after), "uid-gone": replicaUsage(1)}
		freed := u.settleUse("web", map[string]schedule.ResourceUsage{"uid-a": replicaUsage(tc.before)}, after, tc.written)
		_, stale := m.staleBundles["web"]
		if got := m.total.QuantityOf(schedule.MeasureReplicas); got != tc.want || slices.Contains(freed, "a") != tc.freed || stale != tc.stale || m.takenBundles["web"] {
			t.Errorf("%s: in all %d, freed %v, stale %t, taken %v", tc.name, got, freed, stale, m.takenBundles)
		}
	}
}

// A cluster that is not counted any more frees capacity once.
func TestRemovedMembersFreeCapacity(t *testing.T) {
	u := newCapacityUsage()
	u.members["uid-a"] = &memberUsage{}
	for range 2 {
		u.removeMember("a", "uid-a")
	}
	if u.hasMembers() || u.freedCounts["a"] != 1 {
		t.Errorf("members %v, freed %v", u.members, u.freedCounts)
	}
}

// A Bundle waits for the clusters that have no capacity for it. Those that a step did not look at stay. Beyond 64
// it waits for any.
func TestSetCrowdedClusters(t *testing.T) {
	many := strings.Fields(strings.Repeat("x ", maxCrowded))
	for i := range many {
		many[i] = "c" + string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	for _, tc := range []struct {
		name    string
		was     []string
		crowded []string
		only    map[string]bool
		want    []string
	}{
		{"the first", nil, []string{"a", "b"}, nil, []string{"a", "b"}},
		{"others", []string{"a", "b"}, []string{"c"}, nil, []string{"c"}},
		{"none any more", []string{"a", "b"}, nil, nil, nil},
		{"those that were looked at", []string{"a", "b"}, []string{"c"}, map[string]bool{"a": true, "c": true}, []string{"c", "b"}},
		{"none", nil, nil, nil, nil},
		{"as many as are listed", nil, many, nil, many},
		{"too many", nil, append(slices.Clone(many), "d"), nil, []string{anyCluster}},
		{"any, by an earlier step", []string{anyCluster}, []string{"c"}, map[string]bool{"c": true}, []string{anyCluster}},
	} {
		u := newCapacityUsage()
		u.refusedRevisions["web"] = "r1"
		u.setCrowdedClusters("web", slices.Clone(tc.was), nil)
		u.setCrowdedClusters("web", slices.Clone(tc.crowded), tc.only)
		if got := u.crowdedClusters["web"]; !slices.Equal(got, tc.want) {
			t.Errorf("%s: waits for %q, want %q", tc.name, got, tc.want)
		}
		for _, c := range tc.want {
			if !u.waitingBundles[c]["web"] {
				t.Errorf("%s: %q has no waiting Bundle", tc.name, c)
			}
		}
		if _, refused := u.refusedRevisions["web"]; len(u.waitingBundles) != len(tc.want) || len(tc.was) > 0 && refused != (len(tc.want) > 0) {
			t.Errorf("%s: waiting %v, refused %t", tc.name, u.waitingBundles, refused)
		}
		if u.clearCrowdedClusters("web"); len(u.waitingBundles)+len(u.crowdedClusters) != 0 {
			t.Errorf("%s: a deleted Bundle waits: %v", tc.name, u.waitingBundles)
		}
	}
}

// A step takes no more than is left of a cluster. The taken capacity counts for others until it is settled.
func TestTakeCapacity(t *testing.T) {
	m := newFakeHub()
	r, c := New(m.reconcilerConfig()), boundedCluster(5)
	demand, err := schedule.DemandOf(undividedContent("web", 3))
	if err != nil {
		t.Fatal(err)
	}
	step := func(bundle string) *stepInput {
		s := &stepInput{demand: capacityDemand{demands: map[string]*schedule.Demand{"r": demand}, bounds: map[string]*schedule.Cluster{"a": &c}}}
		s.bundle.Ref.UID = bundle
		return s
	}
	out := rollout.Output{Changes: map[string]*atoll.RowSpec{"a": {Revision: "r"}, "b": {Revision: "r"}}}
	settle, full := r.takeCapacity(step("web"), out)
	if settle(true); full != nil || len(r.usage.members) != 0 {
		t.Fatalf("a cluster that is not counted is full: %v", full)
	}
	if _, err := r.loadUsage(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	settle, full = r.takeCapacity(step("web"), out)
	if full != nil || r.usage.members["uid-a"].total.QuantityOf(schedule.MeasureReplicas) != 3 {
		t.Fatalf("the first takes 3 of 5: %v, %v", full, r.usage.members["uid-a"].total)
	}
	if _, full := r.takeCapacity(step("api"), out); len(full) != 1 || full["a"] != "others took the capacity that was left" {
		t.Errorf("the second takes 3 of 2: %v", full)
	}
	if again, full := r.takeCapacity(step("web"), out); full != nil {
		t.Errorf("the first takes its own again: %v", full)
	} else {
		again(true)
	}
	settle(false)
	if _, full := r.takeCapacity(step("api"), out); full != nil {
		t.Errorf("after the first was not written the second takes 3 of 5: %v", full)
	}
	gone, full := r.takeCapacity(step("api"), rollout.Output{Changes: map[string]*atoll.RowSpec{"a": nil}})
	if gone(true); full != nil || len(r.usage.members["uid-a"].total) != 0 {
		t.Errorf("without a row %v is used, %v", r.usage.members["uid-a"].total, full)
	}
}

// Demands are needed of the target, and of the rows on clusters that state a capacity.
func TestCapacityDemandOf(t *testing.T) {
	bounded, other := boundedCluster(5), schedule.Cluster{ClusterView: atoll.ClusterView{Name: "b"}}
	rows := []state.Row{{Cluster: "a", Spec: atoll.RowSpec{Revision: "r1"}}, {Cluster: "b", Spec: atoll.RowSpec{Revision: "lost"}}}
	for _, tc := range []struct {
		name     string
		clusters []schedule.Cluster
		target   string
		want     []string
		err      string
	}{
		{"bounds", []schedule.Cluster{bounded, other}, "r2", []string{"r1", "r2"}, ""},
		{"no bounds", []schedule.Cluster{other}, "r2", nil, ""},
		{"no target", []schedule.Cluster{bounded}, "", nil, ""},
		{"a target that cannot be read", []schedule.Cluster{bounded}, "lost", nil, "no revision lost"},
	} {
		m := newFakeHub()
		m.contents["r1"], m.contents["r2"] = undividedContent("web", 1), undividedContent("web", 2)
		s, err := New(m.reconcilerConfig()).capacityDemandOf(t.Context(), tc.clusters, rows, tc.target)
		if formatError(err) != tc.err {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
		}
		if tc.err != "" {
			continue
		}
		if len(s.demands) != len(tc.want) || (s.bounds["a"] != nil) != (len(tc.want) > 0) || s.bounds["b"] != nil {
			t.Errorf("%s: demands %v, bounds %v", tc.name, s.demands, s.bounds)
		}
		for _, revision := range tc.want {
			if s.demands[revision] == nil {
				t.Errorf("%s: no demand of %s", tc.name, revision)
			}
		}
	}
}

// A step that looks at the whole fleet decides about all capacity, another one about its clusters alone.
func TestClustersCoveredByCapacityCheck(t *testing.T) {
	rows := []state.Row{{Cluster: "a"}}
	touched := map[string]bool{"b": true}
	for _, tc := range []struct {
		name string
		view bundleView
		want []string
	}{
		{"the whole fleet", bundleView{touchedClusters: touched}, nil},
		{"the rows", bundleView{isComplete: true, touchedClusters: touched}, []string{"a", "b"}},
		{"the reserve", bundleView{reserve: []string{"c"}, touchedClusters: touched}, []string{"a", "b", "c"}},
	} {
		got := tc.view.clustersCoveredByCapacityCheck(rows)
		if len(got) != len(tc.want) || (got == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %q", tc.name, got, tc.want)
		}
		for _, c := range tc.want {
			if !got[c] {
				t.Errorf("%s: %s is missing", tc.name, c)
			}
		}
	}
}
