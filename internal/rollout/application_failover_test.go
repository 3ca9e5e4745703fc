package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// failoverWorld is a Bundle with copies, whose judgements are stored at once.
type failoverWorld struct {
	FailoverInput
	began time.Time
}

func newFailoverWorld(terms v1alpha1.ApplicationFailover) *failoverWorld {
	at := time.Unix(1_000_000, 0)
	return &failoverWorld{began: at, FailoverInput: FailoverInput{Terms: &terms, Rows: map[string]Row{}, Revision: "web-1-x", Now: at}}
}

// reportState lets a copy report a state about its present order.
func (w *failoverWorld) reportState(state atoll.RowState, clusters ...string) {
	for _, c := range clusters {
		row, has := w.Rows[c]
		if !has {
			row = Row{Spec: atoll.RowSpec{UID: "uid-" + c, Generation: 1, Revision: w.Revision, Phase: atoll.RowActive}, Online: true}
		}
		row.Status = &atoll.RowStatus{Generation: row.Spec.Generation, State: state}
		w.Rows[c] = row
	}
}

func (w *failoverWorld) changeRow(c string, change func(r *Row)) {
	row := w.Rows[c]
	change(&row)
	w.Rows[c] = row
}

func (w *failoverWorld) setPhase(c string, phase atoll.RowPhase) {
	w.changeRow(c, func(r *Row) { r.Spec.Phase = phase })
}

// judgeAfter judges after a time, and stores the result.
func (w *failoverWorld) judgeAfter(d time.Duration) FailoverOutput {
	w.Now = w.Now.Add(d)
	out := JudgeFailover(w.FailoverInput)
	w.Stored, w.Watched = out.Status, out.Watched
	return out
}

