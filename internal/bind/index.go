package bind

import (
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
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

// decides who places an object that holder places now; nil: nobody does.
func (b *Binder) decides(sub claim.Subject, holder *v1alpha1.BundleSource) claim.Decision {
	ns := b.namespaceOf(sub.Key.Namespace)
	b.index.mu.RLock()
	defer b.index.mu.RUnlock()
	return claim.Decide(&b.index.Index, sub, ns, holder)
}
