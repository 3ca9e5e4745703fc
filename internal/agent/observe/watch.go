package observe

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
)

// Sink receives what is observed. It is called from several goroutines and must not
// block.
type Sink interface {
	// ObjectSeen: the object exists like this.
	ObjectSeen(v View)
	// ObjectLeft: the object left the watch; v is the last that was seen of it.
	ObjectLeft(v View)
	// ReconcileListed: a watch of the kind started, and found these.
	ReconcileListed(group, kind string, found map[atoll.ItemKey]bool)
	// JudgesOf by which the object of a Bundle is judged.
	JudgesOf(bundle string, key atoll.ItemKey) Judges
	// IsInterpreted reports whether scripts or rules judge objects of the kind.
	IsInterpreted(group, kind string) bool
}

// Observers are the Bundles that observe objects which they do not write.
type Observers interface {
	// ObserverOf returns the Bundle that observes an object; empty without one.
	ObserverOf(key atoll.ItemKey) (bundle string)
	// ObservedListed: a watch of all objects of the kind started, and found these of the observed ones.
	ObservedListed(group, kind string, found map[atoll.ItemKey]bool)
}

// Watcher runs one watch per kind, and another one for kinds of which objects without Atoll's label are
// observed. Start and Stop may be called from anywhere. Watches run between Run's begin and its end.
type Watcher struct {
	client    *member.Client
	sink      Sink
	observers Observers

	mu      sync.Mutex
	ctx     context.Context
	running sync.WaitGroup
	watches map[watchKey]*oneWatch
}

// watchKey distinguishes the watch of a kind's objects with Atoll's label from the watch of all.
type watchKey struct {
	schema.GroupKind
	unlabelled bool
}

type oneWatch struct {
	resource   member.Resource
	unlabelled bool
	stop       context.CancelFunc
}

// NewWatcher returns a Watcher without watches. Sink must be set before Run.
func NewWatcher(client *member.Client) *Watcher {
	return &Watcher{client: client, watches: map[watchKey]*oneWatch{}}
}

// Run runs the watches that were or will be started, for the sink and the observers, until ctx ends.
func (w *Watcher) Run(ctx context.Context, sink Sink, observers Observers) {
	w.mu.Lock()
	w.ctx, w.sink, w.observers = ctx, sink, observers
	for _, one := range w.watches {
		w.startWatch(one)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.mu.Lock() // a start that is under way ends first, and later ones start nothing
	w.ctx = nil
	w.mu.Unlock()
	w.running.Wait()
}

// Start starts watching the kind. A watch in another version goes on while the member
// serves that version.
func (w *Watcher) Start(res member.Resource) { w.startKind(res, false) }

// StartUnfiltered starts watching all objects of the kind for those that are observed, as Start does for
// objects with Atoll's label.
func (w *Watcher) StartUnfiltered(res member.Resource) { w.startKind(res, true) }

func (w *Watcher) startKind(res member.Resource, unlabelled bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := watchKey{schema.GroupKind{Group: res.Group, Kind: res.Kind}, unlabelled}
	if old := w.watches[key]; old != nil {
		_, served := w.client.APIs().LookupKind(old.resource.GVK())
		if served || old.resource == res {
			return
		}
		old.stop()
	}
	one := &oneWatch{resource: res, unlabelled: unlabelled, stop: func() {}}
	w.watches[key] = one
	w.startWatch(one)
}

// watchKeysOfKind returns the keys of the watches that a kind may have.
func watchKeysOfKind(group, kind string) [2]watchKey {
	gk := schema.GroupKind{Group: group, Kind: kind}
	return [2]watchKey{{gk, false}, {gk, true}}
}

// RelistKind reads all objects of the kind again, if it is watched: their judgement has changed.
func (w *Watcher) RelistKind(group, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range watchKeysOfKind(group, kind) {
		if old := w.watches[key]; old != nil {
			old.stop()
			one := &oneWatch{resource: old.resource, unlabelled: old.unlabelled, stop: func() {}}
			w.watches[key] = one
			w.startWatch(one)
		}
	}
}

// Stop stops watching the kind.
func (w *Watcher) Stop(group, kind string) {
	for _, key := range watchKeysOfKind(group, kind) {
		w.stopWatch(key)
	}
}

// StopUnfiltered stops watching the objects of the kind without Atoll's label.
func (w *Watcher) StopUnfiltered(group, kind string) { w.stopWatch(watchKeysOfKind(group, kind)[1]) }

func (w *Watcher) stopWatch(key watchKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.watches[key]; one != nil {
		one.stop()
		delete(w.watches, key)
	}
}

// startWatch starts the watch, if the Watcher runs. The caller holds mu.
func (w *Watcher) startWatch(one *oneWatch) {
	if w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	one.stop = stop
	w.running.Go(func() {
		defer stop()
		defer crash.RecoverContained(ctx)
		res := one.resource
		source, expected := w.kindSource(one)
		reflector := cache.NewReflectorWithOptions(source, expected, &viewForwarder{resource: res, sink: w.sink, observers: w.observers, unlabelled: one.unlabelled},
			cache.ReflectorOptions{Name: "atoll", TypeDescription: res.GVK().String()})
		reflector.RunWithContext(ctx)
	})
}

// kindSource lists and watches the kind's objects, all of them or those that carry our label.
func (w *Watcher) kindSource(one *oneWatch) (cache.ListerWatcher, runtime.Object) {
	res := one.resource
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		if !one.unlabelled {
			o.LabelSelector = atoll.LabelBundleUID
		}
		return o
	}
	if NeedsOnlyMetadata(res.Group, res.Kind) && !w.sink.IsInterpreted(res.Group, res.Kind) {
		at := w.client.MetadataClient().Resource(res.GroupVersionResource)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return at.List(ctx, selected(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return at.Watch(ctx, selected(o))
			},
		}, &metav1.PartialObjectMetadata{}
	}
	at := w.client.DynamicClient().Resource(res.GroupVersionResource)
	expected := &unstructured.Unstructured{}
	expected.SetGroupVersionKind(res.GVK())
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return at.List(ctx, selected(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return at.Watch(ctx, selected(o))
		},
	}, expected
}

