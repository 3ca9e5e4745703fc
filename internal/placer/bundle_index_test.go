package placer

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// indexWith returns an index with the entry web, changed before use.
func indexWith(change func(e *bundleEntry)) (*bundleIndex, *bundleEntry, *schedule.CompiledPlacement) {
	x := newBundleIndex()
	e := x.ensureEntry("web")
	e.filter = schedule.CompilePlacement(v1alpha1.PlacementSpec{})
	e.needsAllRows = false
	if change != nil {
		change(e)
	}
	return x, e, e.filter
}

func webBundle() (b state.Bundle) {
	b.Ref.UID = "web"
	return b
}

// A step looks at touched rows alone where all fitting clusters have rows, nothing asked for all rows, and no time
// is due.
func TestViewIsPartialWhereNothingElseIsDue(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name   string
		change func(e *bundleEntry)
		want   bool
	}{
		{"complete", func(*bundleEntry) {}, true},
		{"not complete", func(e *bundleEntry) { e.isComplete = false }, false},
		{"all rows are asked for", func(e *bundleEntry) { e.needsAllRows = true }, false},
		{"due later", func(e *bundleEntry) { e.dueAt = now.Add(time.Second) }, true},
		{"due now", func(e *bundleEntry) { e.dueAt = now }, false},
	} {
		x, e, _ := indexWith(func(e *bundleEntry) {
			e.isComplete, e.placedClusters, e.compiledTerms = true, 5, &compiledTerms{}
			e.touchedClusters = map[string]uint64{"a": 1, "b": 2}
			tc.change(e)
		})
		x.replaceCluster(schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}})
		v := x.viewOf(webBundle(), schedule.PlacementTerms{}, now)
		if v.isPartial != tc.want || len(v.touchedClusters) != 2 || e.isStepping == tc.want || e.needsAllRows == tc.want {
			t.Errorf("%s: partial %t, touched %v, stepping %t, needs all rows %t", tc.name, v.isPartial, v.touchedClusters, e.isStepping, e.needsAllRows)
		}
		if want := map[bool]int{true: 3}[tc.want]; v.placedElsewhere != want {
			t.Errorf("%s: placed elsewhere %d, want %d", tc.name, v.placedElsewhere, want)
		}
		if e.isComplete == (v.fleet != nil) {
			t.Errorf("%s: the fleet has %d clusters", tc.name, len(v.fleet))
		}
	}
}

// Touched clusters may exceed the placed ones.
func TestPlacedElsewhereIsNeverNegative(t *testing.T) {
	x, _, _ := indexWith(func(e *bundleEntry) {
		e.isComplete, e.placedClusters, e.touchedClusters = true, 1, map[string]uint64{"a": 1, "b": 2}
	})
	if v := x.viewOf(webBundle(), schedule.PlacementTerms{}, time.Now()); !v.isPartial || v.placedElsewhere != 0 {
		t.Errorf("partial %t, placed elsewhere %d", v.isPartial, v.placedElsewhere)
	}
}

// A young reserve stands for the fleet. Named clusters need no fleet either.
func TestViewUsesAYoungReserve(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name           string
		age            time.Duration
		placement      v1alpha1.PlacementSpec
		reserve, fleet bool
	}{
		{"young", reserveMaxAge - 1, v1alpha1.PlacementSpec{}, true, false},
		{"old", reserveMaxAge, v1alpha1.PlacementSpec{}, false, true},
		{"old, and clusters are named", reserveMaxAge, placementNamed("a"), false, false},
	} {
		x, _, _ := indexWith(func(e *bundleEntry) {
			e.filter, e.terms.Placement = schedule.CompilePlacement(tc.placement), tc.placement
			e.reserve, e.reserveAt = []string{"r"}, now.Add(-tc.age)
		})
		x.replaceCluster(schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}})
		v := x.viewOf(webBundle(), schedule.PlacementTerms{Placement: tc.placement}, now)
		if (v.reserve != nil) != tc.reserve || (len(v.fleet) == 1) != tc.fleet || (v.fleetVersion == 1) != tc.fleet {
			t.Errorf("%s: reserve %v, fleet %d of version %d", tc.name, v.reserve, len(v.fleet), v.fleetVersion)
		}
	}
}

