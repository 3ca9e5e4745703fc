package state

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// Templates is the table of everything on the hub that may be a template: all
// kinds that can be listed and watched, custom ones too, but for what the hub's
// machinery makes by itself (Events, Leases, endpoints) and Atoll's own kinds.
//
// Kinds come and go with their CRDs. When a kind goes, its templates leave the
// table without a word to subscribers: that a list is gone says nothing about what
// users want.
type Templates struct {
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	rescan    chan struct{}

	mu      sync.RWMutex
	kinds   map[schema.GroupKind]*templateKind
	objects map[atoll.ItemKey]*unstructured.Unstructured
	byNS    map[string]map[atoll.ItemKey]struct{}
	notifier[atoll.ItemKey]
	scans notifier[struct{}]
}

type templateKind struct {
	resource   schema.GroupVersionResource
	namespaced bool
	synced     toolscache.InformerSynced
	stop       context.CancelFunc
	failure    error // of the last list or watch; guarded by the table's lock
}

func newTemplates(dyn dynamic.Interface, disco discovery.DiscoveryInterface) *Templates {
	return &Templates{
		dynamic: dyn, discovery: disco, rescan: make(chan struct{}, 1),
		kinds:   map[schema.GroupKind]*templateKind{},
		objects: map[atoll.ItemKey]*unstructured.Unstructured{},
		byNS:    map[string]map[atoll.ItemKey]struct{}{},
	}
}

// Get a template; shared, not to be changed.
func (t *Templates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.objects[key]
	return o, ok
}

// InNamespace lists the templates of a namespace by key.
func (t *Templates) InNamespace(ns string) []*unstructured.Unstructured {
	t.mu.RLock()
	defer t.mu.RUnlock()
	keys := slices.SortedFunc(maps.Keys(t.byNS[ns]), atoll.ItemKey.Compare)
	out := make([]*unstructured.Unstructured, 0, len(keys))
	for _, k := range keys {
		out = append(out, t.objects[k])
	}
	return out
}

// OfKind lists the templates of a kind in a namespace, or of those in none, in no order.
func (t *Templates) OfKind(gk schema.GroupKind, ns string) (out []*unstructured.Unstructured) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k := range t.byNS[ns] {
		if k.Kind == gk.Kind && k.Group == gk.Group {
			out = append(out, t.objects[k])
		}
	}
	return out
}

// ClusterScoped lists the cluster-scoped templates by key.
func (t *Templates) ClusterScoped() []*unstructured.Unstructured { return t.InNamespace("") }

// Synced tells whether the kind's templates are all in the table. A kind that the
// hub does not serve is not synced.
func (t *Templates) Synced(group, kind string) bool {
	t.mu.RLock()
	k, ok := t.kinds[schema.GroupKind{Group: group, Kind: kind}]
	t.mu.RUnlock()
	return ok && k.synced()
}

// Unread says why the kind's templates are not all in the table; nil when they are.
func (t *Templates) Unread(group, kind string) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.kinds[schema.GroupKind{Group: group, Kind: kind}]
	switch {
	case !ok:
		return errNotServed
	case k.synced():
		return nil
	case k.failure == nil:
		return errReading
	}
	return k.failure
}

var (
	errNotServed = errors.New("the hub does not serve this kind")
	errReading   = errors.New("the hub is still reading them")
)

// UnreadKinds that the hub serves, in no order.
func (t *Templates) UnreadKinds() []schema.GroupKind {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []schema.GroupKind
	for gk, k := range t.kinds {
		if !k.synced() {
			out = append(out, gk)
		}
	}
	return out
}

// AllSynced tells whether every kind that the hub serves is synced.
func (t *Templates) AllSynced() bool {
	t.mu.RLock()
	all := slices.Collect(maps.Values(t.kinds))
	t.mu.RUnlock()
	return len(all) > 0 && !slices.ContainsFunc(all, func(k *templateKind) bool { return !k.synced() })
}

// Resource gives the resource under which the hub serves the key's kind.
func (t *Templates) Resource(key atoll.ItemKey) (schema.GroupVersionResource, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.kinds[schema.GroupKind{Group: key.Group, Kind: key.Kind}]
	if !ok {
		return schema.GroupVersionResource{}, false
	}
	return k.resource, true
}

// Namespaced tells whether the kind is namespaced; known is false for kinds that
// the hub does not serve.
func (t *Templates) Namespaced(group, kind string) (namespaced, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.kinds[schema.GroupKind{Group: group, Kind: kind}]
	return ok && k.namespaced, ok
}

// Subscribe to keys of templates that changed, came or went.
func (t *Templates) Subscribe(fn func(key atoll.ItemKey)) { t.subscribe(fn) }

// SubscribeSync to changes in which kinds are there and synced.
func (t *Templates) SubscribeSync(fn func()) { t.scans.subscribe(func(struct{}) { fn() }) }

