package state

import (
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Views makes of a Cluster what placement sees of it, of all that the hub knows about
// it: the kinds of the APISet that it names are here, and which of the properties that
// agents report may be seen; the ClusterSets that it is in are in the table of Clusters,
// which tells of changes.
type Views struct {
	clusters *Clusters

	mu     sync.RWMutex
	apis   map[string]*schedule.APIs // by the hash that Clusters name
	listed []string                  // sorted
	notifier[string]
}

func newViews(clusters *Clusters) *Views {
	return &Views{clusters: clusters, apis: map[string]*schedule.APIs{}}
}

// Of a Cluster; shares memory with it.
func (v *Views) Of(c *v1alpha1.Cluster) schedule.Cluster {
	out := schedule.ClusterOf(c)
	out.Sets = v.clusters.Sets(c.Name)
	v.mu.RLock()
	defer v.mu.RUnlock()
	out.APIs = v.apis[c.Status.APIsHash]
	out.See(c.Status.Properties, v.listed)
	return out
}

// Stated is what of a Cluster overrides see: what is set on the hub. Shares memory with
// it.
func (v *Views) Stated(c *v1alpha1.Cluster) atoll.ClusterView {
	out := atoll.ViewOf(c)
	out.Sets = v.clusters.Sets(c.Name)
	return out
}

// Listed properties: those that may steer placement. Sorted, and not to be changed.
func (v *Views) Listed() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.listed
}

// Subscribe to names of Clusters that are seen differently though they did not change.
func (v *Views) Subscribe(fn func(name string)) { v.subscribe(fn) }

func (v *Views) put(obj client.Object) {
	switch o := obj.(type) {
	case *enginev1.APISet:
		v.putAPIs(o)
	case *v1alpha1.HubSettings:
		if o.Name == v1alpha1.HubSettingsName {
			v.list(o.Spec.PlacementProperties)
		}
	}
}

// drop keeps what an APISet said: no cluster serves less because it is gone. Without
// settings no property is listed.
func (v *Views) drop(obj client.Object) {
	if o, ok := obj.(*v1alpha1.HubSettings); ok && o.Name == v1alpha1.HubSettingsName {
		v.list(nil)
	}
}

// putAPIs notes an APISet. Equal sets are stored once under their hash, so that what one
// holds never changes.
func (v *Views) putAPIs(set *enginev1.APISet) {
	v.mu.Lock()
	_, known := v.apis[set.Name]
	if !known {
		v.apis[set.Name] = schedule.APIsOf(set.APIs)
	}
	v.mu.Unlock()
	if known {
		return
	}
	for _, c := range v.clusters.List() {
		if c.Status.APIsHash == set.Name {
			v.notify(c.Name)
		}
	}
}

// list the properties that may be seen, and tell of the Clusters that have one of those
// that came or went.
func (v *Views) list(names []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	v.mu.Lock()
	was := v.listed
	v.listed = names
	v.mu.Unlock()
	differs := func(p v1alpha1.ClusterProperty) bool {
		_, before := slices.BinarySearch(was, p.Name)
		_, now := slices.BinarySearch(names, p.Name)
		return before != now
	}
	if slices.Equal(was, names) {
		return
	}
	for _, c := range v.clusters.List() {
		if slices.ContainsFunc(c.Status.Properties, differs) {
			v.notify(c.Name)
		}
	}
}
