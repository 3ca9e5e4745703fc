package bundlestatus

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

var webTombstone = atoll.Tombstone{Key: webKey, UID: "u1", Cause: atoll.CauseDeleted}

// deleteTemplate as a user does: it stays for its finalizer.
func (m *memory) deleteTemplate() {
	m.editTemplate(webKey, func(t *unstructured.Unstructured) {
		now := metav1.Now()
		t.SetDeletionTimestamp(&now)
		t.SetGeneration(t.GetGeneration() + 1)
	})
}

func (m *memory) bundleExists() bool {
	_, ok := memTemplates{m}.Get(webKey)
	return ok
}

// addTombstones cuts the Revision with the tombstone and gives it to the rows.
func (m *memory) addTombstones(clusters ...string) {
	rev := m.cutRevision("b", &atoll.Content{Tombstones: []atoll.Tombstone{webTombstone}})
	for _, c := range clusters {
		m.setRow("b", c, func(r *state.Row) { r.Spec.Revision, r.Spec.Generation = rev, r.Spec.Generation+1 })
	}
}

func (m *memory) confirmRemoval(cluster string) {
	m.setRow("b", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, Applied: true, State: atoll.RowReady, DoneTombstones: []string{webTombstone.ID()}}
	})
}

// reportRemoving turns a row, and removed reports that it is done.
func (m *memory) reportRemoving(cluster string) {
	m.setRow("b", cluster, func(r *state.Row) { r.Spec.Phase, r.Spec.Generation = atoll.RowRemoving, r.Spec.Generation+1 })
}

func (m *memory) reportRemoved(cluster string) {
	m.setRow("b", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved}
	})
}

// withPlacedBundle runs a test with the Deployment ready on clusters a, b and far, of which
// the last is away.
func withPlacedBundle(t *testing.T, do func(m *memory, step func(time.Duration))) {
	t.Helper()
	m := newMemory()
	for _, c := range []string{"a", "b", "far"} {
		m.addCluster(c)
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply("a", "b", "far")
		for _, c := range []string{"a", "b", "far"} {
			m.reportAvailable(c, 2)
		}
		step(2 * graceAtStart)
		m.setStream("far", false)
		step(time.Second)
		do(m, step)
	})
}

func TestATemplateGoesWhenEveryConnectedClusterConfirmed(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before its tombstone was cut")
		}
		m.addTombstones("a", "b", "far")
		step(time.Minute)
		m.confirmRemoval("a")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.confirmRemoval("b")
		step(time.Second)
		if m.bundleExists() {
			t.Error("it waits for a cluster that is away")
		}
	})
}

func TestATemplateGoesWhenTheLastWaitedForClusterLosesItsStream(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.addTombstones("a", "b", "far")
		m.confirmRemoval("a")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.setStream("b", false)
		step(time.Second)
		if m.bundleExists() {
			t.Error("it waits for a cluster that is away")
		}
	})
}

// A cluster that checks in is not waited for, whether or not it is there just now.
func TestATemplateDoesNotWaitForClustersThatCheckIn(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.checkIn("b")
		m.deleteTemplate()
		m.addTombstones("a", "b", "far")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before cluster a confirmed")
		}
		m.checkIn("a")
		step(time.Minute)
		if m.bundleExists() {
			t.Error("it waits for clusters that check in")
		}
	})
}

// After a start of the hub, clusters that were Ready get time to come back.
func TestAStartingHubWaitsForClustersThatWereReady(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		m.deleteTemplate()
		m.addTombstones("a")
		m.setStream("a", false)
		step(graceAtStart / 2)
		if !m.bundleExists() {
			t.Error("it went while the cluster may come back")
		}
		step(graceAtStart)
		if m.bundleExists() {
			t.Error("it waits for a cluster that did not come back")
		}
	})
}

func TestATemplateWaitsForEveryBundleThatHasIt(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.setBundle("other", nil)
		dependency := webContent("h1")
		dependency.Items[0].Dependency = true
		rev := m.cutRevision("other", dependency)
		m.setRow("other", "far", func(r *state.Row) { r.Spec.Revision = rev })
		m.deleteTemplate()
		m.addTombstones("a", "b", "far")
		m.confirmRemoval("a")
		m.confirmRemoval("b")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went though another Bundle has it")
		}
		m.setStream("far", true)
		m.cutRevision("other", &atoll.Content{Tombstones: []atoll.Tombstone{webTombstone}})
		m.confirmRemoval("far")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went though the other Bundle's row is waited for")
		}
		m.setRow("other", "far", func(r *state.Row) {
			r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: 1, State: atoll.RowReady, Applied: true, DoneTombstones: []string{webTombstone.ID()}}
		})
		step(time.Second)
		if m.bundleExists() {
			t.Error("it stays though every Bundle confirmed")
		}
	})
}

