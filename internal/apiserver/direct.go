package apiserver

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	"atoll.dev/atoll/internal/apiserver/direct"
)

// openDirect opens what the hub writes and reads without the API's handlers, by the
// options with which they store custom resources.
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
		kind  direct.Kind
		store **direct.Store
	}{
		{direct.Clusters(), &s.direct.Clusters},
		{direct.Slices(), &s.direct.Slices},
		{direct.Revisions(), &s.direct.Revisions},
	} {
		resource := schema.GroupResource{Group: one.kind.Group, Resource: one.kind.Resource}
		options, err := getter.GetRESTOptions(resource, nil)
		if err != nil {
			return fmt.Errorf("find out how %s are stored: %w", resource, err)
		}
		store, closed, err := direct.Open(one.kind, direct.Access{
			Options: options, Etcd: s.store.client, Writes: writes, Log: s.options.Logger.With("component", "direct"),
		})
		if err != nil {
			return err
		}
		s.onStop(func(context.Context) { closed() })
		*one.store = store
	}
	return nil
}

// Direct gives the stores of what the hub writes and reads without the API's handlers.
func (s *Server) Direct() direct.Stores { return s.direct }
