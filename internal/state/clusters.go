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

// Clusters is the table of members, of which of them can be counted on, and of which
// ClusterSets each is in.
type Clusters struct {
	mu     sync.RWMutex
	byName map[string]*v1alpha1.Cluster
	byUID  map[string]*v1alpha1.Cluster
	online map[string]bool
	// coming are those, by UID, that are only supposed, and counted on.
	coming map[string]bool
	sets   schedule.Membership
	notifier[string]
}

func newClusters() *Clusters {
	return &Clusters{
		byName: map[string]*v1alpha1.Cluster{},
		byUID:  map[string]*v1alpha1.Cluster{},
		online: map[string]bool{},
		sets:   schedule.NewMembership(),
	}
}

// Get a Cluster by name.
func (c *Clusters) Get(name string) (*v1alpha1.Cluster, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.byName[name]
	return v, ok
}

// ByUID gets a Cluster by its identity.
func (c *Clusters) ByUID(uid string) (*v1alpha1.Cluster, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.byUID[uid]
	return v, ok
}

// Len counts the Clusters.
func (c *Clusters) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.byName)
}

// List all Clusters by name.
func (c *Clusters) List() []*v1alpha1.Cluster {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*v1alpha1.Cluster, 0, len(c.byName))
	for _, v := range c.byName {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b *v1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Online tells whether the cluster of that UID can be counted on: it holds a stream,
// or it checks in and has not missed two check-ins.
func (c *Clusters) Online(uid string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.coming[uid] {
		return true
	}
	if v, ok := c.byUID[uid]; ok && v.Spec.CheckIn() > 0 {
		ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ClusterReady)
		return ready != nil && ready.Status != metav1.ConditionUnknown
	}
	return c.online[uid]
}

// Sets lists the ClusterSets that the cluster of that name is in, by name. It is shared.
func (c *Clusters) Sets(name string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sets.Sets(name)
}

// SetsOf lists the ClusterSets that a cluster with these labels would be in.
func (c *Clusters) SetsOf(labels map[string]string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sets.Of(labels)
}

// define a ClusterSet, or with nil take it away, and tell of the clusters that this
// brings in or out. Each cluster is compared once.
func (c *Clusters) define(name string, spec *v1alpha1.ClusterSetSelector) {
	c.mu.Lock()
	c.sets.Define(name, spec)
	var changed []string
	for cluster, v := range c.byName {
		if c.sets.Put(cluster, v.Labels) {
			changed = append(changed, cluster)
		}
	}
	c.mu.Unlock()
	slices.Sort(changed)
	for _, cluster := range changed {
		c.notify(cluster)
	}
}

// SetOnline is for the gateway: a stream came or went. That an agent checks in, or has
// done so, is no news: it changes nothing that anybody else sees.
func (c *Clusters) SetOnline(uid string, on bool) {
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
	if ok && v.Spec.CheckIn() == 0 {
		c.notify(v.Name)
	}
}

// Subscribe to names of Clusters that changed, came, went, or whose stream did.
func (c *Clusters) Subscribe(fn func(name string)) { c.subscribe(fn) }

func (c *Clusters) put(obj client.Object) {
	v := obj.(*v1alpha1.Cluster)
	c.mu.Lock()
	if old, ok := c.byName[v.Name]; ok {
		if older(v.ResourceVersion, old.ResourceVersion) {
			c.mu.Unlock()
			return
		}
		delete(c.byUID, string(old.UID))
	}
	c.byName[v.Name], c.byUID[string(v.UID)] = v, v
	c.sets.Put(v.Name, v.Labels)
	c.mu.Unlock()
	c.notify(v.Name)
}

func (c *Clusters) drop(obj client.Object) {
	c.mu.Lock()
	if old, ok := c.byName[obj.GetName()]; ok && old.UID == obj.GetUID() {
		delete(c.byName, old.Name)
		c.sets.Drop(old.Name)
	}
	delete(c.byUID, string(obj.GetUID()))
	c.mu.Unlock()
	c.notify(obj.GetName())
}
