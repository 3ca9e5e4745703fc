package placer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Views makes placement's view of a Cluster, and reports changes of the view that are no changes
// of the Cluster.
type Views interface {
	ViewOf(c *v1alpha1.Cluster) schedule.Cluster
	Subscribe(fn func(name string))
	// GetHubVersions returns the API versions between which the hub converts; nil: there are none.
	GetHubVersions() atoll.HubVersions
}

// plainViews uses the Cluster object alone.
type plainViews struct{}

func (plainViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster { return schedule.ClusterOf(c) }
func (plainViews) Subscribe(func(string))                      {}

func (plainViews) GetHubVersions() atoll.HubVersions { return nil }

// Sets returns the ClusterSets to which a namespace is bound.
type Sets interface {
	AllowedSets(namespace string) []string
	// Subscribe to namespaces whose sets changed; "" stands for all namespaces without a
	// binding.
	Subscribe(fn func(namespace string))
}

// boundClusterSets returns the sets that limit a Bundle; nil: none does.
func (r *PlacementReconciler) boundClusterSets(b state.Bundle) []string {
	if r.Sets == nil {
		return nil
	}
	return schedule.AllowedClusterSets(b.Ref.Namespace, b.Spec.Source.Kind, r.Sets.AllowedSets)
}

func (r *PlacementReconciler) clusterSetsChanged(namespace string) {
	if namespace == "" {
		r.enqueueRechecks(r.Bundles.List())
		return
	}
	for _, b := range r.Bundles.InNamespace(namespace) {
		r.enqueueAllRows(b.Ref.UID)
	}
}

// termsOf returns the current terms of a Bundle.
func (r *PlacementReconciler) termsOf(ctx context.Context, b state.Bundle) (schedule.PlacementTerms, error) {
	t := schedule.PlacementTerms{Placement: b.Spec.Placement, BoundSets: r.boundClusterSets(b), Rebalance: atoll.RebalanceRequestedAt(b.Meta.Annotations)}
	t.SummedWeights = b.Spec.WeightRule != v1alpha1.WeightLargest
	latest, ok := r.Revisions.LatestOfBundle(b.Ref.UID)
	if !ok {
		return t, nil
	}
	hub := r.Views.GetHubVersions()
	if known, ok := r.index.kindCache.Get(latest.Name); ok && known.(kindTerms).hub == hub {
		t.Kinds, t.FixedKinds, t.VersionLosses = known.(kindTerms).kinds, known.(kindTerms).fixed, known.(kindTerms).losses
		return t, nil
	}
	content, err := r.Revisions.GetContent(ctx, latest.Name)
	if err != nil {
		return t, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	t.Kinds, t.FixedKinds, t.VersionLosses = requiredKindsOf(content), manifest.ListFixedKinds(content, hub), manifest.FindVersionLosses(content, hub)
	r.index.kindCache.Add(latest.Name, kindTerms{t.Kinds, t.FixedKinds, t.VersionLosses, hub})
	return t, nil
}

// kindTerms are the terms that follow from a Revision and from the versions between which the hub converts.
type kindTerms struct {
	kinds  []string
	fixed  []string
	losses schedule.VersionLosses
	hub    atoll.HubVersions
}

// requiredKindsOf lists the kinds that clusters must serve, without those that the content defines
// itself. Sorted.
func requiredKindsOf(content *atoll.Content) []string {
	kinds, brought := map[string]bool{}, manifest.ListDefinedKinds(content)
	for i := range content.Items {
		item := &content.Items[i]
		kinds[schedule.FormatKindName(item.APIVersion, item.Key.Kind)] = true
	}
	maps.DeleteFunc(kinds, func(k string, _ bool) bool { return brought[k] })
	return slices.Sorted(maps.Keys(kinds))
}

func equalTerms(a, b schedule.PlacementTerms) bool {
	return a.Rebalance.Equal(b.Rebalance) && slices.Equal(a.Kinds, b.Kinds) && slices.Equal(a.FixedKinds, b.FixedKinds) && maps.EqualFunc(a.VersionLosses, b.VersionLosses, maps.Equal) && reflect.DeepEqual(a.BoundSets, b.BoundSets) && reflect.DeepEqual(a.Placement, b.Placement)
}
