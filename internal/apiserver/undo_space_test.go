package apiserver

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/atoll"
)

// fixedSpace is a store in one state.
type fixedSpace struct{ state etcd.StoreSpaceState }

func (s fixedSpace) Space() etcd.StoreSpace            { return etcd.StoreSpace{State: s.state} }
func (fixedSpace) OnSpaceChange(func(etcd.StoreSpace)) {}

// creatingStorage takes each object.
type creatingStorage struct{ storage.Interface }

func (creatingStorage) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return nil
}

// The hub keeps nothing for undo in the reserve of its store, and writes its other objects there.
func TestTheReserveIsNotForUndo(t *testing.T) {
	hub := request.WithUser(t.Context(), &user.DefaultInfo{Name: HubUser, Groups: []string{user.SystemPrivilegedGroup}})
	for _, c := range []struct {
		state      etcd.StoreSpaceState
		secretType core.SecretType
		refused    bool
	}{
		{etcd.SpaceFree, atoll.SecretTypeUndo, false}, {etcd.SpaceReserve, atoll.SecretTypeUndo, true},
		{etcd.SpaceReserve, core.SecretTypeOpaque, false}, {etcd.SpaceFull, atoll.SecretTypeUndo, true},
	} {
		guard, err := newSpaceGuard(fixedSpace{c.state}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := guardedStorage{Interface: creatingStorage{}, guard: guard, resource: schema.GroupResource{Resource: "secrets"}}
		if err := s.Create(hub, "/secrets/x", &core.Secret{Type: c.secretType}, nil, 0); (err != nil) != c.refused {
			t.Errorf("a Secret of type %s in state %v: %v", c.secretType, c.state, err)
		}
	}
}
