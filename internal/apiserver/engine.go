package apiserver

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// engineGroup is the group of the objects that only the hub itself writes and
// watches: by far the most numerous ones. clusters and bundles, of atollGroup, are next,
// and profiles, one for each cluster.
const (
	engineGroup = "engine.atoll.dev"
	atollGroup  = "atoll.dev"
	clusters    = "clusters"
	bundles     = "bundles"
)

var profiles = schema.GroupResource{Group: "multicluster.x-k8s.io", Resource: "clusterprofiles"}

// atollStorageOptions stores Atoll's objects without managedFields. The engine's objects, Clusters,
// Bundles and ClusterProfiles have no watch cache, which would hold all of them a second time,
// about ten times as large as the tables do, for few readers. The managedFields of the engine's
// objects, of other objects' status, and of objects that the hub made, such as a joining Cluster,
// have no reader. They would be the larger half of such an object, read and written with each
// status.
type atollStorageOptions struct{ generic.RESTOptionsGetter }

func (e atollStorageOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := e.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil || resource.Group != engineGroup && resource.Group != atollGroup && resource != profiles {
		return options, err
	}
	drop, decorate := dropHubManagedFields, options.Decorator
	if resource.Group == engineGroup {
		drop = dropAllManagedFields
	}
	if resource.Group == engineGroup || resource.Resource == clusters || resource.Resource == bundles || resource == profiles {
		decorate = generic.UndecoratedStorage
	}
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		store, destroy, err := decorate(config, prefix, keyFunc, newFunc, newListFunc, attrs, triggers, indexers)
		return managedFieldsDropper{store, drop}, destroy, err
	}
	return options, nil
}

// managedFieldsDropper takes managed fields off whatever is written.
type managedFieldsDropper struct {
	storage.Interface
	drop func(metav1.Object)
}

func (u managedFieldsDropper) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	u.dropManagedFields(obj)
	return u.Interface.Create(ctx, key, obj, out, ttl)
}

func (u managedFieldsDropper) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	slim := func(in runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj, ttl, err := update(in, res)
		u.dropManagedFields(obj)
		return obj, ttl, err
	}
	return u.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, slim, cached)
}

func (u managedFieldsDropper) dropManagedFields(obj runtime.Object) {
	if obj == nil {
		return
	}
	if m, err := meta.Accessor(obj); err == nil && len(m.GetManagedFields()) > 0 {
		u.drop(m)
	}
}

func dropAllManagedFields(m metav1.Object) { m.SetManagedFields(nil) }

func dropHubManagedFields(m metav1.Object) {
	m.SetManagedFields(slices.DeleteFunc(m.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "status" || e.Manager == HubUser && e.Operation == metav1.ManagedFieldsOperationUpdate
	}))
}
