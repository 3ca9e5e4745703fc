package placer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
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
