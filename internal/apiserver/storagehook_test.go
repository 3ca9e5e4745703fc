package apiserver

import (
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
)

// maker makes storage of pods, which is none.
type maker struct{}

func (maker) GroupName() string { return "example.com" }

func (maker) NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	return genericapiserver.APIGroupInfo{VersionedResourcesStorageMap: map[string]map[string]rest.Storage{"v1": {"things": nil}}}, nil
}

// starter does something once the server runs, as upstream's provider of RBAC does.
type starter struct{ maker }

func (starter) PostStartHook() (string, genericapiserver.PostStartHookFunc, error) {
	return "starts", nil, nil
}

func TestStorageIsChangedByTheHook(t *testing.T) {
	hook := StorageHook(func(group, version string, resources map[string]rest.Storage) error {
		if group != "example.com" || version != "v1" {
			t.Errorf("called for %s/%s", group, version)
		}
		resources["others"] = nil
		return nil
	})
	info, err := hook.wrapProvider(maker{}).NewRESTStorage(nil, nil)
	if _, there := info.VersionedResourcesStorageMap["v1"]["others"]; err != nil || !there {
		t.Errorf("made %v, %v", info.VersionedResourcesStorageMap, err)
	}
	if _, starts := hook.wrapProvider(maker{}).(genericapiserver.PostStartHookProvider); starts {
		t.Error("a provider that does nothing at the start is said to do something")
	}
	starts, ok := hook.wrapProvider(starter{}).(genericapiserver.PostStartHookProvider)
	if !ok {
		t.Fatal("what a provider does once the server runs is lost")
	}
	if name, _, _ := starts.PostStartHook(); name != "starts" {
		t.Errorf("at the start: %q", name)
	}
	hook = func(string, string, map[string]rest.Storage) error { return errors.New("broken") }
	if _, err := hook.wrapProvider(maker{}).NewRESTStorage(nil, nil); err == nil {
		t.Error("the hook's error is lost")
	}
	if StorageHook(nil).wrapProvider(maker{}) != (maker{}) {
		t.Error("no hook changes something")
	}
}
