package state

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// ClusterTable is the table of members, of which of them can be counted on, and of which
// ClusterSets each is in.
type ClusterTable struct {
	mu     sync.RWMutex
	byName map[string]*v1alpha1.Cluster
	byUID  map[string]*v1alpha1.Cluster
	online map[string]bool
	// expectedOnline are those, by UID, that are only supposed, and counted on.
	expectedOnline map[string]bool
	membership     schedule.SetMembership
	notifier[string]
	// setChanges notifies of ClusterSets that changed, or whose number of clusters did.
	setChanges notifier[string]
}

func newClusters() *ClusterTable {
	return &ClusterTable{
		byName:     map[string]*v1alpha1.Cluster{},
		byUID:      map[string]*v1alpha1.Cluster{},
		online:     map[string]bool{},
		membership: schedule.NewMembership(),
	}
}

// Get returns a Cluster by name.
func (c *ClusterTable) Get(name string) (*v1alpha1.Cluster, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.byName[name]
	return v, ok
}

// GetByUID gets a Cluster by its identity.
func (c *ClusterTable) GetByUID(uid string) (*v1alpha1.Cluster, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.byUID[uid]
	return v, ok
}

// Len counts the Clusters.
func (c *ClusterTable) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byName)
}

// List lists all Clusters by name.
func (c *ClusterTable) List() []*v1alpha1.Cluster {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*v1alpha1.Cluster, 0, len(c.byName))
	for _, v := range c.byName {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b *v1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// IsOnline reports whether the cluster of that UID can be counted on: it holds a stream,
// or it checks in and has not missed two check-ins.
func (c *ClusterTable) IsOnline(uid string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.expectedOnline[uid] {
		return true
	}
	if v, ok := c.byUID[uid]; ok && v.Spec.CheckInInterval() > 0 {
		ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ClusterReady)
		return ready != nil && ready.Status != metav1.ConditionUnknown
	}
	return c.online[uid]
}

// SetsOfCluster lists the ClusterSets that the cluster of that name is in, by name. It is shared.
func (c *ClusterTable) SetsOfCluster(name string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.membership.SetsOf(name)
}

// SetsOfLabels lists the ClusterSets that a cluster with these labels would be in.
func (c *ClusterTable) SetsOfLabels(labels map[string]string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.membership.SetsForLabels(labels)
}

// CountClusters returns the number of clusters that are in a ClusterSet.
func (c *ClusterTable) CountClusters(set string) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.membership.CountClusters(set)
}

// defineSet sets a ClusterSet, or deletes it with nil, and notifies of the clusters that join
// or leave it. Each cluster is compared once.
func (c *ClusterTable) defineSet(name string, spec *v1alpha1.ClusterSetSelector) {
	var changed []string
	runLocked(&c.mu, func() {
		c.membership.DefineSet(name, spec)
		for cluster, v := range c.byName {
			if c.membership.PutCluster(cluster, v.Labels) {
				changed = append(changed, cluster)
			}
		}
	})
	slices.Sort(changed)
	c.notifyEach(changed)
}

// SetOnline is for the gateway: a stream came or went. A check-in notifies no subscriber,
// because it changes nothing that another component reads.
func (c *ClusterTable) SetOnline(uid string, on bool) {
	c.mu.Lock()
	if c.online[uid] == on {
		c.mu.Unlock()
		return
	}
	if on {
		c.online[uid] = true
	} else {
		delete(c.online, uid)
	}
	v, ok := c.byUID[uid]
	c.mu.Unlock()
	if ok && v.Spec.CheckInInterval() == 0 {
		c.notifyAll(v.Name)
	}
}

// Subscribe subscribes to names of Clusters that changed, came, went, or whose stream did.
func (c *ClusterTable) Subscribe(fn func(name string)) { c.addSubscriber(fn) }

func (c *ClusterTable) put(obj client.Object) {
	v := obj.(*v1alpha1.Cluster)
	stored, recounted := c.replaceClusterUnlessOlder(v)
	defer c.setChanges.notifyEach(recounted) // also when another subscriber panics
	if stored {
		c.notifyAll(v.Name)
	}
}

// replaceClusterUnlessOlder stores a Cluster, and returns the ClusterSets whose number of clusters
// changed. It stores nothing where the table has a later version.
func (c *ClusterTable) replaceClusterUnlessOlder(v *v1alpha1.Cluster) (stored bool, recounted []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.byName[v.Name]; ok {
		if isOlderVersion(v.ResourceVersion, old.ResourceVersion) {
			return false, nil
		}
		delete(c.byUID, string(old.UID))
	}
	c.byName[v.Name], c.byUID[string(v.UID)] = v, v
	was := c.membership.SetsOf(v.Name)
	if c.membership.PutCluster(v.Name, v.Labels) {
		recounted = slices.Concat(was, c.membership.SetsOf(v.Name))
	}
	return true, recounted
}

func (c *ClusterTable) removeObject(obj client.Object) {
	var left []string
	runLocked(&c.mu, func() {
		if old, ok := c.byName[obj.GetName()]; ok && old.UID == obj.GetUID() {
			delete(c.byName, old.Name)
			left = c.membership.SetsOf(old.Name)
			c.membership.RemoveCluster(old.Name)
		}
		delete(c.byUID, string(obj.GetUID()))
	})
	defer c.setChanges.notifyEach(left)
	c.notifyAll(obj.GetName())
}
