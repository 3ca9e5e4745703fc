package place

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Views makes of a Cluster what placement sees of it, and says when that changes though
// the Cluster does not.
type Views interface {
	Of(c *v1alpha1.Cluster) schedule.Cluster
	Subscribe(fn func(name string))
}

// plainViews see what the object alone tells.
type plainViews struct{}

func (plainViews) Of(c *v1alpha1.Cluster) schedule.Cluster { return schedule.ClusterOf(c) }
func (plainViews) Subscribe(func(string))                  {}

// Sets says on which ClusterSets namespaces may place.
type Sets interface {
	Bound(namespace string) []string
	// Subscribe to namespaces for which that changed; "" stands for all that have no
	// binding.
	Subscribe(fn func(namespace string))
}

// bound gives the sets that limit a Bundle; nil: none does.
func (r *Reconciler) bound(b state.Bundle) []string {
	if r.Sets == nil {
		return nil
	}
	return schedule.Limits(b.Ref.Namespace, b.Spec.Source.Kind, r.Sets.Bound)
}

func (r *Reconciler) boundChanged(namespace string) {
	if namespace == "" {
		r.later(r.Bundles.List())
		return
	}
	for _, b := range r.Bundles.InNamespace(namespace) {
		r.now(b.Ref.UID)
	}
}

// terms of a Bundle, as they are now.
func (r *Reconciler) terms(ctx context.Context, b state.Bundle) (schedule.Terms, error) {
	t := schedule.Terms{Placement: b.Spec.Placement, Bound: r.bound(b), Rebalance: atoll.RebalanceAsked(b.Meta.Annotations)}
	latest, ok := r.Revisions.Latest(b.Ref.UID)
	if !ok {
		return t, nil
	}
	if kinds, ok := r.index.kinds.Get(latest.Name); ok {
		t.Kinds = kinds.([]string)
		return t, nil
	}
	content, err := r.Revisions.Content(ctx, latest.Name)
	if err != nil {
		return t, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	t.Kinds = kindsOf(content)
	r.index.kinds.Add(latest.Name, t.Kinds)
	return t, nil
}

// kindsOf a content that clusters have to serve: all but those that its own definitions
// bring along. Sorted.
func kindsOf(content *atoll.Content) []string {
	kinds, brought := map[string]bool{}, map[string]bool{}
	for i := range content.Items {
		item := &content.Items[i]
		kinds[schedule.KindName(item.APIVersion, item.Key.Kind)] = true
		for _, k := range brings(item) {
			brought[k] = true
		}
	}
	maps.DeleteFunc(kinds, func(k string, _ bool) bool { return brought[k] })
	return slices.Sorted(maps.Keys(kinds))
}

// brings lists the kinds that an item makes a cluster serve.
func brings(item *atoll.Item) (kinds []string) {
	if item.Key.Group != "apiextensions.k8s.io" || item.Key.Kind != "CustomResourceDefinition" {
		return nil
	}
	var def struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name string `json:"name"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if utiljson.Unmarshal(item.Object, &def) != nil {
		return nil // what it is, the member's API will say
	}
	for _, v := range def.Spec.Versions {
		kinds = append(kinds, schedule.KindName(def.Spec.Group+"/"+v.Name, def.Spec.Names.Kind))
	}
	return kinds
}

func sameTerms(a, b schedule.Terms) bool {
	return a.Rebalance.Equal(b.Rebalance) && slices.Equal(a.Kinds, b.Kinds) && reflect.DeepEqual(a.Bound, b.Bound) && reflect.DeepEqual(a.Placement, b.Placement)
}
