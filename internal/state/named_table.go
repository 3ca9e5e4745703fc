package state

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
)

// NamespaceTable is the table of the hub's namespaces.
type NamespaceTable struct{ namedTable[*corev1.Namespace] }

// CustomizationTable is the table of Karmada's ResourceInterpreterCustomizations.
type CustomizationTable struct {
	namedTable[*karmada.ResourceInterpreterCustomization]
}

// LivingVersion returns the version of a namespace; false: it is not there, or is being deleted.
func (t *NamespaceTable) LivingVersion(name string) (string, bool) {
	ns, ok := t.Get(name)
	if !ok || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return "", false
	}
	return ns.ResourceVersion, true
}

func newNamespaces() *NamespaceTable {
	return &NamespaceTable{namedTable[*corev1.Namespace]{byName: map[string]*corev1.Namespace{}}}
}

func newCustomizations() *CustomizationTable {
	return &CustomizationTable{namedTable[*karmada.ResourceInterpreterCustomization]{byName: map[string]*karmada.ResourceInterpreterCustomization{}}}
}

// namedTable is the table of a cluster-scoped kind.
type namedTable[T client.Object] struct {
	mu     sync.RWMutex
	byName map[string]T
	notifier[string]
}

// Get returns the object of that name.
func (t *namedTable[T]) Get(name string) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.byName[name]
	return o, ok
}

// List lists the names of all.
func (t *namedTable[T]) List() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.byName))
}

// Subscribe subscribes to names of those that changed, came or went.
func (t *namedTable[T]) Subscribe(fn func(name string)) { t.addSubscriber(fn) }

func (t *namedTable[T]) put(obj client.Object) {
	t.mu.Lock()
	t.byName[obj.GetName()] = obj.(T)
	t.mu.Unlock()
	t.notifyAll(obj.GetName())
}

func (t *namedTable[T]) removeObject(obj client.Object) {
	t.mu.Lock()
	delete(t.byName, obj.GetName())
	t.mu.Unlock()
	t.notifyAll(obj.GetName())
}