// describe lists what is stored, with times since the beginning.
func (w *failoverWorld) describe() string {
	if w.Stored == nil {
		return "nothing"
	}
	var out []string
	for i := range w.Stored.Clusters {
		e := &w.Stored.Clusters[i]
		s := e.Cluster
		if e.UnhealthySince != nil {
			s += " unhealthy at " + e.UnhealthySince.Sub(w.began).String()
		}
		if e.HasFailed() {
			s += " failed at " + e.FailedAt.Sub(w.began).String()
		}
		if e.AvoidedUntil != nil {
			s += fmt.Sprintf(" left %d until %s", e.Failovers, e.AvoidedUntil.Sub(w.began))
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func (w *failoverWorld) expectStored(t *testing.T, when, want string) {
	t.Helper()
	if got := w.describe(); got != want {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// formatDue returns when the next judgement is due, since the beginning.
func (w *failoverWorld) formatDue(out FailoverOutput) string {
	if out.RequeueAt.IsZero() {
		return "never"
	}
	return out.RequeueAt.Sub(w.began).String()
}

// formatFailed lists the clusters of which a decision has a failure, with the reasons of those that stay.
func (w *failoverWorld) formatFailed() string {
	var out []string
	all := FailedClusters(w.FailoverInput)
	for _, c := range slices.Sorted(maps.Keys(all)) {
		s := c
		if f := all[c]; f.StayReason != "" {
			s += "=" + string(f.StayReason)
		} else if !f.AvoidedUntil.IsZero() {
			s += " until " + f.AvoidedUntil.Sub(w.began).String()
		}
		if all[c].UID != "uid-"+c {
			s += " of " + all[c].UID
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// A copy that is unhealthy for its toleration counts as failed, is avoided after it left, and may be chosen again after the backoff. The next
// judgement is always due in time.
func TestAnUnhealthyCopyFails(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{})
	w.reportState(atoll.RowReady, "a", "b")
	for i, step := range []struct {
		after        time.Duration
		do           func()
		stored, next string
		failed       string
	}{
		{0, nil, "", "never", ""},
		{0, func() { w.reportState(atoll.RowDegraded, "a") }, "", "30s", ""},
		{29 * time.Second, nil, "", "30s", ""},
		{time.Second, func() { w.reportState(atoll.RowProgressing, "a") }, "a unhealthy at 0s", "5m0s", ""},
		{269 * time.Second, nil, "a unhealthy at 0s", "5m0s", ""},
		{time.Second, nil, "a unhealthy at 0s failed at 5m0s", "never", "a"},
		{time.Minute, func() { w.setPhase("a", atoll.RowLeaving) }, "a left 1 until 36m0s", "36m0s", "a until 36m0s"},
		{time.Minute, func() { delete(w.Rows, "a") }, "a left 1 until 36m0s", "36m0s", "a until 36m0s"},
		{29 * time.Minute, nil, "a left 1 until 36m0s", "never", ""},
		{29*time.Minute + 59*time.Second, nil, "a left 1 until 36m0s", "never", ""},
		{time.Second, nil, "", "never", ""},
	} {
		if step.do != nil {
			step.do()
		}
		out := w.judgeAfter(step.after)
		if w.expectStored(t, fmt.Sprint("step ", i), step.stored); w.formatDue(out) != step.next || w.formatFailed() != step.failed {
			t.Errorf("step %d: due at %s, failed %q; want %s and %q", i, w.formatDue(out), w.formatFailed(), step.next, step.failed)
		}
		if again := JudgeFailover(w.FailoverInput); again.Changed {
			t.Errorf("step %d: a second judgement changes %+v", i, again.Status)
		}
	}
}

// A copy that begins to count as failed is reported once, with the clusters that had a copy.
func TestAFailureIsReportedOnce(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{})
	w.reportState(atoll.RowReady, "b")
	w.reportState(atoll.RowDegraded, "c", "a")
	w.reportState(atoll.RowReady, "x")
	w.setPhase("x", atoll.RowLeaving)
	w.judgeAfter(0)
	if out := w.judgeAfter(5 * time.Minute); !slices.Equal(out.Failed, []string{"a", "c"}) || !slices.Equal(out.Status.ClustersBeforeFailover, []string{"a", "b", "c"}) || !out.Changed {
		t.Errorf("%+v", out)
	}
	if out := w.judgeAfter(time.Minute); len(out.Failed) > 0 || out.Changed {
		t.Errorf("the next time: %+v", out)
	}
}

// A break begins the time again, and so do another revision and the loss of the cluster. A restart of the hub does not.
func TestTimesOfAnUnhealthyCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		do             func(w *failoverWorld)
		soon, at5, at9 string
	}{
		"nothing":   {func(*failoverWorld) {}, "a unhealthy at 0s", "a unhealthy at 0s failed at 5m0s", "a unhealthy at 0s failed at 5m0s"},
		"a restart": {func(w *failoverWorld) { w.Watched = nil }, "a unhealthy at 0s", "a unhealthy at 0s failed at 5m0s", "a unhealthy at 0s failed at 5m0s"},
		"a break": {func(w *failoverWorld) {
			w.reportState(atoll.RowReady, "a")
			w.judgeAfter(0)
			w.reportState(atoll.RowDegraded, "a")
		}, "", "a unhealthy at 4m40s", "a unhealthy at 4m40s"},
		"another revision that is healthy elsewhere": {func(w *failoverWorld) {
			w.Revision = "web-2-x"
			for _, c := range []string{"a", "b"} {
				w.changeRow(c, func(r *Row) { r.Spec.Revision = w.Revision })
			}
		}, "", "a unhealthy at 4m40s", "a unhealthy at 4m40s"},
		"a lost cluster": {func(w *failoverWorld) {
			w.changeRow("a", func(r *Row) { r.Online = false })
			w.judgeAfter(0)
			w.changeRow("a", func(r *Row) { r.Online = true })
		}, "", "a unhealthy at 4m40s", "a unhealthy at 4m40s"},
		"a cluster that may be lost": {func(w *failoverWorld) {
			w.changeRow("a", func(r *Row) { r.Online, r.UncertainUntil = false, w.Now.Add(time.Minute) })
			w.judgeAfter(0)
			w.changeRow("a", func(r *Row) { r.Online = true })
		}, "a unhealthy at 0s", "a unhealthy at 0s failed at 5m0s", "a unhealthy at 0s failed at 5m0s"},
		"an order that is not reported about": {func(w *failoverWorld) {
			w.changeRow("a", func(r *Row) { r.Spec.Generation = 2 })
			w.judgeAfter(0)
			w.reportState(atoll.RowDegraded, "a")
		}, "a unhealthy at 0s", "a unhealthy at 0s failed at 5m0s", "a unhealthy at 0s failed at 5m0s"},
		"another Cluster of its name": {func(w *failoverWorld) { w.changeRow("a", func(r *Row) { r.Spec.UID = "other" }) }, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFailoverWorld(v1alpha1.ApplicationFailover{})
			w.reportState(atoll.RowReady, "b")
			w.reportState(atoll.RowDegraded, "a")
			w.judgeAfter(0)
			w.judgeAfter(30 * time.Second)
			w.expectStored(t, "at first", "a unhealthy at 0s")
			w.Now = w.began.Add(280 * time.Second)
			tc.do(w)
			if w.judgeAfter(0); name == "another Cluster of its name" {
				if strings.HasPrefix(w.describe(), "a unhealthy at 0s") {
					t.Errorf("the time of the former Cluster goes on: %s", w.describe())
				}
				return
			}
			w.expectStored(t, "soon after", tc.soon)
			w.judgeAfter(20 * time.Second)
			if name == "a restart" { // it sees the copy for 20 seconds
				w.expectStored(t, "before the hub has looked for long enough", "a unhealthy at 0s")
			}
			w.judgeAfter(10 * time.Second)
			if got := strings.Replace(w.describe(), "failed at 5m10s", "failed at 5m0s", 1); got != tc.at5 {
				t.Errorf("10 s later: %q, want %q", got, tc.at5)
			}
			w.Now = w.began.Add(9 * time.Minute)
			w.judgeAfter(0)
			if got := strings.Replace(w.describe(), "failed at 5m10s", "failed at 5m0s", 1); got != tc.at9 {
				t.Errorf("at last: %q, want %q", got, tc.at9)
			}
		})
	}
}

// A failure that began with a change is the matter of its rollout.
func TestWhichCopiesCount(t *testing.T) {
	for name, tc := range map[string]struct {
		// revision of the copy, and its state. other is the revision of a healthy copy elsewhere, and known the stored healthy revision.
		revision     string
		state        atoll.RowState
		other, known string
		target       string
		min          int64
		counts       bool
	}{
		"the first revision, progressing":               {"web-1-x", atoll.RowProgressing, "", "", "web-1-x", 0, true},
		"the first revision, degraded":                  {"web-1-x", atoll.RowDegraded, "", "", "web-1-x", 0, true},
		"the first revision, not applied":               {"web-1-x", atoll.RowFailed, "", "", "web-1-x", 0, false},
		"a revision that was healthy":                   {"web-2-x", atoll.RowProgressing, "", "web-2-x", "web-2-x", 0, true},
		"a revision that was healthy, not applied":      {"web-2-x", atoll.RowFailed, "", "web-2-x", "web-2-x", 0, true},
		"a new revision":                                {"web-2-x", atoll.RowDegraded, "", "web-1-x", "web-2-x", 0, false},
		"a new revision that is healthy elsewhere":      {"web-2-x", atoll.RowDegraded, "web-2-x", "web-1-x", "web-2-x", 0, true},
		"a new revision, and others have the earlier":   {"web-2-x", atoll.RowDegraded, "web-1-x", "web-1-x", "web-2-x", 0, false},
		"a copy that waits for its turn":                {"web-1-x", atoll.RowDegraded, "web-2-x", "web-1-x", "web-2-x", 0, false},
		"an earlier revision with the same content":     {"web-1-x", atoll.RowDegraded, "web-2-x", "web-2-x", "web-2-x", 1, true},
		"an earlier revision, healthy before":           {"web-3-x", atoll.RowDegraded, "", "web-3-x", "web-5-x", 2, true},
		"a later revision than the one that is healthy": {"web-4-x", atoll.RowDegraded, "", "web-3-x", "web-5-x", 2, false},
		"removed": {"web-1-x", atoll.RowRemoved, "", "web-1-x", "web-1-x", 0, false},
		"healthy": {"web-1-x", atoll.RowReady, "", "web-1-x", "web-1-x", 0, false},
	} {
		w := newFailoverWorld(v1alpha1.ApplicationFailover{DecisionConditions: &v1alpha1.FailoverConditions{TolerationSeconds: new(int32(10))}})
		if tc.known != "" {
			w.Stored = &v1alpha1.ApplicationFailoverStatus{HealthyRevision: tc.known}
		}
		w.Revision, w.MinRevision = tc.revision, tc.min
		w.reportState(tc.state, "a")
		if tc.other != "" {
			w.Revision = tc.other
			w.reportState(atoll.RowReady, "b")
		}
		w.Revision = tc.target
		w.judgeAfter(0)
		if out := w.judgeAfter(10 * time.Second); slices.Contains(out.Failed, "a") != tc.counts {
			t.Errorf("%s: failed %v, stored %s", name, out.Failed, w.describe())
		}
	}
}

// The latest revision that a copy reports healthy is stored, and none that is older.
func TestTheHealthyRevisionIsStored(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{})
	if out := w.judgeAfter(0); out.Changed || out.Status != nil {
		t.Errorf("without a row: %+v", out)
	}
	w.reportState(atoll.RowProgressing, "a")
	if out := w.judgeAfter(0); out.Status != nil {
		t.Errorf("not healthy yet: %+v", out.Status)
	}
	for _, step := range []struct{ revision, want string }{{"web-2-x", "web-2-x"}, {"web-10-x", "web-10-x"}, {"web-9-x", "web-10-x"}} {
		w.Revision = step.revision
		delete(w.Rows, "a")
		w.reportState(atoll.RowReady, "a")
		if out := w.judgeAfter(0); out.Status.HealthyRevision != step.want {
			t.Errorf("%s is healthy: stored %s", step.revision, out.Status.HealthyRevision)
		}
	}
	w.changeRow("a", func(r *Row) { r.Spec.Revision, r.Spec.Generation = "web-11-x", 9 })
	if out := w.judgeAfter(0); out.Status.HealthyRevision != "web-10-x" {
		t.Errorf("by a report about an earlier order: %s", out.Status.HealthyRevision)
	}
}

// A stop by a person lets no further copy fail, and keeps one that has not left. A copy that leaves already goes on.
func TestAHoldOfAFailover(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{MaxAvoidedClusters: new(int32(9))})
	w.reportState(atoll.RowReady, "x")
	w.reportState(atoll.RowDegraded, "a", "b")
	w.judgeAfter(0)
	w.judgeAfter(5 * time.Minute)
	w.setPhase("b", atoll.RowLeaving)
	w.reportState(atoll.RowDegraded, "c")
	w.judgeAfter(0)
	w.Holds, w.HoldEndsAt = true, w.Now.Add(time.Hour)
	w.judgeAfter(time.Minute)
	out := w.judgeAfter(5 * time.Minute)
	if w.formatFailed() != "a=FailoverHeld, b until 35m0s, c=FailoverHeld" || !out.IsHeld || len(out.Failed) > 0 {
		t.Errorf("held %t, failed %q: %s", out.IsHeld, w.formatFailed(), w.describe())
	}
	if out = w.judgeAfter(25 * time.Minute); w.formatDue(out) != "1h5m0s" {
		t.Errorf("due at %s: %s", w.formatDue(out), w.describe())
	}
	w.Holds = false
	if out = w.judgeAfter(0); out.IsHeld || !slices.Equal(out.Failed, []string{"c"}) || w.formatFailed() != "a, b until 35m0s, c" {
		t.Errorf("after the hold: held %t, failed %v, %q", out.IsHeld, out.Failed, w.formatFailed())
	}
}

// As many clusters are left and avoided as the terms allow. The copy that is unhealthy for longest fails first, and the others when a backoff ends.
func TestABoundOfAvoidedClusters(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{MaxAvoidedClusters: new(int32(1)), BackoffSeconds: new(int32(600))})
	w.reportState(atoll.RowReady, "x")
	w.reportState(atoll.RowDegraded, "b")
	w.judgeAfter(0)
	w.reportState(atoll.RowDegraded, "a")
	w.judgeAfter(time.Second)
	if out := w.judgeAfter(5 * time.Minute); !slices.Equal(out.Failed, []string{"b"}) || w.formatFailed() != "a=FailoverLimitReached, b" {
		t.Errorf("failed %v, %q", out.Failed, w.formatFailed())
	}
	w.setPhase("b", atoll.RowRemoving)
	if out := w.judgeAfter(0); w.formatDue(out) != "15m1s" || w.formatFailed() != "a=FailoverLimitReached, b until 15m1s" {
		t.Errorf("due at %s, %q", w.formatDue(out), w.formatFailed())
	}
	delete(w.Rows, "b")
	if out := w.judgeAfter(10 * time.Minute); !slices.Equal(out.Failed, []string{"a"}) || w.formatFailed() != "a" {
		t.Errorf("after the backoff: failed %v, %q", out.Failed, w.formatFailed())
	}
}

