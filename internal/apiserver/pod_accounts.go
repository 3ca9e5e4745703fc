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

// acceptMissingAccounts lets a Pod without a service account state a projected token. In a cluster,
// admission has given the Pod an account before it is validated. On the hub that is up to the members.
func acceptMissingAccounts(store *genericregistry.Store) {
	store.CreateStrategy = accountCreate{store.CreateStrategy}
	store.UpdateStrategy = accountUpdate{store.UpdateStrategy}
}

type accountCreate struct{ rest.RESTCreateStrategy }

func (s accountCreate) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.RESTCreateStrategy.Validate(ctx, withAccount(obj))
}

type accountUpdate struct{ rest.RESTUpdateStrategy }

func (s accountUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return s.RESTUpdateStrategy.ValidateUpdate(ctx, withAccount(obj), withAccount(old))
}

// withAccount returns the Pod with the account that members give it. The object stays as it is.
func withAccount(obj runtime.Object) runtime.Object {
	pod, ok := obj.(*api.Pod)
	if !ok || pod.Spec.ServiceAccountName != "" {
		return obj
	}
	given := *pod
	given.Spec.ServiceAccountName = defaultAccount
	return &given
}