// Other terms, and another rule for unfit rows, are compared with the whole fleet again. Only new terms drop what a
// condition said about a failback.
func TestViewReplacesChangedTerms(t *testing.T) {
	for _, tc := range []struct {
		name    string
		terms   schedule.PlacementTerms
		unfit   v1alpha1.WhenUnfit
		replace bool
	}{
		{"the same", schedule.PlacementTerms{}, "", false},
		{"another placement", schedule.PlacementTerms{Placement: placementNamed("a")}, "", true},
		{"other kinds", schedule.PlacementTerms{Kinds: []string{"x/v1/Y"}}, "", true},
		{"no bound set", schedule.PlacementTerms{BoundSets: []string{}}, "", true},
		{"a rebalance", schedule.PlacementTerms{Rebalance: time.Unix(1, 0)}, "", true},
		{"unfit rows leave", schedule.PlacementTerms{}, v1alpha1.UnfitRemove, true},
	} {
		x, _, was := indexWith(func(e *bundleEntry) {
			e.isComplete, e.reserve, e.failback = true, []string{"r"}, failbackState{group: "own"}
		})
		b := webBundle()
		b.Spec.WhenUnfit = tc.unfit
		v := x.viewOf(b, tc.terms, time.Now())
		e := x.entries["web"]
		if replaced := e.filter != was; replaced != tc.replace || v.filter != e.filter || v.isComplete == tc.replace || (e.reserve == nil) != tc.replace || (e.failback.group == "") != tc.replace {
			t.Errorf("%s: replaced %t, complete %t, reserve %v, failback %+v", tc.name, replaced, v.isComplete, e.reserve, e.failback)
		}
		if want := atoll.HashPlacement(tc.terms.Placement); tc.replace && (v.placementHash != want || e.whenUnfit != tc.unfit) {
			t.Errorf("%s: hash %s, want %s; unfit %s", tc.name, v.placementHash, want, e.whenUnfit)
		}
	}
}

// A step is recorded where the terms are still those that it decided by.
func TestStepsOfFormerTermsAreNotRecorded(t *testing.T) {
	x, e, _ := indexWith(func(e *bundleEntry) { e.rowCount, e.placedClusters, e.isStepping = 7, 6, true })
	other := bundleView{uid: "web", filter: schedule.CompilePlacement(v1alpha1.PlacementSpec{})}
	gone := bundleView{uid: "gone"}
	for _, v := range []bundleView{other, gone} {
		if after, again := x.recordStep(v, stepResult{rowCount: 1000}); after != 0 || again {
			t.Errorf("%s: after %s, again %t", v.uid, after, again)
		}
		x.recordPartialStep(v, stepResult{rowCount: 1000})
	}
	if e.rowCount != 7 || e.placedClusters != 6 || !e.isStepping || x.entries["gone"] != nil {
		t.Errorf("recorded: %+v", e)
	}
}

