package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// defaultAccount is the service account that a cluster gives to a Pod without one.
const defaultAccount = "default"

// acceptTokensWithoutServiceAccount lets a Pod without a service account state a projected token. In a cluster,
// admission has given the Pod an account before it is validated. On the hub that is up to the members.
func acceptTokensWithoutServiceAccount(store *genericregistry.Store) {
	store.CreateStrategy = podAccountCreate{store.CreateStrategy}
	store.UpdateStrategy = podAccountUpdate{store.UpdateStrategy}
}

type podAccountCreate struct{ rest.RESTCreateStrategy }

func (s podAccountCreate) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.RESTCreateStrategy.Validate(ctx, withServiceAccount(obj))
}

type podAccountUpdate struct{ rest.RESTUpdateStrategy }

func (s podAccountUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.RESTUpdateStrategy.ValidateUpdate(ctx, withServiceAccount(obj), withServiceAccount(old))
}

// withServiceAccount returns the Pod with the account that members give it. The object stays as it is.
func withServiceAccount(obj runtime.Object) runtime.Object {
	pod, ok := obj.(*api.Pod)
	if !ok || pod.Spec.ServiceAccountName != "" {
		return obj
	}
	given := *pod
	given.Spec.ServiceAccountName = defaultAccount
	return &given
}
