package placer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// stagesByRing has the stages ring=1 and ring=2, and the rest. A stage must be healthy for a minute.
func stagesByRing() *v1alpha1.Rollout {
	out := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged}
	for _, ring := range []string{"1", "2"} {
		out.Stages = append(out.Stages, v1alpha1.RolloutStage{
			Name: "ring-" + ring, Clusters: v1alpha1.StageClusters{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": ring}}},
			MinSuccessTime: &metav1.Duration{Duration: time.Minute},
		})
	}
	return out
}

func labelRing(m *fakeHub, cluster, ring string) {
	m.changeCluster(cluster, func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"ring": ring} })
}

// newStagedBundle makes a Bundle with revision r1 in clusters a, b and c, which are in ring 1, ring 2 and the rest. It
// then states stages, and revision r2 comes.
func newStagedBundle(m *fakeHub) {
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a", "b", "c") })
	m.cutRevision("web", &atoll.Content{})
	m.settleRows("web")
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Rollout = stagesByRing() })
	m.cutRevision("web", &atoll.Content{})
}

func newRings(names ...string) *fakeHub {
	m := newFakeHub()
	for i, name := range names {
		labelRing(m, name, fmt.Sprint(i+1))
	}
	return m
}

// Rows change in the order of their stages, each when the one before has been healthy for its time. No step is made
// in between.
func TestRowsChangeInStages(t *testing.T) {
	m := newRings("a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newStagedBundle(m)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		m.reportHealthy("web", "a")
		synctest.Wait()
		_, steps := m.countsAfterWait()
		time.Sleep(59 * time.Second)
		if _, after := m.countsAfterWait(); after != steps {
			t.Errorf("%d steps although nothing was due", after-steps)
		}
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		time.Sleep(2 * time.Second)
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r1")
		m.reportHealthy("web", "b")
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r2")
	})
}

// A cluster that reports nothing fails its stage at progressDeadline, by time alone, also where its member is not ready.
func TestALateClusterFailsItsStage(t *testing.T) {
	for _, ready := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		t.Run("Ready="+string(ready), func(t *testing.T) { checkLateCluster(t, ready) })
	}
}

func checkLateCluster(t *testing.T, ready metav1.ConditionStatus) {
	m := newRings("a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: ready, LastTransitionTime: metav1.Now()}}
		})
		newStagedBundle(m)
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout = stagesByRing()
			b.Spec.Rollout.Stages[0].ProgressDeadline = &metav1.Duration{Duration: 10 * time.Minute}
		})
		time.Sleep(9 * time.Minute)
		m.mu.Lock()
		early := m.rows["web"]["a"].Spec.FailedAt
		m.mu.Unlock()
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		m.mu.Lock()
		defer m.mu.Unlock()
		if late := m.rows["web"]["a"].Spec.FailedAt; early != 0 || late == 0 {
			t.Errorf("the cluster failed at %d before its deadline, and at %d after it", early, late)
		}
	})
}

// A stage that fails returns what has changed to its earlier revision, by a decision that is stored first. A hub that begins with
// any of these writes goes on.
func TestAFailedStageRollsBack(t *testing.T) {
	m := newRings("a", "b", "c")
	w := &gateWriter{hub: m}
	report := func(cluster string, state atoll.RowState) {
		m.reportSince("web", cluster, state)
		time.Sleep(time.Second)
		synctest.Wait()
	}
	expectState := func(want v1alpha1.RollbackState) {
		t.Helper()
		m.mu.Lock()
		defer m.mu.Unlock()
		b := m.bundles["web"]
		if b.Status.Rollout == nil || b.Status.Rollout.Rollback == nil {
			t.Fatalf("no rollback is stored, want %s", want)
		}
		if r := b.Status.Rollout.Rollback; r.State != want || r.Cluster != "b" || r.Reason != "Degraded" || r.Stage != "ring-2" || r.PreviousRevision != m.revisions["web"][0].Name {
			t.Errorf("the rollback is %+v, want %s", *r, want)
		}
	}
	restart := func(steps func()) {
		t.Helper()
		runWith(t, m, func(c *Config) { c.SetRollout = w.setRollout }, func(t *testing.T, _ *PlacementReconciler) { steps() })
	}
	restart(func() {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.Rollout = placementNamed("a", "b", "c"), stagesByRing()
			for i := range b.Spec.Rollout.Stages {
				b.Spec.Rollout.Stages[i].MinSuccessTime, b.Spec.Rollout.Stages[i].OnFailure = nil, v1alpha1.FailureRollback
			}
		})
		m.cutRevision("web", &atoll.Content{})
		for _, c := range []string{"a", "b", "c"} {
			time.Sleep(time.Second)
			report(c, atoll.RowReady)
		}
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Second)
		report("a", atoll.RowReady)
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r1")
		report("b", atoll.RowDegraded)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		expectState(v1alpha1.RollingBack)
	})
	restart(func() {
		time.Sleep(time.Second)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		report("b", atoll.RowReady)
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		report("a", atoll.RowReady)
		expectState(v1alpha1.RolledBack)
	})
	restart(func() {
		time.Sleep(time.Hour)
		_, steps := m.countsAfterWait()
		report("a", atoll.RowReady)
		if _, after := m.countsAfterWait(); after != steps {
			t.Errorf("%d steps by a report after the rollback", after-steps)
		}
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		if w.writes != 3 { // its begin, its end, and the end by the clock of the last hub, which is behind
			t.Errorf("%d writes of the rollback, want 3", w.writes)
		}
	})
}

