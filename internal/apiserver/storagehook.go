package apiserver

import (
	"fmt"

	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// StorageHook may replace the storage that upstream made for a group and version: by resource,
// "pods", and by resource and subresource, "pods/log". The replacement serves all requests of the
// API, those of the hub itself too, after all that comes before storage: authorization, audit,
// admission by registered validators. It is called once for each group and version, while the
// server is built; an error ends the start.
type StorageHook func(group, version string, resources map[string]rest.Storage) error

// hookedStorageProvider lets a StorageHook change what a provider made.
type hookedStorageProvider struct {
	controlplaneapiserver.RESTStorageProvider
	hook StorageHook
}

func (h hookedStorageProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource, getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := h.RESTStorageProvider.NewRESTStorage(source, getter)
	if err != nil {
		return info, err
	}
	for version, resources := range info.VersionedResourcesStorageMap {
		if err := h.hook(h.GroupName(), version, resources); err != nil {
			return info, fmt.Errorf("change the storage of %s/%s: %w", h.GroupName(), version, err)
		}
	}
	return info, nil
}

// starting is hooked, of a provider that does something once the server runs.
type starting struct {
	hookedStorageProvider
	genericapiserver.PostStartHookProvider
}

// wrapProvider returns a provider whose storage the hook changes; nil changes nothing.
func (hook StorageHook) wrapProvider(p controlplaneapiserver.RESTStorageProvider) controlplaneapiserver.RESTStorageProvider {
	if hook == nil {
		return p
	}
	if starts, ok := p.(genericapiserver.PostStartHookProvider); ok {
		return starting{hookedStorageProvider{p, hook}, starts}
	}
	return hookedStorageProvider{p, hook}
}
