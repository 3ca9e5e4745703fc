package binder

import (
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// policyIndex is a policymatch.PolicyIndex that many goroutines may read while one changes it. The zero
// value is empty.
type policyIndex struct {
	mu sync.RWMutex
	policymatch.PolicyIndex
}

func (x *policyIndex) setClusterPolicies(list []*v1alpha1.ClusterPropagationPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.PolicyIndex.SetClusterPolicies(list)
}

func (x *policyIndex) setNamespacePolicies(ns string, list []*v1alpha1.PropagationPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.PolicyIndex.SetNamespacePolicies(ns, list)
}

func (x *policyIndex) setPolicy(key PolicyKey, now *policymatch.CompiledPolicy) (was *policymatch.CompiledPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.PolicyIndex.SetPolicy(key.Kind, key.Namespace, key.Name, now)
}

func (x *policyIndex) setHubDefault(d *v1alpha1.DefaultPlacement) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.PolicyIndex.SetHubDefault(d)
}

// decidePlacingSource returns the source that places an object, and whether a Bundle holds it already.
func (b *Binder) decidePlacingSource(sub policymatch.Subject) (d policymatch.Decision, held bool) {
	_, holder := b.ownership.findHolder(sub.Key)
	if sub.Controller != "" && b.childrenFollowParents() {
		return policymatch.DecideWithParents(parentTables{b}, sub), holder != nil
	}
	return b.decideWithoutParent(sub), holder != nil
}

// decideWithoutParent returns the source that places an object, without regard to its parent. Policies and
// templates come by separate watches, in any order. A claim that no cluster has received yet is
// therefore decided as if there were none. One `kubectl apply` then ends with the same owner in
// either order.
func (b *Binder) decideWithoutParent(sub policymatch.Subject) policymatch.Decision {
	_, holder := b.ownership.findHolder(sub.Key)
	d := b.decideWithHolder(sub, holder)
	if !d.IsOutranked() || b.wasDelivered(sub.Key) {
		return d
	}
	return b.decideWithHolder(sub, nil)
}

// wasDelivered reports whether an agent has received the object from a Bundle that holds it.
// Content from before the start of this process counts as received.
func (b *Binder) wasDelivered(key atoll.ItemKey) bool {
	for _, a := range b.ownership.ownItemArrivals(key) {
		if a.sinceRevision == 0 {
			return true
		}
		for _, row := range b.Rows.ListOfBundle(a.uid) {
			// Each Revision raises the generation of a row. A report of an earlier generation
			// than the Revision that added the object does not cover it.
			later := atoll.RevisionNumber(row.Spec.Revision) - a.sinceRevision
			if row.Status != nil && later >= 0 && row.Status.Generation >= row.Spec.Generation-later {
				return true
			}
		}
	}
	return false
}

// decideWithHolder returns the source that places an object; holder places it now, nil: none
// does.
func (b *Binder) decideWithHolder(sub policymatch.Subject, holder *v1alpha1.BundleSource) policymatch.Decision {
	ns := b.namespaceOf(sub.Key.Namespace)
	b.index.mu.RLock()
	defer b.index.mu.RUnlock()
	return policymatch.DecidePolicy(&b.index.PolicyIndex, sub, ns, holder)
}