// For many tombstones a row reports only that all are carried out. Its report on an older order
// does not count: the template may have come back in between.
func TestATemplateGoesWithMany(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		say := func(cluster string, status atoll.RowStatus) {
			m.setRow("b", cluster, func(r *state.Row) {
				status.UID, status.State, status.Applied = r.Spec.UID, atoll.RowReady, true
				status.Generation += r.Spec.Generation
				r.Status = &status
			})
		}
		m.deleteTemplate()
		m.addTombstones("a", "b", "far")
		say("a", atoll.RowStatus{AllTombstonesDone: true})
		say("b", atoll.RowStatus{Generation: -1, AllTombstonesDone: true})
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went by what b said of an older order")
		}
		say("b", atoll.RowStatus{Generation: -1, DoneTombstones: []string{webTombstone.ID()}})
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went by what b listed of an older order")
		}
		say("b", atoll.RowStatus{AllTombstonesDone: true})
		step(time.Second)
		if m.bundleExists() {
			t.Error("it stays though every connected cluster has carried out all")
		}
	})
}

func TestATemplateThatNoBundleHoldsIsLetGo(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.setTemplate(webTemplate())
		step(time.Minute)
		m.deleteTemplate()
		step(unheldAfter - time.Second)
		if !m.bundleExists() {
			t.Error("it went while a Revision with it may be cut")
		}
		step(3 * time.Second)
		if m.bundleExists() {
			t.Error("it stays without a reason")
		}
	})
}

// A deleted namespace: the Bundle is deleted, its rows are ordered to go without a new Revision,
// and templates and Bundle go when connected clusters confirmed. A disconnected cluster keeps its
// row until it comes back.
func TestADeletedBundle(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.setBundle("b", func(b *state.Bundle) { now := metav1.Now(); b.Meta.DeletionTimestamp = &now })
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || !m.bundleExists() {
			t.Fatal("it went before its rows were ordered")
		}
		for _, c := range []string{"a", "b", "far"} {
			m.reportRemoving(c)
		}
		m.reportRemoved("a")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || !m.bundleExists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.reportRemoved("b")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); ok || m.bundleExists() {
			t.Fatal("it waits for a cluster that is away")
		}
		if rows := (memRows{m}).ListOfBundle("b"); len(rows) != 1 || rows[0].Cluster != "far" || len(m.revisions["b"]) == 0 {
			t.Fatalf("left for the cluster that is away: %v, %v", rows, m.revisions)
		}
		m.setStream("far", true)
		m.reportRemoved("far")
		step(time.Minute)
		if len(m.rows) > 0 || len(m.slices) > 0 || len(m.revisions["b"]) > 0 {
			t.Errorf("left behind: %v %v %v", m.rows, m.slices, m.revisions)
		}
	})
}

// A namespace that is deleted takes its Pods first, and its Bundles only when those
// are gone: they must not wait for each other.
func TestATemplateGoesBeforeTheBundleOfItsNamespace(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.markDeleted("shop")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before its rows were ordered")
		}
		for _, c := range []string{"a", "b", "far"} {
			m.reportRemoving(c)
		}
		m.reportRemoved("a")
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.reportRemoved("b")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || m.bundleExists() {
			t.Fatal("it waits for its Bundle, which waits for it")
		}
	})
}

func TestAGivenUpClusterLeavesNoRowOfADeletedBundle(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.setBundle("b", func(b *state.Bundle) { now := metav1.Now(); b.Meta.DeletionTimestamp = &now })
		for _, c := range []string{"a", "b", "far"} {
			m.reportRemoving(c)
		}
		m.reportRemoved("a")
		m.reportRemoved("b")
		step(time.Minute)
		m.setReady("far", metav1.ConditionUnknown)
		step(24 * time.Hour)
		if rows := (memRows{m}).ListOfBundle("b"); len(rows) != 1 {
			t.Fatalf("silence took the row: %v", rows)
		}
		m.giveUp("far")
		step(time.Minute)
		if len(m.rows) > 0 || len(m.slices) > 0 || len(m.revisions["b"]) > 0 {
			t.Errorf("left behind: %v %v %v", m.rows, m.slices, m.revisions)
		}
	})
}

