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

	"atoll.dev/atoll/api/v1alpha1"
)

// objectInformers gives bare metadata of every kind but those that a reader
// needs whole.
type objectInformers struct {
	metadatainformer.SharedInformerFactory
	typed informers.SharedInformerFactory
	whole map[schema.GroupResource]bool
	// clusters reads the metadata of Clusters; nil: as that of any kind.
	clusters *clusterInformer
}

var _ informerfactory.InformerFactory = objectInformers{}

func (o objectInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	switch {
	case o.whole[resource.GroupResource()]:
		return o.typed.ForResource(resource)
	case o.clusters != nil && resource == clusterResource:
		return o.clusters, nil
	default:
		return o.SharedInformerFactory.ForResource(resource), nil
	}
}

func (o objectInformers) Start(stop <-chan struct{}) {
	o.SharedInformerFactory.Start(stop)
	o.typed.Start(stop)
	if o.clusters != nil {
		o.clusters.start(stop)
	}
}

// bare keeps of an object's metadata what tells its identity, owners and
// finalizers: the annotation of kubectl apply alone is a whole manifest.
func bare(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
		o.SetLabels(nil)
	}
	return obj, nil
}

var clusterResource = v1alpha1.GroupVersion.WithResource(clusters)

// clusterInformer gives the metadata of Clusters from the store directly. They are in no
// watch cache, so that a watch by the API would decode, convert and encode each of their
// changes once more, for controllers that want three fields.
type clusterInformer struct {
	informer cache.SharedIndexInformer
	begin    sync.Once
}

func (s *Server) newClusterInformer(client metadata.Interface) (*clusterInformer, error) {
	byAPI := client.Resource(clusterResource)
	source := s.direct.Source(&v1alpha1.Cluster{}, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return byAPI.List(ctx, options)
		},
		WatchFuncWithContext: byAPI.Watch,
	})
	c := &clusterInformer{informer: cache.NewSharedIndexInformer(metadataOf(source), &metav1.PartialObjectMetadata{}, controllerResync, cache.Indexers{})}
	if err := c.informer.SetTransform(bare); err != nil {
		return nil, fmt.Errorf("build the informer of Clusters: %w", err)
	}
	return c, nil
}

// Informer of the metadata.
func (c *clusterInformer) Informer() cache.SharedIndexInformer { return c.informer }

// Lister of the metadata.
func (c *clusterInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(c.informer.GetIndexer(), clusterResource.GroupResource())
}

func (c *clusterInformer) start(stop <-chan struct{}) {
	c.begin.Do(func() { go c.informer.Run(stop) })
}

// metadataOf what a source lists and watches.
func metadataOf(source cache.ListerWatcher) cache.ListerWatcher {
	from := cache.ToListerWatcherWithContext(source)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := from.ListWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			of, err := meta.ListAccessor(list)
			if err != nil {
				return nil, fmt.Errorf("read a list of Clusters: %w", err)
			}
			out := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{
				ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue(), RemainingItemCount: of.GetRemainingItemCount(),
			}}
			err = meta.EachListItem(list, func(obj runtime.Object) error {
				out.Items = append(out.Items, *partial(obj))
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
					e.Object = partial(e.Object)
				}
				return e, true
			}), nil
		},
	}
}

// partial is an object's metadata.
func partial(obj runtime.Object) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{}
	if o, err := meta.Accessor(obj); err == nil {
		out = meta.AsPartialObjectMetadata(o)
	}
	out.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Cluster"))
	return out
}
