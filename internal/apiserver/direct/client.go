package direct

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Stores of what the hub writes and reads directly.
type Stores struct{ Clusters, Slices, Revisions *Store }

// of the example's kind; nil without one.
func (s Stores) of(example runtime.Object) *Store {
	switch example.(type) {
	case *v1alpha1.Cluster:
		return s.Clusters
	case *enginev1.TargetSlice:
		return s.Slices
	case *enginev1.Revision:
		return s.Revisions
	}
	return nil
}

// May tells whether a write may happen now; report: it is the status of a TargetSlice.
type May func(report bool) error

// Client is c, but for the status of Clusters, and for TargetSlices, which it writes
// directly, while it may. Calls with options go the API's way.
func (s Stores) Client(c client.Client, may May) client.Client { return writer{c, s, may} }

type writer struct {
	client.Client
	stores Stores
	may    May
}

// Create a TargetSlice directly, and anything else by the API.
func (w writer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	slice, ok := obj.(*enginev1.TargetSlice)
	if !ok || len(opts) > 0 {
		return w.Client.Create(ctx, obj, opts...)
	}
	if err := w.may(false); err != nil {
		return err
	}
	return w.stores.Slices.Create(ctx, Object{Meta: &slice.ObjectMeta, Spec: &slice.Spec})
}

// Update the spec of a TargetSlice directly, and anything else by the API.
func (w writer) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	slice, ok := obj.(*enginev1.TargetSlice)
	if !ok || len(opts) > 0 {
		return w.Client.Update(ctx, obj, opts...)
	}
	if err := w.may(false); err != nil {
		return err
	}
	return w.stores.Slices.UpdateSpec(ctx, sliceParts(slice))
}

// Status writes those of Clusters and TargetSlices directly.
func (w writer) Status() client.SubResourceWriter { return statuses{w.Client.Status(), w} }

type statuses struct {
	client.SubResourceWriter
	writer writer
}

// Update a status.
func (s statuses) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	store, o, report := s.writer.stores.Clusters, Object{}, false
	switch obj := obj.(type) {
	case *v1alpha1.Cluster:
		o = Object{Meta: &obj.ObjectMeta, Spec: &obj.Spec, Status: &obj.Status}
	case *enginev1.TargetSlice:
		store, o, report = s.writer.stores.Slices, sliceParts(obj), true
	}
	if o.Meta == nil || len(opts) > 0 {
		return s.SubResourceWriter.Update(ctx, obj, opts...)
	}
	if err := s.writer.may(report); err != nil {
		return err
	}
	return store.UpdateStatus(ctx, o)
}

func sliceParts(s *enginev1.TargetSlice) Object {
	return Object{Meta: &s.ObjectMeta, Spec: &s.Spec, Status: &s.Status}
}