// A step over all rows replaces what is known. It leaves all rows to the next step where it could not complete, where
// rows depend on each other, or where all rows were asked for since.
func TestRecordStep(t *testing.T) {
	at := time.Now()
	for _, tc := range []struct {
		name        string
		result      stepResult
		asked       bool
		limits      bool
		complete    bool
		needsAll    bool
		touchesLeft int
	}{
		{"complete", stepResult{canComplete: true, output: rollout.Output{RowsIndependent: true}}, false, false, true, false, 1},
		{"not complete", stepResult{output: rollout.Output{RowsIndependent: true}}, false, false, false, true, 2},
		{"rows depend on each other", stepResult{canComplete: true}, false, false, true, true, 1},
		{"all rows were asked for", stepResult{canComplete: true, output: rollout.Output{RowsIndependent: true}}, true, false, true, true, 1},
		{"the placement limits its clusters", stepResult{canComplete: true, output: rollout.Output{RowsIndependent: true}}, false, true, false, false, 1},
	} {
		x, e, _ := indexWith(func(e *bundleEntry) {
			if tc.limits {
				e.filter = schedule.CompilePlacement(v1alpha1.PlacementSpec{MaxClusters: 1})
			}
			e.isStepping, e.touchedClusters, e.touchCount, e.changedDuringStep = true, map[string]uint64{"seen": 3, "later": 4}, 4, map[string]bool{"b": true}
		})
		v := bundleView{uid: "web", filter: e.filter, touchCount: 3}
		if tc.asked {
			x.requireAllRows("web")
		}
		w := tc.result
		w.rowCount, w.placedClusters, w.wantsMore, w.reserve = 9, 8, true, []string{"r"}
		w.output.RequeueAt, w.output.BlockingClusters = at, []string{"a", "b"}
		after, again := x.recordStep(v, w)
		if after != 0 || !again {
			t.Errorf("%s: after %s, again %t, although the awaited b changed", tc.name, after, again)
		}
		if e.isStepping || e.rowCount != 9 || e.placedClusters != 8 || !e.wantsMore || !e.dueAt.Equal(at) || e.changedDuringStep != nil || !slices.Equal(e.reserve, w.reserve) {
			t.Errorf("%s: %+v", tc.name, e)
		}
		if e.isComplete != tc.complete || e.needsAllRows != tc.needsAll || len(e.touchedClusters) != tc.touchesLeft || e.touchedClusters["later"] != 4 {
			t.Errorf("%s: complete %t, needs all rows %t, touched %v", tc.name, e.isComplete, e.needsAllRows, e.touchedClusters)
		}
		if !e.awaitedClusters["a"] || !e.awaitedClusters["b"] || len(e.awaitedClusters) != 2 {
			t.Errorf("%s: awaits %v", tc.name, e.awaitedClusters)
		}
	}
}

// A step by the reserve does not make its reserve young, since it saw no other clusters.
func TestStepsByTheReserveKeepItsAge(t *testing.T) {
	at := time.Now().Add(-time.Second)
	x, e, filter := indexWith(func(e *bundleEntry) { e.reserve, e.reserveAt = []string{"r"}, at })
	x.recordStep(bundleView{uid: "web", filter: filter, reserve: []string{"r"}}, stepResult{reserve: []string{"s"}})
	if !slices.Equal(e.reserve, []string{"r"}) || !e.reserveAt.Equal(at) {
		t.Errorf("reserve %v of %s", e.reserve, e.reserveAt)
	}
	if x.dropReserveClusters("web"); e.reserve != nil {
		t.Errorf("dropped: %v", e.reserve)
	}
	x.dropReserveClusters("gone")
}