// A cluster of the last stage that was healthy for a moment, and fails soon after that, rolls back: its report is followed.
func TestALateFailureRollsBack(t *testing.T) {
	m := newRings("a", "b", "c")
	w := &gateWriter{hub: m}
	runWith(t, m, func(c *Config) { c.SetRollout = w.setRollout }, func(t *testing.T, _ *PlacementReconciler) {
		all := []v1alpha1.RolloutStage{{Name: "all", Clusters: v1alpha1.StageClusters{LabelSelector: &metav1.LabelSelector{}}, OnFailure: v1alpha1.FailureRollback}}
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.Rollout = placementNamed("a", "b", "c"), &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: all}
		})
		for range 2 {
			m.cutRevision("web", &atoll.Content{})
			time.Sleep(time.Second)
			for _, c := range []string{"a", "b", "c"} {
				m.reportHealthy("web", c)
			}
			time.Sleep(time.Minute)
		}
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r2")
		m.reportSince("web", "b", atoll.RowDegraded)
		time.Sleep(time.Second)
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
	})
}

// A rollback brings no deleted object back, removes nothing, and returns to no revision that is not kept. The cluster keeps what it has,
// and the rollback ends with the reason.
func TestWhatARollbackCannotTakeBack(t *testing.T) {
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	with := &atoll.Content{Items: []atoll.Item{{Key: conf, UID: "u"}}}
	excludes := &atoll.Content{Items: with.Items, Rules: []atoll.Rule{{Items: []atoll.ItemKey{conf}, Overriders: v1alpha1.Overriders{NotHere: new(true)}}}}
	deleted := &atoll.Content{Tombstones: []atoll.Tombstone{{Key: conf, UID: "u", Cause: atoll.CauseDeleted}}}
	unused := &atoll.Content{Tombstones: []atoll.Tombstone{{Key: conf, UID: "u", Cause: atoll.CauseUnused}}}
	again := &atoll.Content{Items: []atoll.Item{{Key: conf, UID: "u2"}}}
	more := &atoll.Content{Items: append([]atoll.Item{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "more"}, UID: "v"}}, with.Items...)}
	const deletes, has = "the change deletes objects, or hands them over", "its earlier revision deletes objects that the change has again, or hands them over"
	const rules = "override rules of its earlier revision exclude objects that it has"
	all, none, held := &atoll.RowSpec{}, &atoll.RowSpec{Absent: []string{conf.String()}}, &atoll.RowSpec{ExcludedPending: map[string]int64{conf.String(): 1}}
	for name, c := range map[string]struct {
		from, to *atoll.Content
		row      *atoll.RowSpec
		blocker  string
	}{
		"an object is added":                       {more, with, all, ""},
		"an object is deleted":                     {deleted, with, all, deletes},
		"it was deleted before":                    {deleted, deleted, all, ""},
		"every row confirmed the deletion":         {&atoll.Content{}, with, all, deletes},
		"an object is deleted and made again":      {again, with, all, deletes},
		"a deleted object is there again":          {with, deleted, all, has},
		"an unused object is used again":           {with, unused, all, has},
		"an exclusion is new":                      {excludes, with, none, ""},
		"an exclusion is taken back":               {with, excludes, all, rules},
		"the earlier one is not kept":              {with, nil, all, "its earlier revision is not kept any more"},
		"the same objects are excluded":            {excludes, excludes, none, ""},
		"an exclusion waits for its confirmation":  {excludes, excludes, held, rules},
		"an excluded one is not its own":           {more, excludes, all, rules},
		"a new copy has nothing to lose":           {with, excludes, nil, ""},
		"a new copy brings no deleted object back": {deleted, with, nil, deletes},
	} {
		r := &PlacementReconciler{Config: Config{Revisions: keptRevision{content: c.to}}}
		prev, err := r.readPrevious(t.Context(), "earlier", c.from)
		if err != nil {
			t.Fatal(err)
		}
		got := prev.contentFor(atoll.ClusterView{Name: "a"}, c.row)
		if got.Blocker != c.blocker {
			t.Errorf("%s: the blocker is %q, want %q", name, got.Blocker, c.blocker)
		}
		if wantAbsent := c.to == excludes && c.blocker == ""; (len(got.Absent) == 1) != wantAbsent {
			t.Errorf("%s: absent are %v", name, got.Absent)
		}
	}
}

