package server

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	historystore "k8s.io/kubernetes/pkg/registry/apps/controllerrevision/storage"
	daemonsetstore "k8s.io/kubernetes/pkg/registry/apps/daemonset/storage"
	deploymentstore "k8s.io/kubernetes/pkg/registry/apps/deployment/storage"
	replicasetstore "k8s.io/kubernetes/pkg/registry/apps/replicaset/storage"
	statefulsetstore "k8s.io/kubernetes/pkg/registry/apps/statefulset/storage"
	jobstore "k8s.io/kubernetes/pkg/registry/batch/job/storage"
	eventstore "k8s.io/kubernetes/pkg/registry/core/event/storage"
	claimstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podrest "k8s.io/kubernetes/pkg/registry/core/pod/rest"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	slicestore "k8s.io/kubernetes/pkg/registry/discovery/endpointslice/storage"
)

// InstallStorage puts the storage in the place of upstream's; it is an apiserver.StorageHook.
func (f *Fleet) InstallStorage(group, version string, resources map[string]rest.Storage) error {
	for kind, resource := range historied[group+"/"+version] {
		store, err := storeOf(resources[resource])
		if err != nil {
			return fmt.Errorf("%s: %w", resource, err)
		}
		f.workloads[kind] = store
	}
	for _, resource := range shown[group+"/"+version] {
		store, err := storeOf(resources[resource])
		if err != nil {
			return fmt.Errorf("%s: %w", resource, err)
		}
		o := &objectStorage{Store: store, fleet: f, kind: kinds[resource]}
		if s, ok := resources[resource].(rest.ShortNamesProvider); ok {
			o.short = s.ShortNames()
		}
		if c, ok := resources[resource].(rest.CategoriesProvider); ok {
			o.categories = c.Categories()
		}
		resources[resource] = o
		for path, s := range resources {
			if strings.HasPrefix(path, resource+"/") {
				o.installSubresource(resources, path, s)
			}
		}
	}
	return nil
}

// shown resources by group and version.
var shown = map[string][]string{
	"/v1":                 {"pods", "events", "persistentvolumeclaims"},
	"apps/v1":             {"replicasets", "controllerrevisions"},
	"batch/v1":            {"jobs"},
	"discovery.k8s.io/v1": {"endpointslices"},
	"events.k8s.io/v1":    {"events"},
}

// historied workloads by group and version: their resources by kind.
var historied = map[string]map[schema.GroupKind]string{
	"apps/v1": {deployment: "deployments", statefulSet: "statefulsets", daemonSet: "daemonsets"},
}

// storeOf returns the store inside of an upstream storage.
func storeOf(s rest.Storage) (*genericregistry.Store, error) {
	switch s := s.(type) {
	case *podstore.REST:
		return s.Store, nil
	case *claimstore.REST:
		return s.Store, nil
	case *eventstore.REST:
		return s.Store, nil
	case *replicasetstore.REST:
		return s.Store, nil
	case *historystore.REST:
		return s.Store, nil
	case *deploymentstore.REST:
		return s.Store, nil
	case *statefulsetstore.REST:
		return s.Store, nil
	case *daemonsetstore.REST:
		return s.Store, nil
	case *jobstore.REST:
		return s.Store, nil
	case *slicestore.REST:
		return s.Store, nil
	}
	return nil, fmt.Errorf("its storage is a %T, not the one this was written for", s)
}

const (
	noStatus = "and that cluster reports its status"
	noScale  = "where its controller sets how many there are: scale what it was made of, on the hub, such as a Deployment"
)

// installSubresource puts a subresource in the place of upstream's.
func (o *objectStorage) installSubresource(resources map[string]rest.Storage, path string, upstream rest.Storage) {
	switch s := upstream.(type) {
	case *podrest.LogREST:
		resources[path] = &podLogStorage{s, o}
	case *podrest.ExecREST:
		resources[path] = o.newPodConnectStorage(s, "exec", "takes no commands", s.Authorizer)
	case *podrest.AttachREST:
		resources[path] = o.newPodConnectStorage(s, "attach", "cannot be attached to", s.Authorizer)
	case *podrest.PortForwardREST:
		resources[path] = o.newPodConnectStorage(s, "portforward", "has no ports", s.Authorizer)
	case *podrest.ProxyREST:
		resources[path] = o.newPodConnectStorage(s, "proxy", "cannot be reached", nil)
	case *podstore.EvictionREST:
		// Upstream serves one storage of evictions alone.
		resources[path] = &evictions{s, o}
	case *podstore.EphemeralContainersREST:
		resources[path] = &subresourceStorage{Patcher: s, objects: o, name: "ephemeralcontainers", lacks: "takes no debug containers"}
	case *podstore.ResizeREST:
		resources[path] = &subresourceStorage{Patcher: s, objects: o, name: "resize"}
	case *podstore.StatusREST, *claimstore.StatusREST, *replicasetstore.StatusREST, *jobstore.StatusREST:
		resources[path] = &subresourceStorage{Patcher: s.(rest.Patcher), objects: o, name: "status", refused: noStatus}
	case *replicasetstore.ScaleREST:
		resources[path] = &scaling{subresourceStorage{Patcher: s, objects: o, name: scale, refused: noScale}, s}
	}
}

// connector is what upstream connects by.
type connector interface {
	rest.Connecter
	rest.Storage
}

func (o *objectStorage) newPodConnectStorage(c connector, name, lacks string, may authorizer.Authorizer) rest.Storage {
	return &podConnectStorage{connector: c, pods: o, name: name, lacks: lacks, may: may}
}
