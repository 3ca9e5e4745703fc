package placer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// failoverWriter stores what is judged about the health of an application. The first write of each ends with the error.
type failoverWriter struct {
	hub    *fakeHub
	writes int
	fails  error
}

func (w *failoverWriter) setFailover(_ context.Context, b state.Bundle, is *v1alpha1.ApplicationFailoverStatus) error {
	if err := w.fails; err != nil {
		w.fails = nil
		return err
	}
	w.writes++
	w.hub.changeBundle(b.Ref.UID, func(b *state.Bundle) { b.Status.Failover = is })
	return nil
}

// failingAfter returns terms by which a copy fails after some seconds.
func failingAfter(seconds int32) *v1alpha1.ApplicationFailover {
	return &v1alpha1.ApplicationFailover{DecisionConditions: &v1alpha1.FailoverConditions{TolerationSeconds: &seconds}}
}

// placeWithFailover places a Bundle in one cluster of a, before b is there.
func (m *fakeHub) placeWithFailover(t *testing.T, terms *v1alpha1.ApplicationFailover, content *atoll.Content) {
	t.Helper()
	addClusters(m, "a")
	m.changeBundle("web", func(b *state.Bundle) {
		b.Spec.Placement.MaxClusters, b.Spec.Failover = 1, &v1alpha1.Failover{Application: terms}
	})
	m.cutRevision("web", content)
	m.settleRows("web")
	expectRows(t, m, "web", "a Active r1")
	addClusters(m, "b")
	synctest.Wait()
}

// runFailover runs a Reconciler that stores what it judges.
func runFailover(t *testing.T, test func(t *testing.T, m *fakeHub, w *failoverWriter)) {
	t.Helper()
	m := newFakeHub()
	w := &failoverWriter{hub: m}
	runWith(t, m, func(c *Config) { c.SetFailover = w.setFailover }, func(t *testing.T, _ *PlacementReconciler) { test(t, m, w) })
}

func expectRowsAfter(t *testing.T, m *fakeHub, d time.Duration, rows string) {
	t.Helper()
	time.Sleep(d)
	expectRows(t, m, "web", rows)
}

// An application that is unhealthy for its toleration moves, replacement first, and comes back no earlier than its backoff ends.
func TestAnUnhealthyApplicationMoves(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
		m.placeWithFailover(t, failingAfter(60), &atoll.Content{})
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 59*time.Second, "a Active r1")
		m.reportState("web", "a", atoll.RowProgressing)
		expectRowsAfter(t, m, 2*time.Second, "a Leaving r1, b Active r1")
		expectRowReason(t, m, "a", atoll.ReasonApplicationFailed)
		m.reportState("web", "b", atoll.RowReady)
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		m.dropRow("web", "a")
		expectRows(t, m, "web", "b Active r1")
		if said := m.takeWarnings(); len(said) != 1 || !strings.HasPrefix(said[0], "web ApplicationFailed: the application is unhealthy in a since ") {
			t.Errorf("events: %q", said)
		}
		b, _ := fakeBundles{m}.Get("web")
		if is := b.Status.Failover; !slices.Equal(is.ClustersBeforeFailover, []string{"a"}) || len(is.Clusters) != 1 || is.Clusters[0].Failovers != 1 || !is.Clusters[0].IsAvoided(time.Now().Add(29*time.Minute)) {
			t.Errorf("stored: %+v", is)
		}
		m.reportState("web", "b", atoll.RowDegraded)
		expectRowsAfter(t, m, 20*time.Minute, "b Active r1")
		expectRowReason(t, m, "b", atoll.ReasonFailoverUnreplaced)
		expectRowsAfter(t, m, 11*time.Minute, "a Active r1, b Leaving r1")
	})
}