// A cluster in which the application fails again is avoided for twice as long, and for the first time again after a while without a failure.
func TestABackoffIsRemembered(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{BackoffSeconds: new(int32(600))})
	w.reportState(atoll.RowReady, "x")
	leave := func() {
		w.reportState(atoll.RowDegraded, "a")
		w.judgeAfter(0)
		w.judgeAfter(5 * time.Minute)
		w.setPhase("a", atoll.RowRemoving)
		w.judgeAfter(0)
		delete(w.Rows, "a")
	}
	leave()
	w.expectStored(t, "first", "a left 1 until 15m0s")
	w.judgeAfter(10 * time.Minute)
	leave()
	w.expectStored(t, "second", "a left 2 until 40m0s")
	w.judgeAfter(20 * time.Minute)
	w.reportState(atoll.RowReady, "a")
	w.judgeAfter(19 * time.Minute)
	w.expectStored(t, "healthy again", "a left 2 until 40m0s")
	leave()
	w.expectStored(t, "third", "a left 3 until 1h44m0s")
	w.judgeAfter(40 * time.Minute)
	w.judgeAfter(40*time.Minute - time.Second)
	w.expectStored(t, "before it is forgotten", "a left 3 until 1h44m0s")
	w.judgeAfter(time.Second)
	w.expectStored(t, "forgotten", "")
	w.Stored.Clusters = []v1alpha1.FailoverCluster{{Cluster: "a", ClusterUID: "uid-a", Failovers: 1, FailedAt: new(metav1.NewTime(w.Now)), AvoidedUntil: new(metav1.NewTime(w.Now.Add(time.Hour)))}}
	w.judgeAfter(0)
	w.expectStored(t, "by a clock that was ahead", "a left 1 until "+w.Now.Add(10*time.Minute).Sub(w.began).String())
}