// Steps of large Bundles wait for further changes: by the number of rows, longer for touched rows, at most a second. While rows
// wait for their turn, steps of small Bundles wait, too.
func TestStepsOfLargeBundlesWait(t *testing.T) {
	for _, tc := range []struct {
		rows      int
		all       bool
		wantTouch time.Duration
		wantAwait time.Duration
	}{
		{200, false, 0, 0}, {201, false, 20100 * time.Microsecond, 10050 * time.Microsecond}, {201, true, 10050 * time.Microsecond, 10050 * time.Microsecond},
		{20_000, false, time.Second, time.Second}, {20_000, true, time.Second, time.Second}, {40_000, true, 2 * time.Second, 2 * time.Second},
	} {
		x, e, _ := indexWith(func(e *bundleEntry) {
			e.rowCount, e.needsAllRows, e.awaitedClusters = tc.rows, tc.all, map[string]bool{"a": true}
		})
		if got := x.touchCluster("web", "a"); got != tc.wantTouch || e.touchedClusters["a"] != 1 || e.touchCount != 1 {
			t.Errorf("%d rows, all %t: a touch waits %s, touched %v", tc.rows, tc.all, got, e.touchedClusters)
		}
		before := e.wholeCount
		if got, yes := x.isAwaited("web", "b"); yes || got != tc.wantAwait || e.wholeCount != before {
			t.Errorf("%d rows: b is awaited %t, %s", tc.rows, yes, got)
		}
		if got, yes := x.isAwaited("web", "b", "a"); !yes || got != tc.wantAwait || e.wholeCount != before+1 || !e.needsAllRows {
			t.Errorf("%d rows: a is awaited %t, %s; all rows %t", tc.rows, yes, got, e.needsAllRows)
		}
	}
	for rows, want := range map[int]time.Duration{5: 50 * time.Millisecond, 100: time.Second, 1000: time.Second, 40_000: 2 * time.Second} {
		x, _, _ := indexWith(func(e *bundleEntry) { e.rowCount, e.waitsForTurn = rows, true })
		if got, _ := x.isAwaited("web", "a"); got != want {
			t.Errorf("%d rows that wait for their turn: a report waits %s, want %s", rows, got, want)
		}
	}
	x := newBundleIndex()
	if after := x.touchCluster("gone", "a"); after != 0 || len(x.entries) != 0 {
		t.Errorf("an unknown Bundle: after %s, %d entries", after, len(x.entries))
	}
	if after, yes := x.isAwaited("gone", "a"); after != 0 || !yes {
		t.Errorf("an unknown Bundle, of which nothing is known: after %s, awaited %t", after, yes)
	}
}

// Rows that change during a step are remembered, since the step may come to wait for them.
func TestChangesDuringAStepAreRemembered(t *testing.T) {
	x, e, _ := indexWith(nil)
	x.isAwaited("web", "a")
	if e.changedDuringStep != nil {
		t.Errorf("outside of a step: %v", e.changedDuringStep)
	}
	e.isStepping = true
	x.isAwaited("web", "a")
	x.isAwaited("web", "b")
	if len(e.changedDuringStep) != 2 || !e.changedDuringStep["a"] || !e.changedDuringStep["b"] {
		t.Errorf("during a step: %v", e.changedDuringStep)
	}
}

// The next step of a Bundle is over all rows, or over the whole fleet.
func TestRequireAllRowsAndFleet(t *testing.T) {
	x, e, _ := indexWith(func(e *bundleEntry) { e.isComplete = true })
	if x.requireAllRows("web"); !e.needsAllRows || e.wholeCount != 1 || !e.isComplete {
		t.Errorf("all rows: %+v", e)
	}
	if x.requireWholeFleet("web"); !e.needsAllRows || e.wholeCount != 2 || e.isComplete {
		t.Errorf("the fleet: %+v", e)
	}
	x.requireAllRows("gone")
	x.requireWholeFleet("gone")
	if len(x.entries) != 1 {
		t.Error("an unknown Bundle has an entry")
	}
}

// A plan of recalled deletions is reported once.
func TestHeldBackPlansAreReportedOnce(t *testing.T) {
	x, _, _ := indexWith(nil)
	for i, tc := range []struct {
		uid, plan string
		want      bool
	}{{"web", "p1", true}, {"web", "p1", false}, {"web", "p2", true}, {"web", "p1", true}, {"gone", "p1", false}} {
		if got := x.recordReportedHeldBackPlan(tc.uid, tc.plan); got != tc.want {
			t.Errorf("step %d: %s of %s is new: %t", i, tc.plan, tc.uid, got)
		}
	}
}

