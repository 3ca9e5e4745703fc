package setstatus

import (
	"context"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

var key = types.NamespacedName{Namespace: "shop", Name: "eu"}

func newBinding(status v1alpha1.ClusterSetBindingStatus) *v1alpha1.ClusterSetBinding {
	return &v1alpha1.ClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 3},
		Spec:       v1alpha1.ClusterSetBindingSpec{ClusterSet: key.Name}, Status: status,
	}
}

func TestBindingStatus(t *testing.T) {
	missing := bindingStatus(newBinding(v1alpha1.ClusterSetBindingStatus{}), false)
	if c := missing.Conditions[0]; missing.ObservedGeneration != 3 || c.Type != atoll.ConditionTypes["ClusterSetBinding"][0].Type || c.Status != metav1.ConditionFalse || c.Reason != "ClusterSetMissing" || c.ObservedGeneration != 3 || c.LastTransitionTime.IsZero() {
		t.Errorf("without its set: %+v", missing)
	}
	bound := bindingStatus(newBinding(missing), true)
	if c := bound.Conditions[0]; len(bound.Conditions) != 1 || c.Status != metav1.ConditionTrue || c.Reason != "Bound" {
		t.Errorf("with its set: %+v", bound)
	}
	if len(missing.Conditions) != 1 || missing.Conditions[0].Status != metav1.ConditionFalse {
		t.Error("the old status was changed in place")
	}
}

// table is one binding and maybe its set.
type table struct {
	binding *v1alpha1.ClusterSetBinding
	exists  bool
	changed func(types.NamespacedName)
}

func (x *table) Get(string) (*v1alpha1.ClusterSet, bool) { return nil, x.exists }
func (x *table) GetBinding(types.NamespacedName) (*v1alpha1.ClusterSetBinding, bool) {
	return x.binding, x.binding != nil
}
func (x *table) ListBindings() []types.NamespacedName                { return []types.NamespacedName{key} }
func (x *table) SubscribeBindings(fn func(key types.NamespacedName)) { x.changed = fn }
func (x *table) CountClusters(string) int                            { return 0 }
func (x *table) ListSets() []string                                  { return nil }
func (x *table) SubscribeSets(func(set string))                      {}

// A binding costs one write when it is created and one for each change of its set.
func TestWritesOnChangeOnly(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	writes := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(newBinding(v1alpha1.ClusterSetBindingStatus{})).WithStatusSubresource(&v1alpha1.ClusterSetBinding{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		}}).Build()
	x := &table{}
	w := New(x, x, c, slog.New(slog.DiscardHandler))
	for i, step := range []struct {
		exists bool
		writes int
		reason string
	}{{false, 1, "ClusterSetMissing"}, {false, 1, "ClusterSetMissing"}, {true, 2, "Bound"}, {true, 2, "Bound"}, {false, 3, "ClusterSetMissing"}} {
		x.binding, x.exists = &v1alpha1.ClusterSetBinding{}, step.exists
		if err := c.Get(t.Context(), key, x.binding); err != nil {
			t.Fatal(err)
		}
		if err := w.writeBindingStatus(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, x.binding); err != nil {
			t.Fatal(err)
		}
		if got := x.binding.Status.Conditions[0].Reason; writes != step.writes || got != step.reason {
			t.Errorf("step %d: %d writes, reason %s", i, writes, got)
		}
	}
	x.binding = nil
	if err := w.writeBindingStatus(t.Context(), key); err != nil || writes != 3 {
		t.Errorf("of a deleted binding: %v, %d writes", err, writes)
	}
}

// Run writes what there is, and what changes.
func TestRunWritesAll(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan struct{}, 8)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(newBinding(v1alpha1.ClusterSetBindingStatus{})).WithStatusSubresource(&v1alpha1.ClusterSetBinding{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			wrote <- struct{}{}
			return nil
		}}).Build()
	x := &table{binding: newBinding(v1alpha1.ClusterSetBindingStatus{})}
	w := New(x, x, c, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), testwait.HangLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-wrote
	x.changed(key)
	<-wrote
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