// A failed copy that is healthy before it leaves counts no more. One that is chosen again before the end of its backoff counts as any other.
func TestAFailedCopyRecovers(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{})
	w.reportState(atoll.RowReady, "x")
	w.reportState(atoll.RowDegraded, "a")
	w.judgeAfter(0)
	w.judgeAfter(5 * time.Minute)
	w.reportState(atoll.RowReady, "a")
	if w.formatFailed() != "" {
		t.Errorf("before it is stored: %q", w.formatFailed())
	}
	w.judgeAfter(0)
	w.expectStored(t, "healthy", "")
	w.reportState(atoll.RowDegraded, "a")
	w.judgeAfter(0)
	w.judgeAfter(5 * time.Minute)
	w.setPhase("a", atoll.RowLeaving)
	w.judgeAfter(0)
	w.expectStored(t, "it leaves", "a left 1 until 40m0s")
	w.setPhase("a", atoll.RowActive)
	w.reportState(atoll.RowReady, "a")
	w.judgeAfter(time.Minute)
	if w.expectStored(t, "it is chosen again", "a left 1 until 11m0s"); w.formatFailed() != "" {
		t.Errorf("it is chosen again: %q", w.formatFailed())
	}
	w.reportState(atoll.RowDegraded, "a")
	w.judgeAfter(0)
	w.judgeAfter(5 * time.Minute)
	w.setPhase("a", atoll.RowLeaving)
	w.judgeAfter(0)
	w.expectStored(t, "it leaves again", "a left 2 until 1h16m0s")
}

