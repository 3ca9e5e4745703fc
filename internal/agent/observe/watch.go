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
	"atoll.dev/atoll/internal/kinds/script"
)

// Sink hears what is observed. It is called from several goroutines and must not
// block.
type Sink interface {
	// ObjectSeen: the object exists like this.
	ObjectSeen(v View)
	// ObjectLeft: the object left the watch; v is the last that was seen of it.
	ObjectLeft(v View)
	// ReconcileListed: a watch of the kind started, and found these.
	ReconcileListed(group, kind string, found map[atoll.ItemKey]bool)
	// InterpretersOf by which objects of a Bundle are judged.
	InterpretersOf(bundle string) script.Interpreters
	// IsInterpreted reports whether scripts judge objects of the kind.
	IsInterpreted(group, kind string) bool
}

// Watcher runs one watch per kind. Start and Stop may be called from anywhere;
// watches run between Run's begin and its end.
type Watcher struct {
	client *member.Client
	sink   Sink

	mu      sync.Mutex
	ctx     context.Context
	running sync.WaitGroup
	watches map[schema.GroupKind]*oneWatch
}

type oneWatch struct {
	resource member.Resource
	stop     context.CancelFunc
}

// NewWatcher returns a Watcher without watches. Sink must be set before Run.
func NewWatcher(client *member.Client) *Watcher {
	return &Watcher{client: client, watches: map[schema.GroupKind]*oneWatch{}}
}

// Run runs the watches that were or will be started, for the sink, until ctx ends.
func (w *Watcher) Run(ctx context.Context, sink Sink) {
	w.mu.Lock()
	w.ctx, w.sink = ctx, sink
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
func (w *Watcher) Start(res member.Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: res.Group, Kind: res.Kind}
	if old := w.watches[gk]; old != nil {
		_, served := w.client.APIs().LookupKind(old.resource.GVK())
		if served || old.resource == res {
			return
		}
		old.stop()
	}
	one := &oneWatch{resource: res, stop: func() {}}
	w.watches[gk] = one
	w.startWatch(one)
}

// RelistKind reads all objects of the kind again, if it is watched: their judgement has changed.
func (w *Watcher) RelistKind(group, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: group, Kind: kind}
	if old := w.watches[gk]; old != nil {
		old.stop()
		one := &oneWatch{resource: old.resource, stop: func() {}}
		w.watches[gk] = one
		w.startWatch(one)
	}
}

// Stop stops watching the kind.
func (w *Watcher) Stop(group, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: group, Kind: kind}
	if one := w.watches[gk]; one != nil {
		one.stop()
		delete(w.watches, gk)
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
		source, expected := w.kindSource(res)
		reflector := cache.NewReflectorWithOptions(source, expected, &reducer{res, w.sink},
			cache.ReflectorOptions{Name: "atoll", TypeDescription: res.GVK().String()})
		reflector.RunWithContext(ctx)
	})
}

// kindSource lists and watches the kind's objects that carry our label.
func (w *Watcher) kindSource(res member.Resource) (cache.ListerWatcher, runtime.Object) {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = atoll.LabelBundleUID
		return o
	}
	if MetadataOnly(res.Group, res.Kind) && !w.sink.IsInterpreted(res.Group, res.Kind) {
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

// reducer is the store of a reflector: it keeps nothing.
type reducer struct {
	resource member.Resource
	sink     Sink
}

// reduced is a View on its way through a reflector, which needs a name.
type reduced struct {
	metav1.ObjectMeta
	view View
}

// Transformer lets the reflector keep Views instead of objects while it lists.
func (r *reducer) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		v, err := r.reduceToView(obj)
		if err != nil {
			return obj, err
		}
		return &reduced{ObjectMeta: metav1.ObjectMeta{Namespace: v.Key.Namespace, Name: v.Key.Name}, view: v}, nil
	}
}

func (r *reducer) reduceToView(obj any) (View, error) {
	switch o := obj.(type) {
	case *reduced:
		return o.view, nil
	case *unstructured.Unstructured:
		if o.GetKind() == "" {
			o.SetGroupVersionKind(r.resource.GVK())
		}
		known := r.sink.InterpretersOf(o.GetLabels()[atoll.LabelBundleUID])
		return ViewOf(o, known.At(time.Now().Unix())), nil
	case *metav1.PartialObjectMetadata:
		return OfMeta(o, r.resource.Group, r.resource.Kind), nil
	case cache.DeletedFinalStateUnknown:
		return r.reduceToView(o.Obj)
	}
	return View{}, fmt.Errorf("watch of %s gave a %T", r.resource.GVK(), obj)
}

// Add is called for an object that is new to the watch.
func (r *reducer) Add(obj any) error { return r.Update(obj) }

// Update is called for an object that changed.
func (r *reducer) Update(obj any) error {
	v, err := r.reduceToView(obj)
	if err == nil {
		r.sink.ObjectSeen(v)
	}
	return err
}

// Delete is called for an object that left the watch.
func (r *reducer) Delete(obj any) error {
	v, err := r.reduceToView(obj)
	if err == nil {
		r.sink.ObjectLeft(v)
	}
	return err
}

// Replace is called with all objects when the watch starts.
func (r *reducer) Replace(objs []any, _ string) error {
	found := map[atoll.ItemKey]bool{}
	for _, obj := range objs {
		v, err := r.reduceToView(obj)
		if err != nil {
			return err
		}
		found[v.Key] = true
		r.sink.ObjectSeen(v)
	}
	r.sink.ReconcileListed(r.resource.Group, r.resource.Kind, found)
	return nil
}

// Resync does nothing: nothing is kept.
func (r *reducer) Resync() error { return nil }