// keptRevision has one content; nil: it is not kept.
type keptRevision struct {
	Revisions
	content *atoll.Content
}

func (k keptRevision) GetContent(context.Context, string) (*atoll.Content, error) {
	if k.content == nil {
		return nil, fmt.Errorf("read revision: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "revisions"}, "earlier"))
	}
	return k.content, nil
}

// reportHealthy reports the row as healthy since now.
func (m *fakeHub) reportHealthy(uid, cluster string) { m.reportSince(uid, cluster, atoll.RowReady) }

// reportSince reports the state of the row since now.
func (m *fakeHub) reportSince(uid, cluster string, is atoll.RowState) {
	m.mu.Lock()
	r := m.rows[uid][cluster]
	r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: is, Applied: true, Total: 1, Ready: 1, Since: time.Now().Unix()}
	m.rows[uid][cluster] = r
	m.mu.Unlock()
	for _, fn := range m.onRows {
		fn(uid, []string{cluster}, nil)
	}
}

// A label that puts a cluster into another stage requests a step, and so does one that takes the blocking cluster
// out of its stage. A label that does neither requests none.
func TestALabelMovesAClusterToAnotherStage(t *testing.T) {
	for name, c := range map[string]struct {
		healthy             bool
		cluster, ring, rows string
	}{
		"into the stage that changes":   {false, "c", "1", "a Active r2, b Active r1, c Active r2"},
		"into a later stage":            {false, "b", "9", "a Active r2, b Active r1, c Active r1"},
		"the blocking cluster":          {false, "a", "9", "a Active r2, b Active r2, c Active r1"},
		"the one whose time is counted": {true, "a", "9", "a Active r2, b Active r2, c Active r1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRings("a", "b", "c")
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				newStagedBundle(m)
				expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
				if c.healthy {
					m.reportHealthy("web", "a")
					synctest.Wait()
				}
				labelRing(m, c.cluster, c.ring)
				time.Sleep(time.Second)
				expectRows(t, m, "web", c.rows)
			})
		})
	}
}

// A pause holds every row, and a resume lets them go. Reports, and clusters that go and come, write nothing
// in it: rows at rest are not written again.
func TestAPauseWritesNothing(t *testing.T) {
	m := newRings("a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newStagedBundle(m)
		synctest.Wait()
		m.reportHealthy("web", "a")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Pause = &v1alpha1.RolloutPause{By: "alice"} })
		synctest.Wait()
		writes, _ := m.countsAfterWait()
		for _, cluster := range []string{"a", "b", "c"} {
			m.setOnline(cluster, false)
			m.setOnline(cluster, true)
			m.reportHealthy("web", cluster)
			time.Sleep(time.Hour)
		}
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		if after, _ := m.countsAfterWait(); after != writes {
			t.Errorf("%d writes in the pause", after-writes)
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Pause = nil })
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r1")
	})
}