// An old copy that is still there is not used again, although its backoff is over.
func TestAnOldCopyIsNotUsedAgain(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{BackoffSeconds: new(int32(60))})
	w.reportState(atoll.RowReady, "x")
	w.reportState(atoll.RowDegraded, "a")
	w.judgeAfter(0)
	w.judgeAfter(5 * time.Minute)
	w.setPhase("a", atoll.RowLeaving)
	w.judgeAfter(0)
	for range 5 {
		if w.judgeAfter(time.Hour); !strings.HasPrefix(w.formatFailed(), "a until ") {
			t.Errorf("an hour later: %q, %s", w.formatFailed(), w.describe())
		}
	}
	delete(w.Rows, "a")
	if w.judgeAfter(0); w.formatFailed() != "" {
		t.Errorf("it is gone: %q", w.formatFailed())
	}
}

// Without terms nothing is stored, and a copy of a cluster that checks in has some of its intervals.
func TestTermsOfAFailover(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{})
	w.reportState(atoll.RowReady, "x")
	w.reportState(atoll.RowDegraded, "a")
	w.changeRow("a", func(r *Row) { r.CheckIn = time.Hour })
	w.judgeAfter(0)
	w.judgeAfter(3*time.Hour - time.Second)
	w.expectStored(t, "before three check-ins", "a unhealthy at 0s")
	w.judgeAfter(time.Second)
	w.expectStored(t, "after three check-ins", "a unhealthy at 0s failed at 3h0m0s")
	w.Terms = nil
	if out := w.judgeAfter(0); !out.Changed || out.Status != nil || w.formatFailed() != "" {
		t.Errorf("without terms: %+v, %q", out, w.formatFailed())
	}
	if out := w.judgeAfter(0); out.Changed {
		t.Errorf("again: %+v", out)
	}
}