// Each part of the intent is a change of its own.
func TestIntentChanges(t *testing.T) {
	x, b := newBundleIndex(), webBundle()
	annotate := func(key string) func() { return func() { b.Meta.Annotations = map[string]string{key: "v"} } }
	for _, tc := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"the first", func() {}, true}, {"nothing", func() {}, false}, {"the placement", func() { b.Spec.Placement = placementNamed("a") }, true},
		{"a confirmation", annotate(atoll.AnnotationConfirm), true}, {"a plan is kept", annotate(atoll.AnnotationKeep), true},
		{"a rebalance", annotate(atoll.AnnotationRebalance), true}, {"another annotation instead", annotate("other"), true}, {"one more", annotate("more"), false},
		{"an order about hooks", func() { b.Meta.Annotations = map[string]string{atoll.AnnotationRemovalHooks: "Skip"} }, true},
		{"one without a meaning", func() { b.Meta.Annotations = map[string]string{atoll.AnnotationRemovalHooks: "Never"} }, true},
		{"it is deleted", func() { b.Meta.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		{"its deletion has another date", func() { b.Meta.DeletionTimestamp = &metav1.Time{Time: time.Unix(2, 0)} }, false},
		{"its status", func() { b.Meta.ResourceVersion = "7" }, false},
	} {
		tc.change()
		if got := x.recordIntent(b); got != tc.want {
			t.Errorf("%s: changed %t", tc.name, got)
		}
	}
}

// A deleted Bundle and a deleted cluster leave nothing behind.
func TestRemovedEntriesLeaveNothing(t *testing.T) {
	x, e, filter := indexWith(nil)
	x.movable.setScoreThresholds("web", movableKind{filter: filter}, &schedule.ScoreThresholds{})
	x.setFailback(e, failbackState{awaitsEarlier: true})
	x.removeBundle("web")
	if len(x.entries)+len(x.movable.groups)+len(x.connectionWaits) != 0 {
		t.Errorf("entries %v, movable %v, waits %v", x.entries, x.movable.groups, x.connectionWaits)
	}
	a := schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a"}
	if _, known := x.replaceCluster(a); known {
		t.Error("a new cluster is known")
	}
	if was, known := x.replaceCluster(a); !known || was.UID != "uid-a" {
		t.Errorf("was %+v, known %t", was, known)
	}
	x.connected["a"], x.losses.at["a"] = true, time.Now()
	if was, known := x.removeCluster("a"); !known || was.UID != "uid-a" || len(x.connected)+len(x.losses.at)+len(x.knownClusters) != 0 {
		t.Errorf("was %+v, known %t; connected %v, lost %v", was, known, x.connected, x.losses.at)
	}
	if _, known := x.removeCluster("a"); known {
		t.Error("a cluster is removed twice")
	}
	if got := x.fleet.listAll(x.knownClusters); len(got) != 0 {
		t.Errorf("the fleet lists %v", got)
	}
}

// No content has no pods and no workloads. A content is read once for its revision.
func TestContentsAreReadOnce(t *testing.T) {
	x := newBundleIndex()
	if n := schedule.CountUndividedPods(x.undividedPodsOf("r0", nil)); n != 0 {
		t.Errorf("no content has %d pods", n)
	}
	if w, err := x.workloadsOf("r0", nil); w != nil || err != nil {
		t.Errorf("no content has the workloads %v, %v", w, err)
	}
	for _, replicas := range []int{3, 9} {
		if n := schedule.CountUndividedPods(x.undividedPodsOf("r1", undividedContent("web", replicas))); n != 3 {
			t.Errorf("%d pods are not divided", n)
		}
	}
	for _, replicas := range []int{3, 9} {
		if w, err := x.workloadsOf("r1", contentAsking("web", replicas)); err != nil || len(w) != 1 || w[0].Replicas != 3 {
			t.Errorf("workloads %v, %v", w, err)
		}
	}
	broken := contentAsking("web", 1)
	broken.Items[0].Object = []byte("[]")
	for range 2 {
		if w, err := x.workloadsOf("r2", broken); err == nil || len(w) != 0 {
			t.Errorf("a broken content has the workloads %v", w)
		}
	}
}