// A break begins the time again. Health that comes and goes writes nothing while each time is short.
func TestABreakBeginsTheTolerationAgain(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
		m.placeWithFailover(t, failingAfter(60), &atoll.Content{})
		writes := w.writes
		for range 5 {
			m.reportState("web", "a", atoll.RowDegraded)
			expectRowsAfter(t, m, 29*time.Second, "a Active r1")
			m.reportState("web", "a", atoll.RowReady)
			expectRowsAfter(t, m, time.Second, "a Active r1")
		}
		if w.writes != writes {
			t.Errorf("%d writes", w.writes-writes)
		}
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 40*time.Second, "a Active r1")
		m.reportState("web", "a", atoll.RowReady)
		expectRowsAfter(t, m, time.Second, "a Active r1")
		if w.writes != writes+2 { // the time, and its end
			t.Errorf("%d writes, want 2", w.writes-writes)
		}
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 59*time.Second, "a Active r1")
		expectRowsAfter(t, m, 2*time.Second, "a Leaving r1, b Active r1")
	})
}

// startFailover starts a hub. stop ends it.
func startFailover(t *testing.T, m *fakeHub, w *failoverWriter) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := m.reconcilerConfig()
	cfg.SetFailover = w.setFailover
	r, done := New(cfg), make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	return func() {
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		m.forgetCounts()
	}
}

// Another hub that starts in the middle goes on with the time, and with the move.
func TestAFailoverOutlivesTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		w := &failoverWriter{hub: m}
		stop := startFailover(t, m, w)
		m.placeWithFailover(t, failingAfter(300), &atoll.Content{})
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 200*time.Second, "a Active r1")
		stop()
		stop = startFailover(t, m, w)
		expectRowsAfter(t, m, 99*time.Second, "a Active r1")
		expectRowsAfter(t, m, 2*time.Second, "a Leaving r1, b Active r1")
		stop()
		stop = startFailover(t, m, w)
		m.reportState("web", "b", atoll.RowReady)
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		m.dropRow("web", "a")
		m.reportState("web", "b", atoll.RowDegraded)
		synctest.Wait()
		stop()
		stop = startFailover(t, m, w)
		expectRowsAfter(t, m, 20*time.Minute, "b Active r1")
		stop()
		time.Sleep(time.Minute)
	})
}

// A hub that has just started does not act upon a report that may be old.
func TestAStartedHubLooksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		w := &failoverWriter{hub: m}
		stop := startFailover(t, m, w)
		m.placeWithFailover(t, failingAfter(300), &atoll.Content{})
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 200*time.Second, "a Active r1")
		stop()
		time.Sleep(time.Hour)
		stop = startFailover(t, m, w)
		expectRowsAfter(t, m, 20*time.Second, "a Active r1")
		m.reportState("web", "a", atoll.RowReady)
		expectRowsAfter(t, m, time.Hour, "a Active r1")
		stop()
		time.Sleep(time.Minute)
	})
}

// The purge mode decides when the old copy goes.
func TestPurgeModesOfAFailover(t *testing.T) {
	for mode, want := range map[v1alpha1.PurgeMode][3]string{
		v1alpha1.PurgeDirectly:    {"a Removing r1, b Active r1", "a Removing r1, b Active r1", "a Removing r1, b Active r1"},
		v1alpha1.PurgeImmediately: {"a Removing r1, b Active r1", "a Removing r1, b Active r1", "a Removing r1, b Active r1"},
		v1alpha1.PurgeGracefully:  {"a Leaving r1, b Active r1", "a Leaving r1, b Active r1", "a Removing r1, b Active r1"},
		v1alpha1.PurgeNever:       {"a Leaving r1, b Active r1", "a Leaving r1, b Active r1", "a Leaving r1, b Active r1"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			runFailover(t, func(t *testing.T, m *fakeHub, _ *failoverWriter) {
				terms := failingAfter(10)
				if terms.PurgeMode = mode; mode == v1alpha1.PurgeGracefully {
					terms.GracePeriodSeconds = new(int32(100))
				}
				m.placeWithFailover(t, terms, &atoll.Content{})
				m.reportState("web", "a", atoll.RowDegraded)
				expectRowsAfter(t, m, 11*time.Second, want[0])
				m.reportState("web", "b", atoll.RowProgressing)
				expectRowsAfter(t, m, 98*time.Second, want[1])
				expectRowsAfter(t, m, 3*time.Second, want[2])
			})
		})
	}
}