// The stored list is bounded. It keeps the failovers, and drops the clocks that began last.
func TestWhatIsStoredIsBounded(t *testing.T) {
	w := newFailoverWorld(v1alpha1.ApplicationFailover{MaxAvoidedClusters: new(int32(2))})
	w.reportState(atoll.RowReady, "x")
	for i := range 30 {
		w.reportState(atoll.RowDegraded, fmt.Sprintf("c%02d", 29-i))
		w.judgeAfter(time.Second)
	}
	out := w.judgeAfter(5 * time.Minute)
	if len(out.Status.Clusters) != v1alpha1.MaxFailoverClusters || !slices.Equal(out.Failed, []string{"c28", "c29"}) || out.Status.Clusters[0].Cluster != "c14" || out.Status.Clusters[15].Cluster != "c29" {
		t.Errorf("failed %v, stored %s", out.Failed, w.describe())
	}
	if again := w.judgeAfter(0); again.Changed {
		t.Errorf("a second judgement stores %s", w.describe())
	}
}

// Random walks: a cluster is not used again before its backoff ends, no more clusters are avoided than allowed, the application always is
// somewhere, a judgement depends on its input alone, and time is always requested where it alone changes something.
func TestFailoverWalk(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 3))
		terms := v1alpha1.ApplicationFailover{
			BackoffSeconds: new(60 + random.Int32N(1000)), MaxAvoidedClusters: new(1 + random.Int32N(4)),
			DecisionConditions: &v1alpha1.FailoverConditions{TolerationSeconds: new(10 + random.Int32N(400))},
		}
		walk := failoverWalk{failoverWorld: newFailoverWorld(terms), random: random, avoided: map[string]time.Time{}, most: 1 + random.Int32N(2)}
		for step := range 200 {
			if failure := walk.walkOnce(); failure != "" {
				t.Fatalf("seed %d, step %d: %s; stored %s", seed, step, failure, walk.describe())
			}
		}
	}
}

