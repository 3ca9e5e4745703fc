package summarise

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
	m.edit(webKey, func(t *unstructured.Unstructured) {
		now := metav1.Now()
		t.SetDeletionTimestamp(&now)
		t.SetGeneration(t.GetGeneration() + 1)
	})
}

func (m *memory) exists() bool {
	_, ok := memTemplates{m}.Get(webKey)
	return ok
}

// bury cuts the Revision with the tombstone and gives it to the rows.
func (m *memory) bury(clusters ...string) {
	rev := m.cut("b", &atoll.Content{Tombstones: []atoll.Tombstone{webTombstone}})
	for _, c := range clusters {
		m.setRow("b", c, func(r *state.Row) { r.Spec.Revision, r.Spec.Generation = rev, r.Spec.Generation+1 })
	}
}

func (m *memory) confirm(cluster string) {
	m.setRow("b", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, Applied: true, State: atoll.RowReady, Gone: []string{webTombstone.ID()}}
	})
}

// removing turns a row, and removed reports that it is done.
func (m *memory) removing(cluster string) {
	m.setRow("b", cluster, func(r *state.Row) { r.Spec.Phase, r.Spec.Generation = atoll.RowRemoving, r.Spec.Generation+1 })
}

func (m *memory) removed(cluster string) {
	m.setRow("b", cluster, func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowRemoved}
	})
}

// placed runs a test with the Deployment ready on clusters a, b and far, of which
// the last is away.
func placed(t *testing.T, do func(m *memory, step func(time.Duration))) {
	t.Helper()
	m := newMemory()
	for _, c := range []string{"a", "b", "far"} {
		m.addCluster(c)
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply("a", "b", "far")
		for _, c := range []string{"a", "b", "far"} {
			m.report(c, 2)
		}
		step(2 * graceAtStart)
		m.stream("far", false)
		step(time.Second)
		do(m, step)
	})
}

func TestATemplateGoesWhenEveryConnectedClusterConfirmed(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before its tombstone was cut")
		}
		m.bury("a", "b", "far")
		step(time.Minute)
		m.confirm("a")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.confirm("b")
		step(time.Second)
		if m.exists() {
			t.Error("it waits for a cluster that is away")
		}
	})
}

func TestATemplateGoesWhenTheLastWaitedForClusterLosesItsStream(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.bury("a", "b", "far")
		m.confirm("a")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.stream("b", false)
		step(time.Second)
		if m.exists() {
			t.Error("it waits for a cluster that is away")
		}
	})
}

// A cluster that checks in is not waited for, whether or not it is there just now.
func TestATemplateDoesNotWaitForClustersThatCheckIn(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.checkIn("b")
		m.deleteTemplate()
		m.bury("a", "b", "far")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before cluster a confirmed")
		}
		m.checkIn("a")
		step(time.Minute)
		if m.exists() {
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
		m.bury("a")
		m.stream("a", false)
		step(graceAtStart / 2)
		if !m.exists() {
			t.Error("it went while the cluster may come back")
		}
		step(graceAtStart)
		if m.exists() {
			t.Error("it waits for a cluster that did not come back")
		}
	})
}

func TestATemplateWaitsForEveryBundleThatHasIt(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.setBundle("other", nil)
		dependency := webContent("h1")
		dependency.Items[0].Dependency = true
		rev := m.cut("other", dependency)
		m.setRow("other", "far", func(r *state.Row) { r.Spec.Revision = rev })
		m.deleteTemplate()
		m.bury("a", "b", "far")
		m.confirm("a")
		m.confirm("b")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went though another Bundle has it")
		}
		m.stream("far", true)
		m.cut("other", &atoll.Content{Tombstones: []atoll.Tombstone{webTombstone}})
		m.confirm("far")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went though the other Bundle's row is waited for")
		}
		m.setRow("other", "far", func(r *state.Row) {
			r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: 1, State: atoll.RowReady, Applied: true, Gone: []string{webTombstone.ID()}}
		})
		step(time.Second)
		if m.exists() {
			t.Error("it stays though every Bundle confirmed")
		}
	})
}

// Of many tombstones a row tells only that all are carried out. What it said of an
// older order says nothing: the template may have come back in between.
func TestATemplateGoesWithMany(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		say := func(cluster string, status atoll.RowStatus) {
			m.setRow("b", cluster, func(r *state.Row) {
				status.UID, status.State, status.Applied = r.Spec.UID, atoll.RowReady, true
				status.Generation += r.Spec.Generation
				r.Status = &status
			})
		}
		m.deleteTemplate()
		m.bury("a", "b", "far")
		say("a", atoll.RowStatus{AllGone: true})
		say("b", atoll.RowStatus{Generation: -1, AllGone: true})
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went by what b said of an older order")
		}
		say("b", atoll.RowStatus{Generation: -1, Gone: []string{webTombstone.ID()}})
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went by what b listed of an older order")
		}
		say("b", atoll.RowStatus{AllGone: true})
		step(time.Second)
		if m.exists() {
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
		if !m.exists() {
			t.Error("it went while a Revision with it may be cut")
		}
		step(3 * time.Second)
		if m.exists() {
			t.Error("it stays for nobody")
		}
	})
}

