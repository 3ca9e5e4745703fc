package setstatus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestSetStatus(t *testing.T) {
	exclusive := &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "eu", Generation: 2}}
	selecting := exclusive.DeepCopy()
	selecting.Spec.ClusterSelector = v1alpha1.ClusterSetSelector{SelectorType: v1alpha1.SelectByLabels, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
	for name, test := range map[string]struct {
		set      *v1alpha1.ClusterSet
		clusters int
		status   metav1.ConditionStatus
		reason   string
		message  string
	}{
		"exclusive, empty": {exclusive, 0, metav1.ConditionTrue, "NoClusterMatched", "no cluster is in the set: label a Cluster with atoll.dev/set=eu, or join one with a token of the set"},
		"by labels, empty": {selecting, 0, metav1.ConditionTrue, "NoClusterMatched", "no cluster has the labels of spec.clusterSelector: label a Cluster, or change the selector"},
		"with clusters":    {selecting, 7, metav1.ConditionFalse, "ClustersSelected", "clusters are in the set"},
	} {
		got := setStatus(test.set, test.clusters)
		c := meta.FindStatusCondition(got.Conditions, "ClusterSetEmpty")
		if got.ObservedGeneration != 2 || got.Clusters == nil || int(*got.Clusters) != test.clusters || len(got.Conditions) != 1 || c == nil {
			t.Fatalf("%s: %+v", name, got)
		}
		if c.Status != test.status || c.Reason != test.reason || c.Message != test.message || c.ObservedGeneration != 2 {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// setTable is one ClusterSet with a number of clusters, as the store has it.
type setTable struct {
	client   client.Client
	name     string
	clusters atomic.Int32
	changed  func(set string)
}

func (x *setTable) Get(name string) (*v1alpha1.ClusterSet, bool) {
	set := &v1alpha1.ClusterSet{}
	return set, x.client.Get(context.Background(), types.NamespacedName{Name: name}, set) == nil
}
func (x *setTable) GetBinding(types.NamespacedName) (*v1alpha1.ClusterSetBinding, bool) {
	return nil, false
}
func (x *setTable) ListBindings() []types.NamespacedName             { return nil }
func (x *setTable) SubscribeBindings(func(key types.NamespacedName)) {}
func (x *setTable) CountClusters(string) int                         { return int(x.clusters.Load()) }
func (x *setTable) ListSets() []string                               { return []string{x.name} }
func (x *setTable) SubscribeSets(fn func(set string))                { x.changed = fn }

// TestSetsAreWrittenAtMostOnceInTenSeconds: changes of the number wait for each other, and an edit of the set does not wait.
func TestSetsAreWrittenAtMostOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		var writes atomic.Int32
		c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ClusterSet{}).
			WithObjects(&v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "eu", Generation: 1}}).
			WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				writes.Add(1)
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			}}).Build()
		x := &setTable{client: c, name: "eu"}
		w := New(x, x, c, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		check := func(when string, wantWrites, wantClusters int32) {
			t.Helper()
			synctest.Wait()
			set, _ := x.Get("eu")
			if writes.Load() != wantWrites || set.Status.Clusters == nil || *set.Status.Clusters != wantClusters {
				t.Fatalf("%s: %d writes, %+v", when, writes.Load(), set.Status)
			}
		}
		check("at the start", 1, 0)
		for range 5 {
			x.clusters.Add(1)
			x.changed("eu")
			check("within the interval", 1, 0)
		}
		time.Sleep(countInterval)
		check("after the interval", 2, 5)
		x.changed("eu")
		check("without a change", 2, 5)
		set, _ := x.Get("eu")
		set.Generation = 2
		if err := c.Update(ctx, set); err != nil {
			t.Fatal(err)
		}
		x.clusters.Store(0)
		x.changed("eu")
		check("after an edit", 3, 0)
		x.changed("gone")
		check("a set that does not exist", 3, 0)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