type failoverWalk struct {
	*failoverWorld
	random *rand.Rand
	// avoided clusters, and until when.
	avoided map[string]time.Time
	most    int32
}

// walkOnce changes something, judges and carries out a decision. It returns what is broken; empty: nothing is.
func (w *failoverWalk) walkOnce() string {
	names := []string{"a", "b", "c", "d", "e"}
	c := names[w.random.IntN(len(names))]
	if row, has := w.Rows[c]; has {
		switch w.random.IntN(8) {
		case 0:
			w.changeRow(c, func(r *Row) { r.Online = !r.Online })
		case 1, 2, 3:
			row.Status = &atoll.RowStatus{Generation: row.Spec.Generation, State: atoll.RowDegraded}
			w.Rows[c] = row
		case 4:
			w.reportState(atoll.RowReady, c)
		}
	}
	if w.random.IntN(20) == 0 {
		w.Watched = nil // another hub leads
	}
	quiet := w.FailoverInput
	before := JudgeFailover(quiet)
	if quiet.Now = quiet.Now.Add(time.Second); before.RequeueAt.After(quiet.Now) {
		quiet.Stored, quiet.Watched = before.Status, before.Watched
		if after := JudgeFailover(quiet); len(after.Failed) > 0 {
			return fmt.Sprintf("%v fail before the time that was requested", after.Failed)
		}
	}
	out := w.judgeAfter(time.Duration(w.random.IntN(200)) * time.Second)
	if again := JudgeFailover(w.FailoverInput); again.Changed || !equality.Semantic.DeepEqual(again.Status, out.Status) {
		return "a second judgement differs"
	}
	return w.carryOut(names)
}

// carryOut decides, and lets old copies go at once.
func (w *failoverWalk) carryOut(names []string) string {
	failed := FailedClusters(w.FailoverInput)
	in := schedule.Input{BundleUID: "web", Now: w.Now, Rows: map[string]atoll.RowSpec{}, FailedClusters: failed, Placement: v1alpha1.PlacementSpec{MaxClusters: w.most}}
	for _, name := range names {
		in.Clusters = append(in.Clusters, schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name, Accepted: true})
	}
	for name, row := range w.Rows {
		in.Rows[name] = row.Spec
	}
	d, holders := schedule.DecidePlacement(in), 0
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		_, has := w.Rows[v.Cluster]
		switch {
		case v.IsHolder() && !has:
			if until := w.avoided[v.Cluster]; until.After(w.Now) {
				return fmt.Sprintf("it comes back to %s before %s", v.Cluster, until.Sub(w.began))
			}
			w.reportState(atoll.RowProgressing, v.Cluster)
			w.changeRow(v.Cluster, func(r *Row) { r.Spec.PlacementFingerprint = v.PlacementFingerprint })
		case !v.IsHolder() && has:
			if !v.LeavesFailed {
				return v.Cluster + " leaves for another reason: " + v.String()
			}
			w.setPhase(v.Cluster, atoll.RowRemoving)
			w.judgeAfter(0)
			delete(w.Rows, v.Cluster)
			w.avoided[v.Cluster] = w.Now.Add(w.Terms.Backoff(1) - time.Second)
		}
		if v.IsHolder() {
			holders++
		}
	}
	n := 0
	if w.Stored != nil {
		for i := range w.Stored.Clusters {
			if e := &w.Stored.Clusters[i]; e.HasFailed() || e.IsAvoided(w.Now) {
				n++
			}
		}
	}
	switch {
	case holders != int(w.most):
		return fmt.Sprintf("%d clusters hold it, want %d", holders, w.most)
	case n > w.Terms.MaxAvoided():
		return fmt.Sprintf("%d clusters are avoided, at most %d may be", n, w.Terms.MaxAvoided())
	}
	return ""
}
