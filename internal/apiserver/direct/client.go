package direct

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Stores of what the hub writes and reads directly.
type Stores struct {
	Clusters, Slices, Revisions, Bundles *Store
	// Templates are the built-in kinds.
	Templates *FinalizerWriter
	// Namespaces is where they lie in etcd, with a slash at the end.
	Namespaces string
}

// storeFor returns the Store of the example's kind; nil without one.
func (s Stores) storeFor(example runtime.Object) *Store {
	switch example.(type) {
	case *v1alpha1.Cluster:
		return s.Clusters
	case *enginev1.TargetSlice:
		return s.Slices
	case *enginev1.Revision:
		return s.Revisions
	case *v1alpha1.Bundle:
		return s.Bundles
	}
	return nil
}

// May reports whether a write may happen now; report: it is the status of a TargetSlice.
type May func(report bool) error

// Living returns the resource version at which a namespace was seen that lives and is not
// being deleted; false where none is known.
type Living func(namespace string) (resourceVersion string, ok bool)

// WrapClient is c, but for the status of Clusters and Bundles, for Bundles that are made or
// edited, for Revisions that are made, and for TargetSlices, which it writes directly, while
// it may. Calls with options go the API's way, and so do Bundles that are made in a namespace that
// living does not have.
func (s Stores) WrapClient(c client.Client, may May, living Living) client.Client {
	return etcdWriteClient{c, s, may, living}
}

type etcdWriteClient struct {
	client.Client
	stores Stores
	may    May
	living Living
}

// Create creates a TargetSlice, a Revision or a Bundle directly, and anything else by the API.
func (w etcdWriteClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	store, o := (*Store)(nil), Object{}
	switch obj := obj.(type) {
	case *enginev1.TargetSlice:
		store, o = w.stores.Slices, Object{Meta: &obj.ObjectMeta, Spec: &obj.Spec}
	case *enginev1.Revision:
		store, o = w.stores.Revisions, Object{Meta: &obj.ObjectMeta, Spec: &obj.Spec}
	case *v1alpha1.Bundle:
		store, o = w.stores.Bundles, Object{Meta: &obj.ObjectMeta, Spec: &obj.Spec}
	}
	if store == nil || len(opts) > 0 {
		return w.Client.Create(ctx, obj, opts...)
	}
	if err := w.may(false); err != nil {
		return err
	}
	if o.Meta.Namespace == "" {
		return store.Create(ctx, o)
	}
	if done, err := w.createInLiveNamespace(ctx, store, o); done || err != nil {
		return err
	}
	return w.Client.Create(ctx, obj)
}

// createInLiveNamespace creates an object in a namespace that is known to live; not done where it is
// not, or where the object is there already.
func (w etcdWriteClient) createInLiveNamespace(ctx context.Context, store *Store, o Object) (done bool, err error) {
	if w.living == nil || w.stores.Namespaces == "" {
		return false, nil
	}
	version, ok := w.living(o.Meta.Namespace)
	revision, err := strconv.ParseInt(version, 10, 64)
	if !ok || err != nil || revision == 0 {
		return false, nil
	}
	return store.CreateIn(ctx, o, w.stores.Namespaces+o.Meta.Namespace, revision)
}

// Update updates spec, labels and annotations of a TargetSlice or a Bundle directly, and anything
// else by the API.
func (w etcdWriteClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	store, o := (*Store)(nil), Object{}
	switch obj := obj.(type) {
	case *enginev1.TargetSlice:
		store, o = w.stores.Slices, sliceParts(obj)
	case *v1alpha1.Bundle:
		store, o = w.stores.Bundles, bundleParts(obj)
	}
	if store == nil || len(opts) > 0 {
		return w.Client.Update(ctx, obj, opts...)
	}
	if err := w.may(false); err != nil {
		return err
	}
	return store.UpdateSpec(ctx, o)
}

// Status writes those of Clusters, Bundles and TargetSlices directly.
func (w etcdWriteClient) Status() client.SubResourceWriter {
	return directStatusWriter{w.Client.Status(), w}
}

type directStatusWriter struct {
	client.SubResourceWriter
	writer etcdWriteClient
}

// Update writes the object's status.
func (s directStatusWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	store, o, report := s.writer.stores.Clusters, Object{}, false
	switch obj := obj.(type) {
	case *v1alpha1.Cluster:
		o = Object{Meta: &obj.ObjectMeta, Spec: &obj.Spec, Status: &obj.Status}
	case *v1alpha1.Bundle:
		store, o = s.writer.stores.Bundles, bundleParts(obj)
	case *enginev1.TargetSlice:
		store, o, report = s.writer.stores.Slices, sliceParts(obj), true
	}
	if o.Meta == nil || store == nil || len(opts) > 0 {
		return s.SubResourceWriter.Update(ctx, obj, opts...)
	}
	if err := s.writer.may(report); err != nil {
		return err
	}
	return store.UpdateStatus(ctx, o)
}

func bundleParts(b *v1alpha1.Bundle) Object {
	return Object{Meta: &b.ObjectMeta, Spec: &b.Spec, Status: &b.Status}
}

func sliceParts(s *enginev1.TargetSlice) Object {
	return Object{Meta: &s.ObjectMeta, Spec: &s.Spec, Status: &s.Status}
}