// A hub that starts has no streams for a moment. No stage begins because of that, and no time is counted again.
func TestARestartBeginsNoStage(t *testing.T) {
	m := newRings("a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		stop := startReconciler(t, m)
		newStagedBundle(m)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		stop()
		for _, name := range []string{"a", "b", "c"} {
			m.setOnline(name, false)
		}
		stop = startReconciler(t, m)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		m.setOnline("b", true)
		time.Sleep(time.Minute)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		m.setOnline("a", true)
		m.setOnline("c", true)
		m.reportHealthy("web", "a")
		time.Sleep(30 * time.Second)
		stop()
		stop = startReconciler(t, m)
		time.Sleep(29 * time.Second)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		time.Sleep(2 * time.Second)
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r1")
		stop()
		time.Sleep(time.Minute)
	})
}

// A change that takes an item from 100 clusters in stages of 5 is one removal: it waits for its confirmation before
// the first cluster loses anything, and one confirmation is for all.
func TestStagesDoNotSplitARemoval(t *testing.T) {
	m := newFakeHub()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("c%03d", i))
	}
	addClusters(m, names...)
	item := atoll.Item{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "x"}, UID: "u", Object: []byte(`{}`)}
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{Items: []atoll.Item{item}}, names...)
		m.settleRows("web")
		five := intstr.FromInt32(5)
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
				{Name: "all", Clusters: v1alpha1.StageClusters{LabelSelector: &metav1.LabelSelector{}}, MaxConcurrency: &five},
			}}
		})
		r.ledgerMu.Lock()
		r.ledger.RecordDeletes("shop", time.Now(), 950)
		r.ledgerMu.Unlock()
		m.cutRevision("web", &atoll.Content{Tombstones: []atoll.Tombstone{{Key: item.Key, UID: "u", Cause: atoll.CauseDeleted}}})
		m.settleRows("web")
		if n := strings.Count(m.rowsOf("web"), "r1"); n != 100 {
			t.Fatalf("%d of 100 clusters keep the item before the confirmation", n)
		}
		row, _ := fakeRows{m}.Get("web", "c000")
		plan := atoll.ParseRowReason(row.Spec.Reason).Plan
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan} })
		synctest.Wait()
		if n := strings.Count(m.rowsOf("web"), "r2"); plan == "" || n != 5 {
			t.Fatalf("%d clusters change by plan %q, want 5", n, plan)
		}
		for range 25 {
			m.settleRows("web")
		}
		if n := strings.Count(m.rowsOf("web"), "r2"); n != 100 {
			t.Errorf("%d of 100 clusters changed by the one confirmation", n)
		}
	})
}

// A Bundle that states no rollout changes a quarter of its eight clusters, and the others as these become healthy. Each row
// is written once. A change that fails stops there until a person resumes, also over a restart of the hub.
func TestAChangeStopsAtAQuarterByDefault(t *testing.T) {
	names := []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"}
	rows := func(changed int, is, was string) string {
		var out []string
		for i, c := range names {
			out = append(out, c+" Active "+map[bool]string{true: is, false: was}[i < changed])
		}
		return strings.Join(out, ", ")
	}
	m := newRings(names...)
	synctest.Test(t, func(t *testing.T) {
		stop := startReconciler(t, m)
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed(names...) })
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", rows(8, "r1", ""))
		for _, c := range names {
			m.reportHealthy("web", c)
		}
		before := m.rowsWritten
		m.cutRevision("web", &atoll.Content{})
		for changed := 2; changed <= len(names); changed += 2 {
			expectRows(t, m, "web", rows(changed, "r2", "r1"))
			time.Sleep(time.Minute)
			expectRows(t, m, "web", rows(changed, "r2", "r1"))
			m.reportHealthy("web", names[changed-2])
			m.reportHealthy("web", names[changed-1])
			time.Sleep(time.Second)
		}
		if n := m.rowsWritten - before; n != len(names) {
			t.Errorf("the change made %d writes of rows, want %d", n, len(names))
		}
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		m.reportState("web", "c0", atoll.RowDegraded)
		m.reportState("web", "c1", atoll.RowDegraded)
		time.Sleep(time.Hour)
		expectRows(t, m, "web", rows(2, "r3", "r2"))
		stop()
		stop = startReconciler(t, m)
		time.Sleep(time.Hour)
		expectRows(t, m, "web", rows(2, "r3", "r2"))
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Resume = &v1alpha1.RolloutResume{By: "alice", At: metav1.Now()} })
		expectRows(t, m, "web", rows(4, "r3", "r2"))
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Rollout = allAtOnce() })
		expectRows(t, m, "web", rows(8, "r3", ""))
		stop()
		time.Sleep(time.Minute)
	})
}
