package placer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// defectiveRevisions panics about the content of any Revision while it is broken.
type defectiveRevisions struct {
	Revisions
	isBroken *bool
}

func (d defectiveRevisions) GetContent(ctx context.Context, name string) (*atoll.Content, error) {
	if *d.isBroken {
		panic("defect")
	}
	return d.Revisions.GetContent(ctx, name)
}

// runDefective runs a Reconciler that panics about each Bundle while broken is true.
func runDefective(t *testing.T, m *fakeHub, test func(t *testing.T, broken *bool)) {
	t.Helper()
	isBroken := false
	runWith(t, m, func(c *Config) { c.Revisions = defectiveRevisions{c.Revisions, &isBroken} }, func(t *testing.T, _ *PlacementReconciler) { test(t, &isBroken) })
}

func deleteBundle(m *fakeHub, uid string, mode v1alpha1.RemovalMode) {
	now := metav1.Now()
	m.changeBundle(uid, func(b *state.Bundle) { b.Meta.DeletionTimestamp, b.Spec.Removal.Mode = &now, mode })
	time.Sleep(11 * time.Second) // it may be set aside for 10 s
	synctest.Wait()
}

// A Bundle whose placing panics keeps its rows. When it is deleted, its rows leave, by its mode of
// removal. The row of a deleted Cluster is dropped.
func TestABundleWhosePlacingPanicsCanLeave(t *testing.T) {
	for _, mode := range []v1alpha1.RemovalMode{v1alpha1.RemoveDelete, v1alpha1.RemoveOrphan} {
		m := newFakeHub()
		addClusters(m, "a", "b")
		runDefective(t, m, func(t *testing.T, broken *bool) {
			newPlacedBundle(m, "web", &atoll.Content{}, "a", "b")
			*broken = true
			m.deleteCluster("b")
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed() })
			m.cutRevision("web", &atoll.Content{})
			time.Sleep(time.Hour)
			expectRows(t, m, "web", "a Active r1, b Active r1")
			deleteBundle(m, "web", mode)
			expectRows(t, m, "web", "a Removing r1")
			if row, _ := (fakeRows{m}).Get("web", "a"); row.Spec.Orphan != (mode == v1alpha1.RemoveOrphan) || atoll.ParseRowReason(row.Spec.Reason).Reason != atoll.ReasonBundleDeleted {
				t.Errorf("the row of mode %s is %+v", mode, row.Spec)
			}
			m.settleRows("web")
			expectRows(t, m, "web", "")
		})
	}
}

// 1,001 deletions, over the limit of 1,000 direct ones, wait for a confirmation, also of a Bundle whose placing panics.
func TestABigRemovalWaitsAlsoWhenPlacingPanics(t *testing.T) {
	m := newFakeHub()
	var names []string
	for i := range 1001 {
		names = append(names, fmt.Sprintf("c%04d", i))
	}
	addClusters(m, names...)
	runDefective(t, m, func(t *testing.T, broken *bool) {
		newPlacedBundle(m, "web", &atoll.Content{}, names...)
		*broken = true
		deleteBundle(m, "web", v1alpha1.RemoveDelete)
		plan := m.heldPlan(t, "web")
		if rows := (fakeRows{m}).ListOfBundle("web"); plan == "" || slices.ContainsFunc(rows, func(r state.Row) bool { return r.Spec.Phase != atoll.RowHeld }) {
			t.Fatalf("the plan is %q, and the rows are %s", plan, m.rowsOf("web"))
		}
		m.confirmPlan("web", plan)
		time.Sleep(11 * time.Second)
		m.settleRows("web")
		expectRows(t, m, "web", "")
	})
}

// unreadableRevisions fails to read contents while the store is away.
type unreadableRevisions struct{ Revisions }

func (unreadableRevisions) GetContent(context.Context, string) (*atoll.Content, error) {
	return nil, errors.New("the store is away")
}

// A content that the store does not give may have an object whose removal a person confirms: no row leaves until it
// is read.
func TestNoRowLeavesWhileTheContentCannotBeRead(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a")
		b, _ := (fakeBundles{m}).Get("web")
		was := r.Revisions
		r.Revisions = unreadableRevisions{was}
		if err := r.removeRows(t.Context(), b); err == nil || !strings.Contains(err.Error(), "the store is away") {
			t.Errorf("the step answers %v", err)
		}
		expectRows(t, m, "web", "a Active r1")
		r.Revisions = was
	})
}