// viewForwarder is the store of a reflector: it keeps nothing.
type viewForwarder struct {
	resource member.Resource
	sink     Sink
	// observers decide which objects count in a watch of all objects.
	observers Observers
	// unlabelled: only objects that are observed count.
	unlabelled bool
}

// reduced is a View on its way through a reflector, which needs a name.
type reduced struct {
	metav1.ObjectMeta
	view View
	// skipped: nothing observes the object, and the view has its key alone.
	skipped bool
}

// Transformer lets the reflector keep Views instead of objects while it lists.
func (r *viewForwarder) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		v, counts, err := r.reduceToView(obj)
		if err != nil {
			return obj, err
		}
		return &reduced{ObjectMeta: metav1.ObjectMeta{Namespace: v.Key.Namespace, Name: v.Key.Name}, view: v, skipped: !counts}, nil
	}
}

// reduceToView returns the view of an object. counts is false for an object that nothing observes, of
// which the view has the key alone.
func (r *viewForwarder) reduceToView(obj any) (v View, counts bool, err error) {
	switch o := obj.(type) {
	case *reduced:
		return o.view, !o.skipped, nil
	case *unstructured.Unstructured:
		if o.GetKind() == "" {
			o.SetGroupVersionKind(r.resource.GVK())
		}
		bundle, counts := r.bundleOf(o)
		if !counts {
			return r.viewWithKeyOnly(o), false, nil
		}
		v = ViewOf(o, r.sink.JudgesOf(bundle, r.viewWithKeyOnly(o).Key).ForReportTime(time.Now().Unix()))
		if r.unlabelled {
			v.Edit = EditFingerprintOf(o)
		}
		return v, true, nil
	case *metav1.PartialObjectMetadata:
		if _, counts := r.bundleOf(o); !counts {
			return r.viewWithKeyOnly(o), false, nil
		}
		v = ViewByExistence(o, r.resource.Group, r.resource.Kind)
		if r.unlabelled {
			v.Edit = EditFingerprintOfMetadata(o)
		}
		return v, true, nil
	case cache.DeletedFinalStateUnknown:
		return r.reduceToView(o.Obj)
	}
	return View{}, false, fmt.Errorf("watch of %s gave a %T", r.resource.GVK(), obj)
}

func (r *viewForwarder) viewWithKeyOnly(m metav1.Object) View {
	return View{Key: atoll.ItemKey{Group: r.resource.Group, Kind: r.resource.Kind, Namespace: m.GetNamespace(), Name: m.GetName()}}
}

// bundleOf returns the Bundle that writes or observes the object, and whether the object counts.
func (r *viewForwarder) bundleOf(m metav1.Object) (bundle string, counts bool) {
	if !r.unlabelled {
		return m.GetLabels()[atoll.LabelBundleUID], true
	}
	bundle = r.observers.ObserverOf(r.viewWithKeyOnly(m).Key)
	return bundle, bundle != ""
}

// Add is called for an object that is new to the watch.
func (r *viewForwarder) Add(obj any) error { return r.Update(obj) }

// Update is called for an object that changed.
func (r *viewForwarder) Update(obj any) error {
	v, counts, err := r.reduceToView(obj)
	if counts {
		r.sink.ObjectSeen(v)
	}
	return err
}

// Delete is called for an object that left the watch.
func (r *viewForwarder) Delete(obj any) error {
	v, counts, err := r.reduceToView(obj)
	if counts {
		r.sink.ObjectLeft(v)
	}
	return err
}

// Replace is called with all objects when the watch starts.
func (r *viewForwarder) Replace(objs []any, _ string) error {
	found := map[atoll.ItemKey]bool{}
	for _, obj := range objs {
		v, counts, err := r.reduceToView(obj)
		if err != nil {
			return err
		}
		if counts {
			found[v.Key] = true
			r.sink.ObjectSeen(v)
		}
	}
	if r.unlabelled {
		r.observers.ObservedListed(r.resource.Group, r.resource.Kind, found)
	} else {
		r.sink.ReconcileListed(r.resource.Group, r.resource.Kind, found)
	}
	return nil
}

// Resync does nothing: nothing is kept.
func (r *viewForwarder) Resync() error { return nil }