// A copy that purgeMode Never keeps goes by the confirmation of exactly its plan, and its reason names that.
func TestAFailedCopyIsConfirmed(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, _ *failoverWriter) {
		terms := failingAfter(10)
		terms.PurgeMode = v1alpha1.PurgeNever
		m.placeWithFailover(t, terms, &atoll.Content{})
		m.reportState("web", "a", atoll.RowDegraded)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		m.reportState("web", "b", atoll.RowReady)
		expectRowReason(t, m, "a", atoll.ReasonFailedCopyKept)
		expectRowsAfter(t, m, 100*time.Hour, "a Leaving r1, b Active r1") // its backoff is over
		row, _ := fakeRows{m}.Get("web", "a")
		plan := atoll.ParseRowReason(row.Spec.Reason).Plan
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: "another"} })
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan} })
		expectRows(t, m, "web", "a Removing r1, b Active r1")
	})
}

// Copies that should not run twice move as in any other move: the old one ends first.
func TestAnExclusiveApplicationMoves(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, _ *failoverWriter) {
		m.placeWithFailover(t, failingAfter(10), statefulSetContent())
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 11*time.Second, "a Removing r1, b Pending r1")
		m.dropRow("web", "a")
		expectRows(t, m, "web", "b Active r1")
	})
}

// The share of a cluster in which the application is unhealthy moves to the others, and returns after the backoff.
func TestAnUnhealthyShareMoves(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, _ *failoverWriter) {
		addClusters(m, "a", "b", "c")
		terms := failingAfter(10)
		terms.BackoffSeconds = new(int32(600))
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.Failover = dividedPlacement, &v1alpha1.Failover{Application: terms}
		})
		m.cutRevision("web", contentAsking("web", 6))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 2, b Active r1 2, c Active r1 2")
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 11*time.Second, "a Leaving r1 2, b Active r1 3, c Active r1 3")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1 3, c Active r1 3")
		expectRowsAfter(t, m, 9*time.Minute, "b Active r1 3, c Active r1 3")
		time.Sleep(2 * time.Minute)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 2, b Active r1 2, c Active r1 2")
	})
}

// A placement that takes all clusters that fit moves nothing, and costs nothing.
func TestACopyOfEachClusterStays(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
		addClusters(m, "a", "b")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Failover = &v1alpha1.Failover{Application: failingAfter(10)} })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		_, looks := m.countsAfterWait()
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, time.Hour, "a Active r1, b Active r1")
		if _, now := m.countsAfterWait(); w.writes != 0 || now-looks > 1 { // expectRows looks once
			t.Errorf("%d writes, %d steps", w.writes, now-looks)
		}
	})
}

// A stop by a person holds the failover, and its end lets it go on.
func TestStopsOfAFailover(t *testing.T) {
	for name, hold := range map[string]func(spec *v1alpha1.BundleSpec, is bool){
		"a pause": func(spec *v1alpha1.BundleSpec, is bool) {
			if spec.Pause = nil; is {
				spec.Pause = &v1alpha1.RolloutPause{By: "alice", Since: metav1.Now()}
			}
		},
		"a suspension of dispatching": func(spec *v1alpha1.BundleSpec, is bool) { spec.Suspension = &v1alpha1.Suspension{Dispatching: is} },
		"a suspension of scheduling":  func(spec *v1alpha1.BundleSpec, is bool) { spec.Suspension = &v1alpha1.Suspension{Scheduling: is} },
	} {
		t.Run(name, func(t *testing.T) {
			runFailover(t, func(t *testing.T, m *fakeHub, _ *failoverWriter) {
				m.placeWithFailover(t, failingAfter(60), &atoll.Content{})
				m.changeBundle("web", func(b *state.Bundle) { hold(&b.Spec, true) })
				m.reportState("web", "a", atoll.RowDegraded)
				expectRowsAfter(t, m, time.Hour, "a Active r1")
				m.changeBundle("web", func(b *state.Bundle) { hold(&b.Spec, false) })
				expectRowsAfter(t, m, time.Second, "a Leaving r1, b Active r1")
			})
		})
	}
}

