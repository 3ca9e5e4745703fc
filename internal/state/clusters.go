package state

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// Clusters is the table of members, and of which of them can be counted on.
type Clusters struct {
	mu     sync.RWMutex
	byName map[string]*v1alpha1.Cluster
	byUID  map[string]*v1alpha1.Cluster
	online map[string]bool
	notifier[string]
}

func newClusters() *Clusters {
	return &Clusters{
		byName: map[string]*v1alpha1.Cluster{},
		byUID:  map[string]*v1alpha1.Cluster{},
		online: map[string]bool{},
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
	if v, ok := c.byUID[uid]; ok && v.Spec.CheckIn() > 0 {
		ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ClusterReady)
		return ready != nil && ready.Status != metav1.ConditionUnknown
	}
	return c.online[uid]
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
	c.mu.Unlock()
	c.notify(v.Name)
}

func (c *Clusters) drop(obj client.Object) {
	c.mu.Lock()
	if old, ok := c.byName[obj.GetName()]; ok && old.UID == obj.GetUID() {
		delete(c.byName, old.Name)
	}
	delete(c.byUID, string(obj.GetUID()))
	c.mu.Unlock()
	c.notify(obj.GetName())
}
