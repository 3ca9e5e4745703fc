package state

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
)

// RolloutStrategy is a RolloutStrategy or, without a namespace, a ClusterRolloutStrategy.
type RolloutStrategy struct {
	Meta   metav1.ObjectMeta
	Spec   v1alpha1.ClusterRolloutStrategySpec
	Status v1alpha1.ClusterRolloutStrategyStatus
}

// Key returns the key of the strategy.
func (s RolloutStrategy) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Meta.Namespace, Name: s.Meta.Name}
}

// ToObject returns the strategy as an API object; a deep copy.
func (s RolloutStrategy) ToObject() client.Object {
	if s.Meta.Namespace == "" {
		return (&v1alpha1.ClusterRolloutStrategy{ObjectMeta: s.Meta, Spec: s.Spec, Status: s.Status}).DeepCopy()
	}
	return (&v1alpha1.RolloutStrategy{ObjectMeta: s.Meta, Spec: s.Spec.Rollout, Status: s.Status.RolloutStrategyStatus}).DeepCopy()
}

// strategyOf returns the strategy of an API object; false for any other kind.
func strategyOf(obj client.Object) (RolloutStrategy, bool) {
	switch s := obj.(type) {
	case *v1alpha1.RolloutStrategy:
		return RolloutStrategy{
			Meta: s.ObjectMeta, Spec: v1alpha1.ClusterRolloutStrategySpec{Rollout: s.Spec}, Status: v1alpha1.ClusterRolloutStrategyStatus{RolloutStrategyStatus: s.Status},
		}, true
	case *v1alpha1.ClusterRolloutStrategy:
		return RolloutStrategy{s.ObjectMeta, s.Spec, s.Status}, true
	}
	return RolloutStrategy{}, false
}

// RolloutStrategyTable is the table of RolloutStrategies and ClusterRolloutStrategies.
type RolloutStrategyTable struct {
	mu       sync.RWMutex
	byKey    map[types.NamespacedName]RolloutStrategy
	enforced rollout.Enforcement
	notifier[types.NamespacedName]
}

func newStrategies() *RolloutStrategyTable {
	return &RolloutStrategyTable{byKey: map[types.NamespacedName]RolloutStrategy{}}
}

// Get returns a strategy; an empty namespace means a ClusterRolloutStrategy.
func (t *RolloutStrategyTable) Get(key types.NamespacedName) (RolloutStrategy, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s, ok := t.byKey[key]
	return s, ok
}

// GetRollout returns the rollout of a strategy, which is not to be changed.
func (t *RolloutStrategyTable) GetRollout(key types.NamespacedName) (*v1alpha1.Rollout, bool) {
	s, ok := t.Get(key)
	if !ok {
		return nil, false
	}
	return &s.Spec.Rollout, true
}

// List lists all strategies by namespace and name.
func (t *RolloutStrategyTable) List() []RolloutStrategy {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.byKey), func(a, b RolloutStrategy) int { return compareNames(a.Key(), b.Key()) })
}

// ListEnforcedFor lists the ClusterRolloutStrategies that select a namespace with these labels, by name.
func (t *RolloutStrategyTable) ListEnforcedFor(namespaceLabels map[string]string) []string {
	t.mu.RLock()
	enforced := t.enforced
	t.mu.RUnlock()
	return enforced.ListFor(namespaceLabels) // the list is replaced, never changed
}

// Subscribe subscribes to strategies whose spec changed, that were added or deleted. Changes of their status are in the
// table and notify no subscriber.
func (t *RolloutStrategyTable) Subscribe(fn func(key types.NamespacedName)) { t.addSubscriber(fn) }

func (t *RolloutStrategyTable) put(obj client.Object) {
	s, ok := strategyOf(obj)
	if !ok {
		return
	}
	t.mu.Lock()
	old, had := t.byKey[s.Key()]
	t.byKey[s.Key()] = s
	isNews := !had || old.Meta.UID != s.Meta.UID || old.Meta.Generation != s.Meta.Generation
	if isNews && s.Meta.Namespace == "" {
		t.enforced = t.enforced.WithStrategy(s.Meta.Name, s.Spec.EnforcedFor)
	}
	t.mu.Unlock()
	if isNews {
		t.notifyAll(s.Key())
	}
}

func (t *RolloutStrategyTable) removeObject(obj client.Object) {
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	t.mu.Lock()
	delete(t.byKey, key)
	if key.Namespace == "" {
		t.enforced = t.enforced.WithStrategy(key.Name, nil)
	}
	t.mu.Unlock()
	t.notifyAll(key)
}

// SupposeWritten returns a copy of the table as it would be if the strategies among the objects were written: objects
// with a deletion timestamp are deleted. It notifies no subscriber and does not follow the original.
func (t *RolloutStrategyTable) SupposeWritten(written ...client.Object) *RolloutStrategyTable {
	out := newStrategies()
	t.mu.RLock()
	out.byKey, out.enforced = maps.Clone(t.byKey), t.enforced
	t.mu.RUnlock()
	for _, o := range written {
		s, ok := strategyOf(o)
		if !ok {
			continue
		}
		if delete(out.byKey, s.Key()); o.GetDeletionTimestamp() != nil {
			out.removeObject(o)
		} else {
			out.put(o)
		}
	}
	return out
}