// A deleted namespace: the Bundle is deleted, its rows are told to go without a new
// Revision, and templates and Bundle go when connected clusters confirmed; what is
// away keeps its row until it comes back.
func TestADeletedBundle(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.setBundle("b", func(b *state.Bundle) { now := metav1.Now(); b.Meta.DeletionTimestamp = &now })
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || !m.exists() {
			t.Fatal("it went before its rows were told")
		}
		for _, c := range []string{"a", "b", "far"} {
			m.removing(c)
		}
		m.removed("a")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || !m.exists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.removed("b")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); ok || m.exists() {
			t.Fatal("it waits for a cluster that is away")
		}
		if rows := (memRows{m}).OfBundle("b"); len(rows) != 1 || rows[0].Cluster != "far" || len(m.revisions["b"]) == 0 {
			t.Fatalf("left for the cluster that is away: %v, %v", rows, m.revisions)
		}
		m.stream("far", true)
		m.removed("far")
		step(time.Minute)
		if len(m.rows) > 0 || len(m.slices) > 0 || len(m.revisions["b"]) > 0 {
			t.Errorf("left behind: %v %v %v", m.rows, m.slices, m.revisions)
		}
	})
}

// A namespace that is deleted takes its Pods first, and its Bundles only when those
// are gone: they must not wait for each other.
func TestATemplateGoesBeforeTheBundleOfItsNamespace(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.doom("shop")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before its rows were told")
		}
		for _, c := range []string{"a", "b", "far"} {
			m.removing(c)
		}
		m.removed("a")
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before cluster b confirmed")
		}
		m.removed("b")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || m.exists() {
			t.Fatal("it waits for its Bundle, which waits for it")
		}
	})
}

func TestAGivenUpClusterLeavesNoRowOfADeletedBundle(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.setBundle("b", func(b *state.Bundle) { now := metav1.Now(); b.Meta.DeletionTimestamp = &now })
		for _, c := range []string{"a", "b", "far"} {
			m.removing(c)
		}
		m.removed("a")
		m.removed("b")
		step(time.Minute)
		m.turn("far", metav1.ConditionUnknown)
		step(24 * time.Hour)
		if rows := (memRows{m}).OfBundle("b"); len(rows) != 1 {
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
	placed(t, func(m *memory, step func(time.Duration)) {
		m.giveUp("far")
		step(time.Minute)
		if rows := (memRows{m}).OfBundle("b"); len(rows) != 3 {
			t.Errorf("rows: %v", rows)
		}
	})
}

func TestRemovedRowsAreCollectedTogether(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.written("rows")
		m.removing("a")
		m.removing("b")
		m.removed("a")
		step(time.Second)
		m.removed("b")
		step(time.Minute)
		if rows := (memRows{m}).OfBundle("b"); len(rows) != 1 || m.written("rows") != 1 {
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
			m.removing(c)
			m.removed(c)
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
			m.cut("b", webContent(fmt.Sprintf("h%d", i+2)))
		}
		step(time.Minute)
		all := m.revisions["b"]
		if len(all) != 11 || all[0].Name != "b-r1" || all[1].Name != "b-r7" || all[10].Name != "b-r16" {
			t.Errorf("%d revisions are left, from %s", len(all), all[0].Name)
		}
	})
}

func TestAHoldingHubLetsNothingGo(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.holding = true
		m.deleteTemplate()
		m.bury("a", "b", "far")
		m.confirm("a")
		m.confirm("b")
		m.removing("far")
		m.removed("far")
		step(time.Minute)
		if !m.exists() || len(m.rows["b"]) != 3 {
			t.Fatal("something went while the hub holds")
		}
		m.holding = false
		for _, fn := range m.onHub {
			fn()
		}
		step(time.Minute)
		if m.exists() || len(m.rows["b"]) != 2 {
			t.Error("something stays after the hub was told to go on")
		}
	})
}

// Until its tombstone is recorded a template stays, even when nobody is there to be
// waited for: otherwise its deletion could be forgotten.
func TestADeletionIsRecordedBeforeItsTemplateGoes(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.stream("a", false)
		m.stream("b", false)
		m.deleteTemplate()
		step(time.Minute)
		if !m.exists() {
			t.Fatal("it went before its tombstone was cut")
		}
		m.setBundle("b", func(b *state.Bundle) { now := metav1.Now(); b.Meta.DeletionTimestamp = &now })
		m.removing("a")
		m.removing("b")
		step(time.Minute)
		if _, ok := (memBundles{m}).Get("b"); !ok || !m.exists() {
			t.Fatal("it went before the last row was told")
		}
		m.removing("far")
		step(time.Second)
		if _, ok := (memBundles{m}).Get("b"); ok || m.exists() {
			t.Error("it waits for clusters that are away")
		}
	})
}

// bind may drop a tombstone that all have confirmed before its template is let go.
func TestATemplateWhoseTombstoneIsDroppedIsLetGo(t *testing.T) {
	placed(t, func(m *memory, step func(time.Duration)) {
		m.deleteTemplate()
		m.bury("a", "b", "far")
		step(10 * time.Second)
		for _, c := range []string{"a", "b", "far"} {
			m.confirm(c)
		}
		m.cut("b", &atoll.Content{})
		step(10 * time.Second)
		if m.exists() {
			t.Error("it stays for nobody")
		}
	})
}
