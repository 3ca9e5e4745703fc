package state

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Placement is a Placement or, without a namespace, a ClusterPlacement.
type Placement struct {
	Meta   metav1.ObjectMeta
	Spec   v1alpha1.PlacementSpec
	Status v1alpha1.PlacementStatus
}

// Key returns the key of the Placement.
func (p Placement) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Meta.Namespace, Name: p.Meta.Name}
}

// ToObject returns the Placement as an API object; a deep copy.
func (p Placement) ToObject() client.Object {
	if p.Meta.Namespace == "" {
		return (&v1alpha1.ClusterPlacement{ObjectMeta: p.Meta, Spec: p.Spec, Status: p.Status}).DeepCopy()
	}
	return (&v1alpha1.Placement{ObjectMeta: p.Meta, Spec: p.Spec, Status: p.Status}).DeepCopy()
}

// Decision is a PlacementDecision or, without a namespace, a ClusterPlacementDecision.
type Decision struct {
	Meta   metav1.ObjectMeta
	Status v1alpha1.PlacementDecisionStatus
}

// SequenceNumber returns the number of the Decision among those of its Placement, from 1; 0 for one that the hub did
// not make.
func (d Decision) SequenceNumber() int {
	n, err := strconv.Atoi(d.Meta.Labels[v1alpha1.LabelDecision])
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// ToObject returns the Decision as an API object; a deep copy.
func (d Decision) ToObject() client.Object {
	if d.Meta.Namespace == "" {
		return (&v1alpha1.ClusterPlacementDecision{ObjectMeta: d.Meta, Status: d.Status}).DeepCopy()
	}
	return (&v1alpha1.PlacementDecision{ObjectMeta: d.Meta, Status: d.Status}).DeepCopy()
}

// DecisionOf returns the Decision of an API object; false for any other kind.
func DecisionOf(obj client.Object) (Decision, bool) {
	switch d := obj.(type) {
	case *v1alpha1.PlacementDecision:
		return Decision{d.ObjectMeta, d.Status}, true
	case *v1alpha1.ClusterPlacementDecision:
		return Decision{d.ObjectMeta, d.Status}, true
	}
	return Decision{}, false
}

func placementOf(obj client.Object) (Placement, bool) {
	switch p := obj.(type) {
	case *v1alpha1.Placement:
		return Placement{p.ObjectMeta, p.Spec, p.Status}, true
	case *v1alpha1.ClusterPlacement:
		return Placement{p.ObjectMeta, p.Spec, p.Status}, true
	}
	return Placement{}, false
}

// PlacementTable is the table of Placements and ClusterPlacements.
type PlacementTable struct {
	mu    sync.RWMutex
	byKey map[types.NamespacedName]Placement
	notifier[types.NamespacedName]
}

func newPlacements() *PlacementTable {
	return &PlacementTable{byKey: map[types.NamespacedName]Placement{}}
}

// Get returns a Placement; an empty namespace means a ClusterPlacement.
func (t *PlacementTable) Get(key types.NamespacedName) (Placement, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	p, ok := t.byKey[key]
	return p, ok
}

// List lists all of them by namespace and name.
func (t *PlacementTable) List() []Placement {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.byKey), func(a, b Placement) int { return compareNames(a.Key(), b.Key()) })
}

// EachKey calls fn with the key of each Placement, in no order. fn must not block, nor read the table.
func (t *PlacementTable) EachKey(fn func(types.NamespacedName)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key := range t.byKey {
		fn(key)
	}
}

func compareNames(a, b types.NamespacedName) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// Subscribe subscribes to Placements whose spec changed, that must be rebalanced, that were added or
// deleted. Changes of their status are in the table and notify no subscriber.
func (t *PlacementTable) Subscribe(fn func(key types.NamespacedName)) { t.addSubscriber(fn) }

func (t *PlacementTable) put(obj client.Object) {
	p, ok := placementOf(obj)
	if !ok {
		return
	}
	t.mu.Lock()
	old, had := t.byKey[p.Key()]
	t.byKey[p.Key()] = p
	t.mu.Unlock()
	if !had || old.Meta.UID != p.Meta.UID || old.Meta.Generation != p.Meta.Generation ||
		old.Meta.Annotations[atoll.AnnotationRebalance] != p.Meta.Annotations[atoll.AnnotationRebalance] {
		t.notifyAll(p.Key())
	}
}

func (t *PlacementTable) removeObject(obj client.Object) {
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	t.mu.Lock()
	delete(t.byKey, key)
	t.mu.Unlock()
	t.notifyAll(key)
}

// DecisionTable is the table of what Placements chose, as it is published.
type DecisionTable struct {
	mu sync.RWMutex
	// byOwner: by the Placement that the label names, and by name.
	byOwner map[types.NamespacedName]map[string]Decision
	notifier[types.NamespacedName]
}

func newDecisions() *DecisionTable {
	return &DecisionTable{byOwner: map[types.NamespacedName]map[string]Decision{}}
}

// OfPlacement lists the Decisions of a Placement by their numbers.
func (t *DecisionTable) OfPlacement(key types.NamespacedName) []Decision {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.byOwner[key]), func(a, b Decision) int {
		if a.SequenceNumber() != b.SequenceNumber() {
			return a.SequenceNumber() - b.SequenceNumber()
		}
		return strings.Compare(a.Meta.Name, b.Meta.Name)
	})
}

// Put stores what a writer got back from the API server, so that it reads its own write.
func (t *DecisionTable) Put(obj client.Object) { t.put(obj) }

// Remove removes one that a writer deleted.
func (t *DecisionTable) Remove(obj client.Object) { t.removeObject(obj) }

// Subscribe subscribes to Placements of whose Decisions one changed, came or went.
func (t *DecisionTable) Subscribe(fn func(placement types.NamespacedName)) { t.addSubscriber(fn) }

func placementKeyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[v1alpha1.LabelPlacement]}
}

func (t *DecisionTable) put(obj client.Object) {
	d, ok := DecisionOf(obj)
	if !ok {
		return
	}
	key := placementKeyOf(obj)
	t.mu.Lock()
	old, had := t.byOwner[key][d.Meta.Name]
	if had && old.Meta.UID == d.Meta.UID && !isOlderVersion(old.Meta.ResourceVersion, d.Meta.ResourceVersion) {
		t.mu.Unlock()
		return
	}
	if t.byOwner[key] == nil {
		t.byOwner[key] = map[string]Decision{}
	}
	t.byOwner[key][d.Meta.Name] = d
	t.mu.Unlock()
	t.notifyAll(key)
}

func (t *DecisionTable) removeObject(obj client.Object) {
	key := placementKeyOf(obj)
	t.mu.Lock()
	old, had := t.byOwner[key][obj.GetName()]
	if had = had && old.Meta.UID == obj.GetUID(); had {
		if delete(t.byOwner[key], obj.GetName()); len(t.byOwner[key]) == 0 {
			delete(t.byOwner, key)
		}
	}
	t.mu.Unlock()
	if had {
		t.notifyAll(key)
	}
}
