package bootstrap

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

func TestParseDefaultPlacement(t *testing.T) {
	for text, want := range map[string]*v1alpha1.DefaultPlacement{
		"": nil, "None": nil,
		"All":                    {Type: v1alpha1.DefaultPlacementAll},
		"ClusterSet/prod":        {Type: v1alpha1.DefaultPlacementClusterSet, Name: "prod"},
		"ClusterPlacement/spare": {Type: v1alpha1.DefaultPlacementClusterPlacement, Name: "spare"},
	} {
		got, err := ParseDefaultPlacement(text)
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"all", "/", "None/x", "All/x", "ClusterSet", "ClusterSet/", "Placement/x"} {
		if got, err := ParseDefaultPlacement(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// Only a new hub gets the default placement of the flag, and the child placement: one with the set of
// all clusters is not new, and HubSettings that exist stay.
func TestOnlyANewHubGetsTheDefaultPlacement(t *testing.T) {
	all, prod := &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementAll}, &v1alpha1.DefaultPlacement{Type: v1alpha1.DefaultPlacementClusterSet, Name: "prod"}
	settings := func(c client.Client) (*v1alpha1.HubSettings, error) {
		s := &v1alpha1.HubSettings{}
		return s, c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.HubSettingsName}, s)
	}
	fresh := newRecorder()
	for _, d := range []*v1alpha1.DefaultPlacement{all, prod} {
		if err := InstallHubObjects(t.Context(), fresh, d); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := settings(fresh); err != nil || s.Spec.DefaultPlacement == nil || *s.Spec.DefaultPlacement != *all || s.Spec.ChildPlacement != v1alpha1.ChildPlacementParent || s.Spec.EmptyNamespaces != v1alpha1.EmptyNamespacesCreate {
		t.Errorf("a new hub has %+v, %v", s.Spec, err)
	}
	upgraded := newRecorder()
	if err := upgraded.Create(t.Context(), schedule.NewDefaultSet()); err != nil {
		t.Fatal(err)
	}
	if err := InstallHubObjects(t.Context(), upgraded, all); err != nil {
		t.Fatal(err)
	}
	if s, err := settings(upgraded); !apierrors.IsNotFound(err) {
		t.Errorf("a hub that is not new has %+v, %v", s.Spec, err)
	}
}