// A freeze holds the failover until it is lifted or ends.
func TestAFreezeHoldsAFailover(t *testing.T) {
	for name, until := range map[string]time.Duration{"lifted": 0, "over": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			m, s := newFakeHub(), &fakeSettings{}
			w := &failoverWriter{hub: m}
			runWith(t, m, func(c *Config) { c.SetFailover, c.Settings = w.setFailover, s }, func(t *testing.T, _ *PlacementReconciler) {
				m.placeWithFailover(t, failingAfter(60), &atoll.Content{})
				s.setFreeze("alice", until)
				m.reportState("web", "a", atoll.RowDegraded)
				expectRowsAfter(t, m, time.Hour, "a Active r1")
				expectRowReason(t, m, "a", atoll.ReasonFailoverHeld)
				if until == 0 {
					s.setFreeze("", 0)
				} else {
					time.Sleep(until - time.Hour)
				}
				expectRowsAfter(t, m, time.Second, "a Leaving r1, b Active r1")
			})
		})
	}
}

// A new revision that is healthy nowhere is the matter of its rollout.
func TestABadRevisionDoesNotWander(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
		m.placeWithFailover(t, failingAfter(60), &atoll.Content{})
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, time.Hour, "a Active r2")
		m.reportState("web", "a", atoll.RowReady)
		synctest.Wait()
		if b, _ := (fakeBundles{m}).Get("web"); b.Status.Failover.HealthyRevision != "web-2-r2" {
			t.Errorf("stored: %+v", b.Status.Failover)
		}
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, 61*time.Second, "a Leaving r2, b Active r2")
	})
}

// A disconnected cluster is the matter of the hub's failover. After it is back, the time begins again.
func TestADisconnectedApplicationStays(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, _ *failoverWriter) {
		m.placeWithFailover(t, failingAfter(60), &atoll.Content{})
		addClusters(m, "c", "d", "e")
		m.reportState("web", "a", atoll.RowDegraded)
		time.Sleep(30 * time.Second)
		m.setOnline("a", false)
		expectRowsAfter(t, m, 24*time.Hour, "a Active r1")
		m.setOnline("a", true)
		expectRowsAfter(t, m, 59*time.Second, "a Active r1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if rows := m.rowsOf("web"); !strings.HasPrefix(rows, "a Leaving r1, ") {
			t.Errorf("rows: %s", rows)
		}
	})
}

// A write that fails is repeated, and nothing moves before it is stored. A hub that stores nothing moves nothing.
func TestAFailoverIsStoredFirst(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "bundles"}, "web", errors.New("changed"))
	for name, fails := range map[string]error{"a conflict": conflict, "an error": errors.New("no connection")} {
		t.Run(name, func(t *testing.T) {
			runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
				m.placeWithFailover(t, failingAfter(10), &atoll.Content{})
				w.fails = fails
				m.reportState("web", "a", atoll.RowDegraded)
				expectRowsAfter(t, m, 10*time.Second, "a Active r1")
				expectRowsAfter(t, m, time.Second, "a Leaving r1, b Active r1")
			})
		})
	}
	m := newFakeHub()
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeWithFailover(t, failingAfter(10), &atoll.Content{})
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, time.Hour, "a Active r1")
	})
}

