package state

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Children stay on the hub unless the HubSettings state otherwise, and each change is notified.
func TestChildPlacementOfTheSettings(t *testing.T) {
	s := newSettings(newViews(newClusters(), nil))
	notified := 0
	s.Subscribe(func(string) { notified++ })
	hub := &v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.HubSettingsName}}
	check := func(what string, want v1alpha1.ChildPlacement, isStated bool, changes int) {
		t.Helper()
		if s.ChildPlacement() != want || s.StatesPlacement() != isStated || notified != changes {
			t.Errorf("%s: %s, stated %t, %d changes", what, s.ChildPlacement(), s.StatesPlacement(), notified)
		}
	}
	check("without settings", v1alpha1.ChildPlacementNone, false, 0)
	s.put(hub)
	check("settings without the field", v1alpha1.ChildPlacementNone, false, 0)
	hub.Spec.ChildPlacement = v1alpha1.ChildPlacementParent
	s.put(hub)
	check("Parent", v1alpha1.ChildPlacementParent, true, 1)
	s.put(hub)
	check("the same again", v1alpha1.ChildPlacementParent, true, 1)
	now := metav1.Now()
	if out := s.SupposeWritten(); out.ChildPlacement() != v1alpha1.ChildPlacementParent {
		t.Errorf("a copy has %s", out.ChildPlacement())
	}
	if out := s.SupposeWritten(&v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.HubSettingsName, DeletionTimestamp: &now}}); out.ChildPlacement() != v1alpha1.ChildPlacementNone {
		t.Errorf("a copy without settings has %s", out.ChildPlacement())
	}
	s.removeObject(hub)
	check("deleted", v1alpha1.ChildPlacementNone, false, 2)
}

// An empty namespace is created only where the HubSettings state it, and each change is notified.
func TestEmptyNamespacesOfTheSettings(t *testing.T) {
	s := newSettings(newViews(newClusters(), nil))
	notified := 0
	s.Subscribe(func(string) { notified++ })
	hub := &v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.HubSettingsName}}
	for i, step := range []struct {
		of      v1alpha1.EmptyNamespaces
		creates bool
	}{{v1alpha1.EmptyNamespacesCreate, true}, {v1alpha1.EmptyNamespacesNone, false}, {"", false}} {
		hub.Spec.EmptyNamespaces = step.of
		s.put(hub)
		if s.CreatesEmptyNamespaces() != step.creates || s.SupposeWritten().CreatesEmptyNamespaces() != step.creates || notified != i+1 {
			t.Errorf("%q: creates %t, %d changes", step.of, s.CreatesEmptyNamespaces(), notified)
		}
	}
}

// Changes are kept for a day unless the HubSettings state another window, and each change is notified.
func TestTheUndoWindowOfTheSettings(t *testing.T) {
	s := newSettings(newViews(newClusters(), nil))
	notified := 0
	s.Subscribe(func(string) { notified++ })
	hub := &v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.HubSettingsName}}
	if s.UndoWindow() != 24*time.Hour {
		t.Errorf("without settings the window is %s", s.UndoWindow())
	}
	for i, window := range []time.Duration{0, time.Hour} {
		hub.Spec.UndoWindow = &metav1.Duration{Duration: window}
		s.put(hub.DeepCopy())
		if s.UndoWindow() != window || notified != i+1 {
			t.Errorf("the window is %s after %d changes, want %s", s.UndoWindow(), notified, window)
		}
	}
	s.removeObject(hub)
	if s.UndoWindow() != 24*time.Hour || notified != 3 {
		t.Errorf("after the settings are gone: %s, %d changes", s.UndoWindow(), notified)
	}
}
