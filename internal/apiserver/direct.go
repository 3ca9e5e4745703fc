package apiserver

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/direct"
)

// openDirect opens what the hub writes without the API's handlers, by the options with
// which they store custom resources.
func (s *Server) openDirect(getter generic.RESTOptionsGetter) error {
	writes := direct.NewWrites()
	if s.options.Metrics != nil {
		if err := s.options.Metrics.Register(writes); err != nil {
			return fmt.Errorf("register the counter of direct writes: %w", err)
		}
	}
	return s.openStores(getter, writes)
}

func (s *Server) openStores(getter generic.RESTOptionsGetter, writes *prometheus.CounterVec) error {
	for _, one := range []struct {
		kind     schema.GroupVersionKind
		resource string
		store    **direct.Store
	}{
		{v1alpha1.GroupVersion.WithKind("Cluster"), clusters, &s.direct.Clusters},
		{enginev1.GroupVersion.WithKind("TargetSlice"), "targetslices", &s.direct.Slices},
	} {
		resource := schema.GroupResource{Group: one.kind.Group, Resource: one.resource}
		options, err := getter.GetRESTOptions(resource, nil)
		if err != nil {
			return fmt.Errorf("find out how %s are stored: %w", resource, err)
		}
		store, closed, err := direct.Open(one.kind, resource, options, s.store.client, writes)
		if err != nil {
			return err
		}
		s.onStop(func(context.Context) { closed() })
		*one.store = store
	}
	return nil
}

// Direct gives the stores of what the hub writes without the API's handlers.
func (s *Server) Direct() direct.Stores { return s.direct }
