package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// engineGroup is the group of the objects that only the hub itself writes and
// watches: by far the most numerous ones.
const engineGroup = "engine.atoll.dev"

// engineStorage stores the engine's objects without a watch cache, which would
// hold all of them a second time for a single reader, and without the ownership
// of their fields, which no second writer ever asks for.
type engineStorage struct{ generic.RESTOptionsGetter }

func (e engineStorage) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := e.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil && resource.Group == engineGroup {
		options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
			newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			plain, destroy, err := generic.UndecoratedStorage(config, prefix, keyFunc, newFunc, newListFunc, attrs, triggers, indexers)
			return unmanaged{plain}, destroy, err
		}
	}
	return options, err
}

// unmanaged takes the managed fields off whatever is written.
type unmanaged struct{ storage.Interface }

func (u unmanaged) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	dropManaged(obj)
	return u.Interface.Create(ctx, key, obj, out, ttl)
}

func (u unmanaged) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	slim := func(in runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj, ttl, err := update(in, res)
		dropManaged(obj)
		return obj, ttl, err
	}
	return u.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, slim, cached)
}

func dropManaged(obj runtime.Object) {
	if obj == nil {
		return
	}
	if m, err := meta.Accessor(obj); err == nil && len(m.GetManagedFields()) > 0 {
		m.SetManagedFields(nil)
	}
}
