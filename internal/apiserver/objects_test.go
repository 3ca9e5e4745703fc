package apiserver_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/testwait"
)

// The garbage collector reads Clusters from the store.
func TestClustersAreCollected(t *testing.T) {
	t.Parallel()
	// It looks for new kinds every half minute, and as soon as it runs.
	o := testOptions(t.TempDir())
	o.NoControllers = true
	s := start(t, o)
	createDefinitions(t, s)
	leading, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.RunControllers(leading) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controllers: %v", err)
		}
	})
	api, _ := newClients(t, s)
	named := func(name string, owners ...metav1.OwnerReference) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
		if err := api.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	owner := named("owner")
	named("owned", metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)})
	named("other")
	if err := api.Delete(t.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "what was owned is gone, then its owner", func(ctx context.Context) (bool, string) {
		var c v1alpha1.Cluster
		owned, owner := api.Get(ctx, client.ObjectKey{Name: "owned"}, &c), api.Get(ctx, client.ObjectKey{Name: "owner"}, &c)
		return apierrors.IsNotFound(owned) && apierrors.IsNotFound(owner), fmt.Sprint(owned, owner)
	})
	if err := api.Get(t.Context(), client.ObjectKey{Name: "other"}, &v1alpha1.Cluster{}); err != nil {
		t.Errorf("deleted without an order: %v", err)
	}
}
