package state

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/wakeup"
)

// TemplateTable is the table of everything on the hub that may be a template: all
// kinds that can be listed and watched, custom ones too, but for what the hub's
// machinery makes by itself (Events, Leases, endpoints) and Atoll's own kinds.
//
// Kinds come and go with their CRDs. When a kind is removed, its templates leave the table
// without a notification: a missing list is no intent of users.
type TemplateTable struct {
	log       *slog.Logger
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	rescan    chan struct{}

	mu          sync.RWMutex
	kinds       map[schema.GroupKind]*templateKind
	objects     map[atoll.ItemKey]*unstructured.Unstructured
	byNamespace map[string]map[atoll.ItemKey]struct{}
	notifier[atoll.ItemKey]
	syncNotifier notifier[struct{}]
}

type templateKind struct {
	resource   schema.GroupVersionResource
	namespaced bool
	synced     toolscache.InformerSynced
	stop       context.CancelFunc
	watchError error // of the last list or watch; guarded by the table's lock
}

func newTemplates(dyn dynamic.Interface, disco discovery.DiscoveryInterface, log *slog.Logger) *TemplateTable {
	return &TemplateTable{
		log: log, dynamic: dyn, discovery: disco, rescan: make(chan struct{}, 1),
		kinds:       map[schema.GroupKind]*templateKind{},
		objects:     map[atoll.ItemKey]*unstructured.Unstructured{},
		byNamespace: map[string]map[atoll.ItemKey]struct{}{},
	}
}

// Get returns a template; shared, not to be changed.
func (t *TemplateTable) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.objects[key]
	return o, ok
}

// InNamespace lists the templates of a namespace by key.
func (t *TemplateTable) InNamespace(ns string) []*unstructured.Unstructured {
	t.mu.RLock()
	defer t.mu.RUnlock()
	keys := slices.SortedFunc(maps.Keys(t.byNamespace[ns]), atoll.ItemKey.Compare)
	out := make([]*unstructured.Unstructured, 0, len(keys))
	for _, k := range keys {
		out = append(out, t.objects[k])
	}
	return out
}

// ListOfKind lists the templates of a kind in a namespace, or of those in none, in no order.
func (t *TemplateTable) ListOfKind(gk schema.GroupKind, ns string) (out []*unstructured.Unstructured) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k := range t.byNamespace[ns] {
		if k.Kind == gk.Kind && k.Group == gk.Group {
			out = append(out, t.objects[k])
		}
	}
	return out
}

// ClusterScoped lists the cluster-scoped templates by key.
func (t *TemplateTable) ClusterScoped() []*unstructured.Unstructured { return t.InNamespace("") }

// IsSynced reports whether the kind's templates are all in the table. A kind that the
// hub does not serve is not synced.
func (t *TemplateTable) IsSynced(group, kind string) bool {
	t.mu.RLock()
	k, ok := t.kinds[schema.GroupKind{Group: group, Kind: kind}]
	t.mu.RUnlock()
	return ok && k.synced()
}

// UnreadReason returns why the kind's templates are not all in the table; nil when they are.
func (t *TemplateTable) UnreadReason(group, kind string) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.kinds[schema.GroupKind{Group: group, Kind: kind}]
	switch {
	case !ok:
		return errNotServed
	case k.synced():
		return nil
	case k.watchError == nil:
		return errStillReading
	}
	return k.watchError
}

var (
	errNotServed    = errors.New("the hub does not serve this kind")
	errStillReading = errors.New("the hub is still reading them")
)

// UnreadKinds lists the kinds of which not all templates are read yet, in no order.
func (t *TemplateTable) UnreadKinds() []schema.GroupKind {
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

// ResourceOfKey returns the resource under which the hub serves the key's kind.
func (t *TemplateTable) ResourceOfKey(key atoll.ItemKey) (schema.GroupVersionResource, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.kinds[schema.GroupKind{Group: key.Group, Kind: key.Kind}]
	if !ok {
		return schema.GroupVersionResource{}, false
	}
	return k.resource, true
}

// FindCRD returns the CRD of a kind; nil means that the kind has none.
func (t *TemplateTable) FindCRD(gk schema.GroupKind) *unstructured.Unstructured {
	gvr, ok := t.ResourceOfKey(atoll.ItemKey{Group: gk.Group, Kind: gk.Kind})
	if !ok {
		return nil
	}
	crd, _ := t.Get(atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: gvr.GroupResource().String()})
	return crd
}

// IsNamespaced reports whether the kind is namespaced; known is false for kinds that
// the hub does not serve.
func (t *TemplateTable) IsNamespaced(group, kind string) (namespaced, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	k, ok := t.kinds[schema.GroupKind{Group: group, Kind: kind}]
	return ok && k.namespaced, ok
}

// Subscribe subscribes to keys of templates that changed, came or went.
func (t *TemplateTable) Subscribe(fn func(key atoll.ItemKey)) { t.addSubscriber(fn) }

