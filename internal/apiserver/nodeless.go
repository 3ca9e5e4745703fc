package apiserver

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	api "k8s.io/kubernetes/pkg/apis/core"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"

	"atoll.dev/atoll/internal/apiserver/allocators"
	"atoll.dev/atoll/internal/apiserver/nodes"
)

// nodelessCoreProvider provides the core group for a cluster without nodes of its own, in whose place
// are Clusters, and without a network: ports of Services are accepted and never given out, addresses mean nothing,
// and Pods are deleted without waiting for a kubelet. It has no hook that runs
// repair loops after start, which the provider that it wraps has.
type nodelessCoreProvider struct {
	provider       controlplaneapiserver.RESTStorageProvider
	proxyTransport http.RoundTripper
	nodes          nodes.Options // what people see as nodes
	addresses      *allocators.ServiceAddresses
}

func (n nodelessCoreProvider) GroupName() string { return n.provider.GroupName() }

func (n nodelessCoreProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource, getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := n.provider.NewRESTStorage(source, withoutServices{getter})
	if err != nil {
		return info, fmt.Errorf("build storage of the core group: %w", err)
	}
	resources := info.VersionedResourcesStorageMap["v1"]
	pods, ok := resources["pods"].(*podstore.REST)
	if !ok {
		return info, fmt.Errorf("storage of pods is a %T, not the one this was written for", resources["pods"])
	}
	pods.DeleteStrategy = immediateDeleteStrategy{pods.DeleteStrategy}
	acceptTokensWithoutServiceAccount(pods.Store)

	endpoints, ok := resources["endpoints"].(servicestore.EndpointsStorage)
	if !ok {
		return info, fmt.Errorf("storage of endpoints is a %T, not the one this was written for", resources["endpoints"])
	}
	services, status, proxy, err := servicestore.NewREST(getter, api.IPv4Protocol, n.addresses.Allocators(), allocators.NewNodePortAllocator(), endpoints, pods, n.proxyTransport)
	if err != nil {
		return info, fmt.Errorf("build storage of services: %w", err)
	}
	clearPortsBeforeStoring(services.Store)
	resources["services"] = services
	resources["services/status"] = status
	resources["services/proxy"] = proxy
	return info, nodes.InstallNodeStorage(resources, n.nodes)
}

// withoutServices lets the wrapped provider build its storage of Services, which
// is thrown away, on nothing: what is never opened need not be closed.
type withoutServices struct{ generic.RESTOptionsGetter }

func (w withoutServices) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := w.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil && resource == api.Resource("services") {
		options.CountMetricPollPeriod = 0
		options.Decorator = func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
			func() runtime.Object, func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return nil, func() {}, nil
		}
	}
	return options, err
}

// clearPortsBeforeStoring removes allocated node ports again before the object is validated and stored: a
// port of the hub means nothing in a member. A health check port must have a value, so it becomes
// a dummy.
func clearPortsBeforeStoring(store *genericregistry.Store) {
	beginCreate, beginUpdate := store.BeginCreate, store.BeginUpdate
	store.BeginCreate = func(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		finish, err := beginCreate(ctx, obj, options)
		clearPlaceholderPorts(obj, err)
		return finish, err
	}
	store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, options *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		finish, err := beginUpdate(ctx, obj, old, options)
		clearPlaceholderPorts(obj, err)
		return finish, err
	}
}

func clearPlaceholderPorts(obj runtime.Object, err error) {
	service, ok := obj.(*api.Service)
	if err != nil || !ok {
		return
	}
	for i := range service.Spec.Ports {
		if p := &service.Spec.Ports[i]; allocators.IsHubAllocatedPort(p.NodePort) {
			p.NodePort = 0
		}
	}
	if allocators.IsHubAllocatedPort(service.Spec.HealthCheckNodePort) {
		service.Spec.HealthCheckNodePort = allocators.DummyHealthCheckPort
	}
}

// immediateDeleteStrategy deletes at once what otherwise waits for a kubelet to confirm.
type immediateDeleteStrategy struct{ rest.RESTDeleteStrategy }

func (immediateDeleteStrategy) CheckGracefulDelete(_ context.Context, _ runtime.Object, options *metav1.DeleteOptions) bool {
	options.GracePeriodSeconds = new(int64)
	return true
}