// put and drop hear of CRDs: the kinds may have changed.
func (t *Templates) put(client.Object)  { t.wake() }
func (t *Templates) drop(client.Object) { t.wake() }

func (t *Templates) wake() {
	select {
	case t.rescan <- struct{}{}:
	default:
	}
}

// run looks what the hub serves, whenever CRDs changed; a look that found less than
// all is repeated, since a CRD is served a moment after it is stored.
func (t *Templates) run(ctx context.Context) {
	backoff := func() wait.Backoff {
		return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: 6, Cap: 10 * time.Second}
	}
	b, again := backoff(), time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.rescan:
			b = backoff()
		case <-again.C:
		}
		complete := t.scan(ctx)
		if !complete || b.Steps > 0 {
			again.Reset(b.Step())
		}
	}
}

// scan starts watches of new kinds and stops those of kinds that are gone; only a
// complete look may stop any.
func (t *Templates) scan(ctx context.Context) (complete bool) {
	lists, err := discovery.ServerPreferredResources(t.discovery)
	complete = err == nil
	found := map[schema.GroupKind]bool{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			gk := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "watch") || !slices.Contains(r.Verbs, "list") || NeverTemplate(gk) {
				continue
			}
			found[gk] = true
			t.start(ctx, gk, gv.WithResource(r.Name), r.Namespaced)
		}
	}
	if complete {
		t.retain(found)
	}
	return complete
}

func (t *Templates) start(ctx context.Context, gk schema.GroupKind, gvr schema.GroupVersionResource, namespaced bool) {
	t.mu.RLock()
	old, ok := t.kinds[gk]
	t.mu.RUnlock()
	if ok && old.resource == gvr && old.namespaced == namespaced {
		return
	}
	if ok {
		old.stop()
	}
	inf := dynamicinformer.NewFilteredDynamicInformer(t.dynamic, gvr, "", 0, toolscache.Indexers{}, nil).Informer()
	reg, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.store(gk, o) },
		UpdateFunc: func(_, o any) { t.store(gk, o) },
		DeleteFunc: func(o any) { t.forget(gk, o) },
	})
	if err != nil {
		return
	}
	kctx, stop := context.WithCancel(ctx)
	kind := &templateKind{resource: gvr, namespaced: namespaced, synced: reg.HasSynced, stop: stop}
	err = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		t.mu.Lock()
		kind.failure = err
		t.mu.Unlock()
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		stop()
		return
	}
	t.mu.Lock()
	t.kinds[gk] = kind
	t.mu.Unlock()
	go inf.RunWithContext(kctx)
	go func() {
		if toolscache.WaitForCacheSync(kctx.Done(), reg.HasSynced) {
			t.scans.notify(struct{}{})
		}
	}()
}

// retain stops the watches of kinds that are not in found.
func (t *Templates) retain(found map[schema.GroupKind]bool) {
	t.mu.Lock()
	gone := map[schema.GroupKind]bool{}
	for gk, k := range t.kinds {
		if !found[gk] {
			k.stop()
			gone[gk] = true
			delete(t.kinds, gk)
		}
	}
	if len(gone) > 0 {
		for key := range t.objects {
			if gone[schema.GroupKind{Group: key.Group, Kind: key.Kind}] {
				t.remove(key)
			}
		}
	}
	t.mu.Unlock()
	if len(gone) > 0 {
		t.scans.notify(struct{}{})
	}
}

func (t *Templates) store(gk schema.GroupKind, obj any) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	key := keyOf(gk, o)
	t.mu.Lock()
	if _, served := t.kinds[gk]; !served {
		t.mu.Unlock()
		return
	}
	t.objects[key] = o
	if t.byNS[key.Namespace] == nil {
		t.byNS[key.Namespace] = map[atoll.ItemKey]struct{}{}
	}
	t.byNS[key.Namespace][key] = struct{}{}
	t.mu.Unlock()
	t.notify(key)
}

func (t *Templates) forget(gk schema.GroupKind, obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	key := keyOf(gk, o)
	t.mu.Lock()
	if _, served := t.kinds[gk]; !served {
		t.mu.Unlock()
		return
	}
	t.remove(key)
	t.mu.Unlock()
	t.notify(key)
}

func (t *Templates) remove(key atoll.ItemKey) {
	delete(t.objects, key)
	if by := t.byNS[key.Namespace]; len(by) > 1 {
		delete(by, key)
	} else {
		delete(t.byNS, key.Namespace)
	}
}

func keyOf(gk schema.GroupKind, o *unstructured.Unstructured) atoll.ItemKey {
	return atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// NeverTemplate tells of kinds that no policy and no annotation can place: the hub's
// own, and what machinery makes and unmakes by itself.
func NeverTemplate(gk schema.GroupKind) bool {
	return atoll.OwnKind(gk) || interpret.Machinery(gk)
}
