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

// ClusterViews builds the view of a Cluster that placement reads. It holds the kinds of the
// APISets and the list of readable properties. The membership in ClusterSets is in the table of
// Clusters, which notifies of its changes.
type ClusterViews struct {
	clusters *ClusterTable

	mu               sync.RWMutex
	apisByHash       map[string]*schedule.ServedAPIs // by the hash that Clusters name
	listedProperties []string                        // sorted
	notifier[string]
}

func newViews(clusters *ClusterTable) *ClusterViews {
	return &ClusterViews{clusters: clusters, apisByHash: map[string]*schedule.ServedAPIs{}}
}

// ViewOf returns the view of a Cluster; shares memory with it.
func (v *ClusterViews) ViewOf(c *v1alpha1.Cluster) schedule.Cluster {
	out := schedule.ClusterOf(c)
	out.Sets = v.clusters.SetsOfCluster(c.Name)
	v.mu.RLock()
	defer v.mu.RUnlock()
	out.APIs = v.apisByHash[c.Status.APIsHash]
	out.AddListedProperties(c.Status.Properties, v.listedProperties)
	return out
}

// ViewForOverrides is what of a Cluster overrides see: what is set on the hub. Shares memory with
// it.
func (v *ClusterViews) ViewForOverrides(c *v1alpha1.Cluster) atoll.ClusterView {
	out := atoll.ClusterViewOf(c)
	out.Sets = v.clusters.SetsOfCluster(c.Name)
	return out
}

// PlacementPropertyNames returns the names of the properties that may steer placement, sorted;
// shared, not to be changed. Sorted, and not to be changed.
func (v *ClusterViews) PlacementPropertyNames() []string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.listedProperties
}

// Subscribe subscribes to names of Clusters that are seen differently though they did not change.
func (v *ClusterViews) Subscribe(fn func(name string)) { v.addSubscriber(fn) }

func (v *ClusterViews) put(obj client.Object) {
	switch o := obj.(type) {
	case *enginev1.APISet:
		v.putAPIs(o)
	case *v1alpha1.HubSettings:
		if o.Name == v1alpha1.HubSettingsName {
			v.setPlacementPropertyNames(o.Spec.PlacementProperties)
		}
	}
}

// removeObject keeps the content of an APISet: no cluster serves less because it is gone. Without
// settings no property is listed.
func (v *ClusterViews) removeObject(obj client.Object) {
	if o, ok := obj.(*v1alpha1.HubSettings); ok && o.Name == v1alpha1.HubSettingsName {
		v.setPlacementPropertyNames(nil)
	}
}

// putAPIs notes an APISet. Equal sets are stored once under their hash, so that what one
// holds never changes.
func (v *ClusterViews) putAPIs(set *enginev1.APISet) {
	known := false
	runLocked(&v.mu, func() {
		if _, known = v.apisByHash[set.Name]; !known {
			v.apisByHash[set.Name] = schedule.APIsOf(set.APIs)
		}
	})
	if !known {
		v.notifyOf(func(c *v1alpha1.Cluster) bool { return c.Status.APIsHash == set.Name })
	}
}

// notifyOf notifies of the Clusters that are meant.
func (v *ClusterViews) notifyOf(isMeant func(*v1alpha1.Cluster) bool) {
	var names []string
	for _, c := range v.clusters.List() {
		if isMeant(c) {
			names = append(names, c.Name)
		}
	}
	v.notifyEach(names)
}

// setPlacementPropertyNames sets the readable properties, and notifies of the Clusters that have a
// property that was added or removed.
func (v *ClusterViews) setPlacementPropertyNames(names []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	v.mu.Lock()
	was := v.listedProperties
	v.listedProperties = names
	v.mu.Unlock()
	differs := func(p v1alpha1.ClusterProperty) bool {
		_, before := slices.BinarySearch(was, p.Name)
		_, now := slices.BinarySearch(names, p.Name)
		return before != now
	}
	if slices.Equal(was, names) {
		return
	}
	v.notifyOf(func(c *v1alpha1.Cluster) bool { return slices.ContainsFunc(c.Status.Properties, differs) })
}