// A given-up cluster's rows of living Bundles are place's to take away.
func TestAGivenUpClusterKeepsRowsOfLivingBundles(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.giveUp("far")
		step(time.Minute)
		if rows := (memRows{m}).ListOfBundle("b"); len(rows) != 3 {
			t.Errorf("rows: %v", rows)
		}
	})
}

func TestRemovedRowsAreCollectedTogether(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.countWrites("rows")
		m.reportRemoving("a")
		m.reportRemoving("b")
		m.reportRemoved("a")
		step(time.Second)
		m.reportRemoved("b")
		step(time.Minute)
		if rows := (memRows{m}).ListOfBundle("b"); len(rows) != 1 || m.countWrites("rows") != 1 {
			t.Errorf("rows %v after writes %q", rows, m.writes)
		}
		if len(m.slices) != 1 {
			t.Errorf("slices: %v", m.slices)
		}
	})
}

func TestALivingBundleKeepsOneEmptySlice(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		m.setRow("b", "z", func(r *state.Row) { r.Slice = "b-1" })
		for _, c := range []string{"a", "z"} {
			m.reportRemoving(c)
			m.reportRemoved(c)
		}
		step(time.Minute)
		if len(m.slices) != 1 || m.slices["b-0"] == nil || len(m.rows) != 0 {
			t.Errorf("slices %v, rows %v", m.slices, m.rows)
		}
	})
}

func TestHistoryKeepsTenRevisionsAndThoseThatRowsName(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		for i := range 15 {
			m.cutRevision("b", webContent(fmt.Sprintf("h%d", i+2)))
		}
		step(time.Minute)
		all := m.revisions["b"]
		if len(all) != 11 || all[0].Name != "b-r1" || all[1].Name != "b-r7" || all[10].Name != "b-r16" {
			t.Errorf("%d revisions are left, from %s", len(all), all[0].Name)
		}
	})
}

func TestAHoldingHubLetsNothingGo(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.holding = true
		m.deleteTemplate()
		m.addTombstones("a", "b", "far")
		m.confirmRemoval("a")
		m.confirmRemoval("b")
		m.reportRemoving("far")
		m.reportRemoved("far")
		step(time.Minute)
		if !m.bundleExists() || len(m.rows["b"]) != 3 {
			t.Fatal("something went while the hub holds")
		}
		m.holding = false
		for _, fn := range m.onHub {
			fn()
		}
		step(time.Minute)
		if m.bundleExists() || len(m.rows["b"]) != 2 {
			t.Error("something stays after the hub was ordered to go on")
		}
	})
}

// Until its tombstone is recorded a template stays, even without a cluster to wait for: otherwise
// its deletion could be forgotten.
func TestADeletionIsRecordedBeforeItsTemplateGoes(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.setStream("a", false)
		m.setStream("b", false)
		m.deleteTemplate()
		step(time.Minute)
		if !m.bundleExists() {
			t.Fatal("it went before its tombstone was cut")
		}
		m.setBundle("b", func(b *state.Bundle) { now := metav1.Now(); b.Meta.DeletionTimestamp = &now })
		m.reportRemoving("a")
		m.reportRemoving("b")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || !m.bundleExists() {
			t.Fatal("it went before the last row was ordered")
		}
		m.reportRemoving("far")
		step(time.Second)
		if _, ok := (memBundles{m}).Get("b"); ok || m.bundleExists() {
			t.Error("it waits for clusters that are away")
		}
	})
}

// bind may drop a tombstone that all have confirmed before its template is let go.
func TestATemplateWhoseTombstoneIsDroppedIsLetGo(t *testing.T) {
	withPlacedBundle(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.addTombstones("a", "b", "far")
		step(10 * time.Second)
		for _, c := range []string{"a", "b", "far"} {
			m.confirmRemoval(c)
		}
		m.cutRevision("b", &atoll.Content{})
		step(10 * time.Second)
		if m.bundleExists() {
			t.Error("it stays without a reason")
		}
	})
}
