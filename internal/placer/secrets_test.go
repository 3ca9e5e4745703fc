package placer

import (
	"strings"
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// A held removal names no Secret in its Event, which readers of the Bundle see.
func TestHeldRemovalsNameNoSecret(t *testing.T) {
	secret := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "tls-of-bank"}
	web := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	content := &atoll.Content{Items: []atoll.Item{
		{Key: secret, UID: "u1", State: atoll.ItemRemovalHeld, RecallNote: "deleted yesterday"},
		{Key: web, UID: "u2", State: atoll.ItemRemovalHeld, RecallNote: "deleted yesterday"},
	}}
	m := newFakeHub()
	r := New(Config{
		Bundles: fakeBundles{m}, Rows: fakeRows{m}, RowWriter: fakeRows{m}, Clusters: fakeClusters{m}, Revisions: fakeRevisions{m},
		Namespaces: fakeNamespaces{m}, Hub: fakeHubState{m}, Events: fakeEvents{m},
	})
	b := state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	r.index.viewOf(b, schedule.PlacementTerms{}, time.Now())
	r.recordStepWarnings(b, &rollout.Input{Recalled: heldBackDeletions("b", content)}, rollout.Output{PendingRemoval: &rollout.PendingRemoval{Hash: "h", Lines: []string{
		"remove from a: " + atoll.Tombstone{Key: secret, UID: "u1"}.ID() + ", " + atoll.Tombstone{Key: web, UID: "u2"}.ID(),
		"remove from b: " + atoll.Tombstone{Key: secret, UID: "u1"}.ID(),
	}}})
	if len(m.takeWarnings()) != 2 {
		t.Fatalf("warnings %q", m.takeWarnings())
	}
	for _, warning := range m.takeWarnings() {
		if strings.Contains(warning, "tls-of-bank") || strings.Contains(warning, "u1") || !strings.Contains(warning, "a Secret") || !strings.Contains(warning, "web") {
			t.Errorf("warning %q", warning)
		}
	}
}

// Removals of items that state Confirm are named in a warning, once for each plan, but for Secrets. A row that
// has no other reason says so until they are confirmed.
func TestUnconfirmedRemovalsAreNamed(t *testing.T) {
	item := func(kind, name string, state atoll.ItemState) atoll.Item {
		return atoll.Item{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}, UID: name, State: state, RemovalCause: atoll.CauseDeleted}
	}
	content := &atoll.Content{Items: []atoll.Item{item("ConfigMap", "plain", ""), item("ConfigMap", "precious", atoll.ItemUnconfirmed), item("Secret", "tls-of-bank", atoll.ItemUnconfirmed)}}
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", placementNamed("a"), content)
		m.settleRows("web")
		r.enqueueAllRows("web")
		m.settleRows("web")
		row, _ := (fakeRows{m}).Get("web", "a")
		reason := atoll.ParseRowReason(row.Spec.Reason)
		if want := "remove ConfigMap precious; remove a Secret"; reason.Reason != atoll.ReasonWaitsForConfirmation || reason.Plan == "" || reason.Text != want {
			t.Errorf("the row says %+v, want %q", reason, want)
		}
		if w := m.takeWarnings(); len(w) != 1 || !strings.Contains(w[0], "remove ConfigMap precious; remove a Secret") || !strings.Contains(w[0], "--plan "+reason.Plan) {
			t.Errorf("the warnings are %q", w)
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: reason.Plan} })
		m.settleRows("web")
		if row, _ := (fakeRows{m}).Get("web", "a"); row.Spec.Reason != "" {
			t.Errorf("after the confirmation the row says %q", row.Spec.Reason)
		}
	})
}

// A Bundle with an item whose removal is confirmed leaves no cluster without a confirmation, also when it is deleted
// while its placing panics.
func TestABundleWithSuchAnItemWaitsAlsoWhenPlacingPanics(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		content := &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "precious"}, Treatment: &atoll.Treatment{Removal: v1alpha1.RemoveConfirm}}}}
		m.placeBundle("web", placementNamed("a"), content)
		m.settleRows("web")
		b, _ := (fakeBundles{m}).Get("web")
		if must, err := r.mustConfirmLeavingRows(t.Context(), b); !must || err != nil || !r.leavingStepInput(b, must).rollout.MustConfirmRemovals {
			t.Errorf("no confirmation is needed: %v", err)
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = atoll.NowherePlacement() })
		expectRows(t, m, "web", "a Held r1")
	})
}
