package placer

import (
	"context"
	"errors"
	"sync"
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

// gateWriter writes verdicts into the fake Bundle. The first write of each ends with the error.
type gateWriter struct {
	hub    *fakeHub
	writes int
	fails  error
}

func (w *gateWriter) setRollout(_ context.Context, b state.Bundle, is v1alpha1.RolloutStatus) error {
	if err := w.fails; err != nil {
		w.fails = nil
		return err
	}
	w.writes++
	w.hub.changeBundle(b.Ref.UID, func(b *state.Bundle) { b.Status.Rollout = &is })
	return nil
}

func newGatedBundle(m *fakeHub) {
	m.changeBundle("web", func(b *state.Bundle) {
		b.Spec.Rollout = stagesByRing()
		b.Spec.Rollout.Stages[0].MinSuccessTime = nil
		b.Spec.Rollout.Stages[1].GatesBefore = []v1alpha1.RolloutGate{
			{Name: "owner", Approval: &v1alpha1.ApprovalGate{}}, {Name: "time", Wait: &metav1.Duration{Duration: time.Minute}}, {Name: "healthy", CEL: "earlier.updated == 1"},
		}
	})
}

func approveStage(m *fakeHub, stage string) {
	m.changeBundle("web", func(b *state.Bundle) {
		b.Spec.Approvals = append(b.Spec.Approvals, v1alpha1.RolloutApproval{Stage: stage, Revision: m.revisions["web"][1].Name, By: "alice", At: metav1.Now()})
	})
}

// Gates open when all of them hold and that is stored. Each verdict is one write, also after a conflict and an error.
func TestGatesHoldAStage(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "bundles"}, "web", errors.New("changed"))
	for name, fails := range map[string]error{"stored": nil, "after a conflict": conflict, "after an error": errors.New("no connection")} {
		t.Run(name, func(t *testing.T) {
			m := newRings("a", "b", "c")
			w := &gateWriter{hub: m, fails: fails}
			runWith(t, m, func(c *Config) { c.SetRollout = w.setRollout }, func(t *testing.T, _ *PlacementReconciler) {
				newStagedBundle(m)
				newGatedBundle(m)
				synctest.Wait()
				m.reportHealthy("web", "a")
				time.Sleep(time.Hour)
				expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
				if w.writes != 2 { // they wait, and the time has passed
					t.Errorf("%d writes while the approval is missing, want 2", w.writes)
				}
				approveStage(m, "ring-1")
				expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
				approveStage(m, "ring-2")
				time.Sleep(time.Second)
				expectRows(t, m, "web", "a Active r2, b Active r2, c Active r1")
				m.reportHealthy("web", "b")
				time.Sleep(time.Hour)
				expectRows(t, m, "web", "a Active r2, b Active r2, c Active r2")
				if w.writes != 3 {
					t.Errorf("%d writes, want 3", w.writes)
				}
			})
		})
	}
}

// A hub that stores no verdict opens no gate.
func TestAGateWithoutAStoreStaysClosed(t *testing.T) {
	m := newRings("a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newStagedBundle(m)
		newGatedBundle(m)
		synctest.Wait()
		m.reportHealthy("web", "a")
		approveStage(m, "ring-2")
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
	})
}

// fakeTallies are measurements of gates, by the name of the gate.
type fakeTallies struct {
	mu  sync.Mutex
	all map[string]rollout.Tally
}

func (f *fakeTallies) TallyOf(_ string, of *v1alpha1.GateStatus) rollout.Tally {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[of.Name]
}

func (f *fakeTallies) add(g *v1alpha1.RolloutGate, o rollout.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[g.Name] = f.all[g.Name].AddOutcome(g, o, time.Now())
}

// A gate that measures opens a stage by the tally of this hub, and one that failed rolls back what has changed.
func TestAGateIsJudgedByMeasurements(t *testing.T) {
	errorRate := v1alpha1.RolloutGate{Name: "errors", Prometheus: &v1alpha1.PrometheusGate{Server: "https://h", Query: "up", SuccessCondition: "result < 0.5", Count: 2}}
	m := newRings("a", "b", "c")
	w, tallies := &gateWriter{hub: m}, &fakeTallies{all: map[string]rollout.Tally{}}
	runWith(t, m, func(c *Config) { c.SetRollout, c.Measurements = w.setRollout, tallies }, func(t *testing.T, r *PlacementReconciler) {
		newStagedBundle(m)
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout = stagesByRing()
			for i := range b.Spec.Rollout.Stages {
				b.Spec.Rollout.Stages[i].MinSuccessTime, b.Spec.Rollout.Stages[i].OnFailure = nil, v1alpha1.FailureRollback
			}
			b.Spec.Rollout.Stages[0].GatesAfter = []v1alpha1.RolloutGate{errorRate}
		})
		synctest.Wait()
		m.reportHealthy("web", "a")
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r2, b Active r1, c Active r1")
		if w.writes != 1 {
			t.Errorf("%d writes before a measurement, want 1", w.writes)
		}
		for range 2 {
			time.Sleep(time.Minute)
			tallies.add(&errorRate, rollout.Outcome{Kind: rollout.OutcomeSuccess, Text: "0.1"})
			r.MeasurementsChanged("web")
		}
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r1")
		tallies.all = map[string]rollout.Tally{}
		m.reportHealthy("web", "b")
		time.Sleep(time.Second)
		m.reportHealthy("web", "c")
		time.Sleep(time.Second)
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Second)
		m.reportHealthy("web", "a")
		time.Sleep(time.Second)
		expectRows(t, m, "web", "a Active r3, b Active r2, c Active r2")
		tallies.add(&errorRate, rollout.Outcome{Kind: rollout.OutcomeFailure, Text: "0.9"})
		r.MeasurementsChanged("web")
		time.Sleep(time.Second)
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r2")
		m.mu.Lock()
		defer m.mu.Unlock()
		if is := m.bundles["web"].Status.Rollout; is.Rollback == nil || is.Rollback.Gate != "errors" || is.Rollback.Stage != "ring-1" || is.Rollback.PreviousRevision != m.revisions["web"][1].Name || len(is.Gates) != 1 || is.Gates[0].State != v1alpha1.GateFailed {
			t.Errorf("the status is %+v", is)
		}
	})
}
