package bind

import (
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
)

// policyIndex is an index that many may ask while one changes it. The zero value is empty.
type policyIndex struct {
	mu sync.RWMutex
	claim.Index
}

func (x *policyIndex) setCluster(list []*v1alpha1.ClusterPropagationPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Index.SetCluster(list)
}

func (x *policyIndex) setNamespace(ns string, list []*v1alpha1.PropagationPolicy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Index.SetNamespace(ns, list)
}

func (x *policyIndex) set(key policyKey, now *claim.Policy) (was *claim.Policy) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.Index.Set(key.kind, key.namespace, key.name, now)
}

// who places an object, and whether it is in a Bundle already. Policies and templates are
// heard of by watches of their own, in any order: a claim that nothing has come of yet in
// any cluster is decided as if there were none, so that what one `kubectl apply` brings
// ends with the same owner however it is heard.
func (b *Binder) who(sub claim.Subject) (d claim.Decision, held bool) {
	_, holder := b.claims.holder(sub.Key)
	d = b.decides(sub, holder)
	if holder == nil || !d.Outranked() || b.delivered(sub.Key) {
		return d, holder != nil
	}
	return b.decides(sub, nil), true
}

// delivered tells whether an agent has had the object of a Bundle that holds it. What was
// there before this hub began to look has been.
func (b *Binder) delivered(key atoll.ItemKey) bool {
	for _, a := range b.claims.arrivals(key) {
		if a.since == 0 {
			return true
		}
		for _, row := range b.Rows.OfBundle(a.uid) {
			// Each Revision moves the generation of a row: what was reported before that of
			// the Revision by which the object came says nothing of it.
			later := atoll.RevisionNumber(row.Spec.Revision) - a.since
			if row.Status != nil && later >= 0 && row.Status.Generation >= row.Spec.Generation-later {
				return true
			}
		}
	}
	return false
}

// decides who places an object that holder places now; nil: nobody does.
func (b *Binder) decides(sub claim.Subject, holder *v1alpha1.BundleSource) claim.Decision {
	ns := b.namespaceOf(sub.Key.Namespace)
	b.index.mu.RLock()
	defer b.index.mu.RUnlock()
	return claim.Decide(&b.index.Index, sub, ns, holder)
}