// SubscribeSync subscribes to changes in which kinds are there and synced.
func (t *TemplateTable) SubscribeSync(fn func()) {
	t.syncNotifier.addSubscriber(func(struct{}) { fn() })
}

// put and drop receive CRDs: the kinds may have changed.
func (t *TemplateTable) put(client.Object)          { t.requestRescan() }
func (t *TemplateTable) removeObject(client.Object) { t.requestRescan() }

func (t *TemplateTable) requestRescan() { wakeup.WakeReader(t.rescan) }

// watchKinds looks what the hub serves, whenever CRDs changed; a look that found less than
// all is repeated, since a CRD is served a moment after it is stored.
func (t *TemplateTable) watchKinds(ctx context.Context) {
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
		complete := t.scanKinds(ctx)
		if !complete || b.Steps > 0 {
			again.Reset(b.Step())
		}
	}
}

// scanKinds starts watches of new kinds and stops those of kinds that are gone; only a
// complete look may stop any.
func (t *TemplateTable) scanKinds(ctx context.Context) (complete bool) {
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
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "watch") || !slices.Contains(r.Verbs, "list") || IsNeverTemplate(gk) {
				continue
			}
			found[gk] = true
			t.startWatch(ctx, gk, gv.WithResource(r.Name), r.Namespaced)
		}
	}
	if complete {
		t.stopRemovedKinds(found)
	}
	return complete
}

func (t *TemplateTable) startWatch(ctx context.Context, gk schema.GroupKind, gvr schema.GroupVersionResource, namespaced bool) {
	t.mu.RLock()
	old, ok := t.kinds[gk]
	t.mu.RUnlock()
	if ok && old.resource == gvr && old.namespaced == namespaced {
		return
	}
	if ok {
		old.stop()
	}
	inf := dynamicinformer.NewFilteredDynamicInformer(t.dynamic, gvr, "", 0, toolscache.Indexers{}, watchOptionsFor(gk)).Informer()
	kctx, stop := context.WithCancel(ctx)
	table := newPanicSafeTable(gk.String(), func(o any) { t.storeTemplate(gk, o) }, func(o any) { t.dropTemplateRecords(gk, o) }, t.log)
	reg, err := inf.AddEventHandler(table.eventHandler(kctx))
	if err != nil {
		stop()
		return
	}
	synced := table.syncedAfter(reg.HasSynced)
	kind := &templateKind{resource: gvr, namespaced: namespaced, synced: synced, stop: stop}
	err = inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		t.mu.Lock()
		kind.watchError = err
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
		if toolscache.WaitForCacheSync(kctx.Done(), synced) {
			t.syncNotifier.notifyAll(struct{}{})
		}
	}()
}

// watchOptionsFor returns what a watch of a kind leaves out: Secrets that keep contents for undo are never
// placed, and would be in memory a second time.
func watchOptionsFor(gk schema.GroupKind) dynamicinformer.TweakListOptionsFunc {
	if gk != (schema.GroupKind{Kind: "Secret"}) {
		return nil
	}
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("type", atoll.SecretTypeUndo).String()
	}
}

// stopRemovedKinds stops the watches of kinds that are not in found.
func (t *TemplateTable) stopRemovedKinds(found map[schema.GroupKind]bool) {
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
				t.removeLocked(key)
			}
		}
	}
	t.mu.Unlock()
	if len(gone) > 0 {
		t.syncNotifier.notifyAll(struct{}{})
	}
}

func (t *TemplateTable) storeTemplate(gk schema.GroupKind, obj any) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	key := itemKeyOf(gk, o)
	t.mu.Lock()
	if _, served := t.kinds[gk]; !served {
		t.mu.Unlock()
		return
	}
	t.objects[key] = o
	if t.byNamespace[key.Namespace] == nil {
		t.byNamespace[key.Namespace] = map[atoll.ItemKey]struct{}{}
	}
	t.byNamespace[key.Namespace][key] = struct{}{}
	t.mu.Unlock()
	t.notifyAll(key)
}

func (t *TemplateTable) dropTemplateRecords(gk schema.GroupKind, obj any) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	key := itemKeyOf(gk, o)
	t.mu.Lock()
	if _, served := t.kinds[gk]; !served {
		t.mu.Unlock()
		return
	}
	t.removeLocked(key)
	t.mu.Unlock()
	t.notifyAll(key)
}

func (t *TemplateTable) removeLocked(key atoll.ItemKey) {
	delete(t.objects, key)
	if by := t.byNamespace[key.Namespace]; len(by) > 1 {
		delete(by, key)
	} else {
		delete(t.byNamespace, key.Namespace)
	}
}

func itemKeyOf(gk schema.GroupKind, o *unstructured.Unstructured) atoll.ItemKey {
	return atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// IsNeverTemplate reports whether no policy and no annotation can place a kind: the hub's own
// kinds, and those that controllers create and delete by themselves.
func IsNeverTemplate(gk schema.GroupKind) bool {
	return atoll.IsHubOwnedKind(gk) || kinds.IsClusterGenerated(gk)
}
