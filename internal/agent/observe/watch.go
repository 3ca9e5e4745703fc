package observe

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
)

// Sink hears what is observed. It is called from several goroutines and must not
// block.
type Sink interface {
	// Seen: the object exists like this.
	Seen(v View)
	// Left: the object left the watch; v is the last that was seen of it.
	Left(v View)
	// Listed: a watch of the kind started, and found these.
	Listed(group, kind string, found map[atoll.ItemKey]bool)
	// Interpreters by which objects of a Bundle are judged.
	Interpreters(bundle string) script.Interpreters
	// Interpreted tells whether scripts judge objects of the kind.
	Interpreted(group, kind string) bool
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

// NewWatcher gives a Watcher without watches. Sink must be set before Run.
func NewWatcher(client *member.Client) *Watcher {
	return &Watcher{client: client, watches: map[schema.GroupKind]*oneWatch{}}
}

// Run runs the watches that were or will be started, for the sink, until ctx ends.
func (w *Watcher) Run(ctx context.Context, sink Sink) {
	w.mu.Lock()
	w.ctx, w.sink = ctx, sink
	for _, one := range w.watches {
		w.launch(one)
	}
	w.mu.Unlock()
	<-ctx.Done()
	w.running.Wait()
}

// Start watching the kind. A watch in another version goes on while the member
// serves that version.
func (w *Watcher) Start(res member.Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: res.Group, Kind: res.Kind}
	if old := w.watches[gk]; old != nil {
		_, served := w.client.APIs().Lookup(old.resource.GVK())
		if served || old.resource == res {
			return
		}
		old.stop()
	}
	one := &oneWatch{resource: res, stop: func() {}}
	w.watches[gk] = one
	w.launch(one)
}

// Again looks at all objects of the kind anew, if it is watched: they are judged otherwise
// now.
func (w *Watcher) Again(group, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: group, Kind: kind}
	if old := w.watches[gk]; old != nil {
		old.stop()
		one := &oneWatch{resource: old.resource, stop: func() {}}
		w.watches[gk] = one
		w.launch(one)
	}
}

// Stop watching the kind.
func (w *Watcher) Stop(group, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gk := schema.GroupKind{Group: group, Kind: kind}
	if one := w.watches[gk]; one != nil {
		one.stop()
		delete(w.watches, gk)
	}
}

// launch the watch, if the Watcher runs. The caller holds mu.
func (w *Watcher) launch(one *oneWatch) {
	if w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(w.ctx)
	one.stop = stop
	w.running.Go(func() {
		defer stop()
		defer crash.Recover(ctx)
		res := one.resource
		source, expected := w.source(res)
		reflector := cache.NewReflectorWithOptions(source, expected, &reducer{res, w.sink},
			cache.ReflectorOptions{Name: "atoll", TypeDescription: res.GVK().String()})
		reflector.RunWithContext(ctx)
	})
}

// source lists and watches the kind's objects that carry our label.
func (w *Watcher) source(res member.Resource) (cache.ListerWatcher, runtime.Object) {
	selected := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = atoll.LabelBundleUID
		return o
	}
	if MetadataOnly(res.Group, res.Kind) && !w.sink.Interpreted(res.Group, res.Kind) {
		at := w.client.Metadata().Resource(res.GroupVersionResource)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return at.List(ctx, selected(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return at.Watch(ctx, selected(o))
			},
		}, &metav1.PartialObjectMetadata{}
	}
	at := w.client.Dynamic().Resource(res.GroupVersionResource)
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
		v, err := r.view(obj)
		if err != nil {
			return obj, err
		}
		return &reduced{ObjectMeta: metav1.ObjectMeta{Namespace: v.Key.Namespace, Name: v.Key.Name}, view: v}, nil
	}
}

func (r *reducer) view(obj any) (View, error) {
	switch o := obj.(type) {
	case *reduced:
		return o.view, nil
	case *unstructured.Unstructured:
		if o.GetKind() == "" {
			o.SetGroupVersionKind(r.resource.GVK())
		}
		return Of(o, r.sink.Interpreters(o.GetLabels()[atoll.LabelBundleUID])), nil
	case *metav1.PartialObjectMetadata:
		return OfMeta(o, r.resource.Group, r.resource.Kind), nil
	case cache.DeletedFinalStateUnknown:
		return r.view(o.Obj)
	}
	return View{}, fmt.Errorf("watch of %s gave a %T", r.resource.GVK(), obj)
}

// Add is called for an object that is new to the watch.
func (r *reducer) Add(obj any) error { return r.Update(obj) }

// Update is called for an object that changed.
func (r *reducer) Update(obj any) error {
	v, err := r.view(obj)
	if err == nil {
		r.sink.Seen(v)
	}
	return err
}

// Delete is called for an object that left the watch.
func (r *reducer) Delete(obj any) error {
	v, err := r.view(obj)
	if err == nil {
		r.sink.Left(v)
	}
	return err
}

// Replace is called with all objects when the watch starts.
func (r *reducer) Replace(objs []any, _ string) error {
	found := map[atoll.ItemKey]bool{}
	for _, obj := range objs {
		v, err := r.view(obj)
		if err != nil {
			return err
		}
		found[v.Key] = true
		r.sink.Seen(v)
	}
	r.sink.Listed(r.resource.Group, r.resource.Kind, found)
	return nil
}

// Resync does nothing: nothing is kept.
func (r *reducer) Resync() error { return nil }
