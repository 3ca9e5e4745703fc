package apiserver

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"

	"atoll.dev/atoll/internal/apiserver/direct"
)

// objectInformers gives bare metadata of every kind but those that a reader
// needs whole.
type objectInformers struct {
	metadatainformer.SharedInformerFactory
	typed informers.SharedInformerFactory
	whole map[schema.GroupResource]bool
	// stored are kinds whose metadata comes from the store directly.
	stored map[schema.GroupVersionResource]*storedInformer
}

var _ informerfactory.InformerFactory = objectInformers{}

func (o objectInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	if o.whole[resource.GroupResource()] {
		return o.typed.ForResource(resource)
	}
	if stored, ok := o.stored[resource]; ok {
		return stored, nil
	}
	return o.SharedInformerFactory.ForResource(resource), nil
}

func (o objectInformers) Start(stop <-chan struct{}) {
	o.SharedInformerFactory.Start(stop)
	o.typed.Start(stop)
	for _, i := range o.stored {
		i.start(stop)
	}
}

// dropLabelsAndAnnotations keeps of an object's metadata its identity, owners and finalizers: the
// annotation of kubectl apply alone is a whole manifest.
func dropLabelsAndAnnotations(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
	}
	return obj, nil
}

// storedInformer returns the metadata of a kind from the store directly, for kinds that are
// in no watch cache, so that a watch by the API would decode, convert and encode each of
// their changes once more, for controllers that read three fields.
type storedInformer struct {
	resource schema.GroupVersionResource
	informer cache.SharedIndexInformer
	begin    sync.Once
}

// storedInformers returns the informers of all such kinds that controllers request.
func (s *Server) storedInformers(client metadata.Interface) (map[schema.GroupVersionResource]*storedInformer, error) {
	all := map[schema.GroupVersionResource]*storedInformer{}
	for _, kind := range []direct.Kind{direct.ClusterKind(), direct.BundleKind()} {
		resource := kind.GroupVersion().WithResource(kind.Resource)
		byAPI := client.Resource(resource)
		source := s.direct.ListerWatcherFor(kind.New(), &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return byAPI.List(ctx, options)
			},
			WatchFuncWithContext: byAPI.Watch,
		})
		informer := cache.NewSharedIndexInformer(metadataListerWatcher(kind.GroupVersionKind, source), &metav1.PartialObjectMetadata{}, controllerResync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		if err := informer.SetTransform(dropLabelsAndAnnotations); err != nil {
			return nil, fmt.Errorf("build the informer of %s: %w", kind.Resource, err)
		}
		all[resource] = &storedInformer{resource: resource, informer: informer}
	}
	return all, nil
}

// Informer returns the informer of the metadata.
func (i *storedInformer) Informer() cache.SharedIndexInformer { return i.informer }

// Lister returns the lister of the metadata.
func (i *storedInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(i.informer.GetIndexer(), i.resource.GroupResource())
}

func (i *storedInformer) start(stop <-chan struct{}) {
	i.begin.Do(func() { go i.informer.Run(stop) })
}

// metadataListerWatcher returns a ListerWatcher for the metadata of the kind's objects in source.
func metadataListerWatcher(kind schema.GroupVersionKind, source cache.ListerWatcher) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(source)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			of, err := meta.ListAccessor(list)
			if err != nil {
				return nil, fmt.Errorf("read a list of %s: %w", kind, err)
			}
			out := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{
				ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount(),
			}}
			err = meta.EachListItem(list, func(obj runtime.Object) error {
				out.Items = append(out.Items, *partialMetadata(kind, obj))
				return nil
			})
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := from.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if e.Type != watch.Error {
					e.Object = partialMetadata(kind, e.Object)
				}
				return e, true
			}), nil
		},
	}
}

// partialMetadata is an object's metadata.
func partialMetadata(kind schema.GroupVersionKind, obj runtime.Object) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{}
	if o, err := meta.Accessor(obj); err == nil {
		out = meta.AsPartialObjectMetadata(o)
	}
	out.SetGroupVersionKind(kind)
	return out
}
