package state

import (
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// Views makes of a Cluster what placement sees of it, of all that the hub knows about
// it: the kinds of the APISet that it names are here, the ClusterSets that it is in are
// in the table of Clusters, which tells of changes.
type Views struct {
	clusters *Clusters

	mu   sync.RWMutex
	apis map[string]*schedule.APIs // by the hash that Clusters name
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
	return out
}

// Subscribe to names of Clusters that are seen differently though they did not change.
func (v *Views) Subscribe(fn func(name string)) { v.subscribe(fn) }

// put an APISet. Equal sets are stored once under their hash, so that what one holds
// never changes.
func (v *Views) put(obj client.Object) {
	set := obj.(*enginev1.APISet)
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

// drop keeps what was known: no cluster serves less because an APISet is gone.
func (v *Views) drop(client.Object) {}