// Reports that are no news for the failover make no step.
func TestReportsWithoutNewsCostNothing(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
		m.placeWithFailover(t, failingAfter(600), &atoll.Content{})
		time.Sleep(time.Minute)
		synctest.Wait()
		_, looks := m.countsAfterWait()
		for range 10 {
			m.reportState("web", "a", atoll.RowReady)
			synctest.Wait()
		}
		if _, now := m.countsAfterWait(); now != looks {
			t.Errorf("%d steps for healthy reports", now-looks)
		}
		m.reportState("web", "a", atoll.RowDegraded)
		time.Sleep(time.Minute)
		synctest.Wait()
		_, looks = m.countsAfterWait()
		writes := w.writes
		for range 10 {
			m.reportState("web", "a", atoll.RowProgressing)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if _, now := m.countsAfterWait(); now != looks || w.writes != writes {
			t.Errorf("%d steps for unhealthy reports, %d writes", now-looks, w.writes-writes)
		}
	})
}

// A policy that states no failover any more stores nothing.
func TestTheEndOfAFailoverPolicy(t *testing.T) {
	runFailover(t, func(t *testing.T, m *fakeHub, w *failoverWriter) {
		m.placeWithFailover(t, failingAfter(10), &atoll.Content{})
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Failover = nil })
		synctest.Wait()
		if b, _ := (fakeBundles{m}).Get("web"); b.Status.Failover != nil {
			t.Errorf("stored: %+v", b.Status.Failover)
		}
		m.reportState("web", "a", atoll.RowDegraded)
		expectRowsAfter(t, m, time.Hour, "a Active r1")
	})
}

// A report that comes while a step is under way is not lost.
func TestAReportDuringAStep(t *testing.T) {
	x, now := newBundleIndex(), time.Unix(1_000_000, 0)
	e := x.ensureEntry("web")
	row := func(is atoll.RowState) rollout.Row {
		return rollout.Row{Spec: atoll.RowSpec{UID: "uid-a", Generation: 1, Revision: "web-1-r1", Phase: atoll.RowActive}, Status: &atoll.RowStatus{Generation: 1, State: is}}
	}
	watch := func(is rollout.CopyHealth) *healthWatch {
		return &healthWatch{reports: map[string]rollout.CopyHealth{"a": is}, watched: map[string]rollout.WatchedCopy{}, healthy: 1, settle: time.Minute}
	}
	if !x.recordHealth("web", watch(rollout.HealthGood)) {
		t.Error("reports before the first step are not looked for")
	}
	for _, tc := range []struct {
		read   rollout.CopyHealth
		report atoll.RowState
		again  bool
	}{{rollout.HealthGood, atoll.RowReady, false}, {rollout.HealthGood, atoll.RowDegraded, true}, {rollout.HealthBad, atoll.RowDegraded, false}, {rollout.HealthBad, atoll.RowReady, true}} {
		e.isStepping = true
		e.health.beginStep()
		if _, isNews := x.recordReport("web", "a", row(tc.report), now); isNews {
			t.Errorf("%s begins a step within a step", tc.report)
		}
		if again := x.recordHealth("web", watch(tc.read)); again != tc.again {
			t.Errorf("%s after %d was read: again %t", tc.report, tc.read, again)
		}
	}
	// The step has recorded what it judged, and has not ended: further reports are news.
	if after, isNews := x.recordReport("web", "a", row(atoll.RowDegraded), now); !isNews || after != time.Minute || !e.health.watched["a"].Since.Equal(now) {
		t.Errorf("an unhealthy report: %t after %s, %+v", isNews, after, e.health.watched)
	}
	if _, isNews := x.recordReport("web", "a", row(atoll.RowProgressing), now); isNews {
		t.Error("another unhealthy report begins a step")
	}
	if _, isNews := x.recordReport("web", "a", row(atoll.RowReady), now); isNews || len(e.health.watched) > 0 {
		t.Errorf("a healthy report begins a step, with nothing stored: %+v", e.health.watched)
	}
	e.health.clocks = map[string]bool{"a": true}
	if _, isNews := x.recordReport("web", "a", row(atoll.RowReady), now); !isNews {
		t.Error("the end of a time that is stored begins no step")
	}
}
