package state

import (
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Bundle is a Bundle or, without a namespace, a ClusterBundle.
type Bundle struct {
	Ref    enginev1.BundleRef
	Meta   metav1.ObjectMeta
	Spec   v1alpha1.BundleSpec
	Status v1alpha1.BundleStatus
}

// BundleOf returns the Bundle of an API object; false for any other kind.
func BundleOf(obj client.Object) (Bundle, bool) {
	switch b := obj.(type) {
	case *v1alpha1.Bundle:
		return Bundle{Ref: bundleRefOf(b), Meta: b.ObjectMeta, Spec: b.Spec, Status: b.Status}, true
	case *v1alpha1.ClusterBundle:
		return Bundle{Ref: bundleRefOf(b), Meta: b.ObjectMeta, Spec: b.Spec, Status: b.Status}, true
	}
	return Bundle{}, false
}

func bundleRefOf(o client.Object) enginev1.BundleRef {
	return enginev1.BundleRef{UID: string(o.GetUID()), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// ToObject returns the Bundle as an API object; a deep copy.
func (b Bundle) ToObject() client.Object {
	if b.Ref.Namespace == "" {
		return (&v1alpha1.ClusterBundle{ObjectMeta: b.Meta, Spec: b.Spec, Status: b.Status}).DeepCopy()
	}
	return (&v1alpha1.Bundle{ObjectMeta: b.Meta, Spec: b.Spec, Status: b.Status}).DeepCopy()
}

// BundleTable is the table of Bundles and ClusterBundles.
type BundleTable struct {
	mu              sync.RWMutex
	byUID           map[string]Bundle
	uidByName       map[[2]string]string
	uidsByNamespace map[string]map[string]struct{} // UIDs
	notifier[string]
}

func newBundles() *BundleTable {
	return &BundleTable{byUID: map[string]Bundle{}, uidByName: map[[2]string]string{}, uidsByNamespace: map[string]map[string]struct{}{}}
}

// Get returns a Bundle by UID.
func (t *BundleTable) Get(uid string) (Bundle, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b, ok := t.byUID[uid]
	return b, ok
}

// GetByName gets a Bundle; an empty namespace means a ClusterBundle.
func (t *BundleTable) GetByName(ns, name string) (Bundle, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	b, ok := t.byUID[t.uidByName[[2]string{ns, name}]]
	return b, ok
}

// List lists all Bundles by namespace and name.
func (t *BundleTable) List() []Bundle {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]Bundle, 0, len(t.byUID))
	for _, b := range t.byUID {
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b Bundle) int {
		if c := strings.Compare(a.Ref.Namespace, b.Ref.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Ref.Name, b.Ref.Name)
	})
	return out
}

// EachName calls fn with the reference and the source of each Bundle, in no order. fn must not block, nor read the table.
func (t *BundleTable) EachName(fn func(ref enginev1.BundleRef, source v1alpha1.BundleSource)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for uid := range t.byUID { // the value of the loop would copy the whole Bundle
		fn(t.byUID[uid].Ref, t.byUID[uid].Spec.Source)
	}
}

// Len is how many Bundles and ClusterBundles there are.
func (t *BundleTable) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byUID)
}

// InNamespace lists the Bundles of a namespace by name, ClusterBundles for "".
func (t *BundleTable) InNamespace(ns string) []Bundle {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]Bundle, 0, len(t.uidsByNamespace[ns]))
	for uid := range t.uidsByNamespace[ns] {
		out = append(out, t.byUID[uid])
	}
	slices.SortFunc(out, func(a, b Bundle) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
	return out
}

// Put stores what a writer got back from the API server, so that it reads its own write.
func (t *BundleTable) Put(obj client.Object) { t.put(obj) }

// Subscribe subscribes to UIDs of Bundles that changed, came or went.
func (t *BundleTable) Subscribe(fn func(uid string)) { t.addSubscriber(fn) }

func (t *BundleTable) put(obj client.Object) {
	b, ok := BundleOf(obj)
	if !ok {
		return
	}
	t.mu.Lock()
	if old, had := t.byUID[b.Ref.UID]; had && !isOlderVersion(old.Meta.ResourceVersion, b.Meta.ResourceVersion) {
		t.mu.Unlock()
		return
	}
	t.byUID[b.Ref.UID] = b
	t.uidByName[[2]string{b.Ref.Namespace, b.Ref.Name}] = b.Ref.UID
	if t.uidsByNamespace[b.Ref.Namespace] == nil {
		t.uidsByNamespace[b.Ref.Namespace] = map[string]struct{}{}
	}
	t.uidsByNamespace[b.Ref.Namespace][b.Ref.UID] = struct{}{}
	t.mu.Unlock()
	t.notifyAll(b.Ref.UID)
}

func (t *BundleTable) removeObject(obj client.Object) {
	uid, name := string(obj.GetUID()), [2]string{obj.GetNamespace(), obj.GetName()}
	t.mu.Lock()
	delete(t.byUID, uid)
	if by := t.uidsByNamespace[obj.GetNamespace()]; len(by) > 1 {
		delete(by, uid)
	} else if _, last := by[uid]; last {
		delete(t.uidsByNamespace, obj.GetNamespace())
	}
	if t.uidByName[name] == uid {
		delete(t.uidByName, name)
	}
	t.mu.Unlock()
	t.notifyAll(uid)
}
