package apiserver

import (
	"context"
	"fmt"
	"path"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"atoll.dev/atoll/internal/apiserver/direct"
)

// openDirectStores opens what the hub writes and reads without the API's handlers, by the
// options with which they store custom resources.
// builtin returns the options by which the kinds that are linked in are stored.
// audit reports writes to users' objects; nil: there is no audit log.
func (s *Server) openDirectStores(getter, builtin generic.RESTOptionsGetter, audit direct.Auditor) error {
	writes := direct.NewWriteCounter()
	if s.options.Metrics != nil {
		if err := s.options.Metrics.Register(writes); err != nil {
			return fmt.Errorf("register the counter of direct writes: %w", err)
		}
	}
	s.direct.Templates = direct.NewFinalizerWriter(s.store.kv, writes, audit, func(gvk schema.GroupVersionKind, resource schema.GroupResource) (direct.StorageLocation, error) {
		return storagePlaceOf(builtin, gvk, resource)
	})
	namespaces, err := storagePlaceOf(builtin, corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.Resource("namespaces"))
	if err != nil {
		return err
	}
	s.direct.Namespaces = path.Join("/", namespaces.Prefix) + "/"
	return s.openEngineStores(getter, writes)
}

// storagePlaceOf returns the place of the objects of a built-in kind.
func storagePlaceOf(getter generic.RESTOptionsGetter, gvk schema.GroupVersionKind, resource schema.GroupResource) (direct.StorageLocation, error) {
	if !legacyscheme.Scheme.Recognizes(gvk) {
		return direct.StorageLocation{}, fmt.Errorf("%s is not built in", gvk)
	}
	example, err := legacyscheme.Scheme.New(schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind})
	if err != nil {
		return direct.StorageLocation{}, fmt.Errorf("find out how %s are stored: %w", resource, err)
	}
	options, err := getter.GetRESTOptions(resource, example)
	if err != nil {
		return direct.StorageLocation{}, fmt.Errorf("find out how %s are stored: %w", resource, err)
	}
	return direct.StorageLocation{Prefix: path.Join(options.StorageConfig.Prefix, options.ResourcePrefix), Cipher: options.StorageConfig.Transformer}, nil
}

func (s *Server) openEngineStores(getter generic.RESTOptionsGetter, writes *prometheus.CounterVec) error {
	for _, one := range []struct {
		kind  direct.Kind
		store **direct.Store
	}{
		{direct.ClusterKind(), &s.direct.Clusters},
		{direct.SliceKind(), &s.direct.Slices},
		{direct.RevisionKind(), &s.direct.Revisions},
		{direct.BundleKind(), &s.direct.Bundles},
	} {
		resource := schema.GroupResource{Group: one.kind.Group, Resource: one.kind.Resource}
		options, err := getter.GetRESTOptions(resource, nil)
		if err != nil {
			return fmt.Errorf("find out how %s are stored: %w", resource, err)
		}
		store, closed, err := direct.Open(one.kind, direct.Access{
			Options: options, Etcd: s.store.kv, Writes: writes, Log: s.options.Logger.With("component", "direct"),
		})
		if err != nil {
			return err
		}
		s.onStop(func(context.Context) { closed() })
		*one.store = store
	}
	return nil
}

// DirectStores returns the stores of what the hub writes and reads without the API's handlers.
func (s *Server) DirectStores() direct.Stores { return s.direct }
