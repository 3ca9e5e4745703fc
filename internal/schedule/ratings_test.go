package schedule

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The next end of what rates a cluster is known, of objects of all namespaces, as long as
// they are there; a clone changes apart.
func TestRatingsEnd(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	score := func(ns, name, cluster string, end int) *v1alpha1.ClusterScore {
		o := &v1alpha1.ClusterScore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.ClusterScoreSpec{ClusterName: cluster}}
		if end != 0 {
			until := metav1.NewTime(at(end))
			o.Spec.ValidUntil = &until
		}
		return o
	}
	r := NewRatings()
	for _, o := range []*v1alpha1.ClusterScore{score("shop", "x", "a", 9), score("bank", "x", "a", 5), score("bank", "y", "a", -5), score("shop", "y", "b", 0)} {
		r.PutScore(o)
	}
	ends := func(r *ClusterRatings, cluster string, want time.Time) {
		t.Helper()
		if got := r.NextExpiry(cluster, now); !got.Equal(want) {
			t.Errorf("what rates %s ends at %s, want %s", cluster, got, want)
		}
	}
	ends(&r, "a", at(5))
	ends(&r, "b", time.Time{})
	if got := r.ExpiringClusters(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("ending are %q", got)
	}
	if got := r.NextExpiry("a", at(5)); !got.Equal(at(9)) {
		t.Errorf("after the first the next is %s", got)
	}
	other := r.Clone()
	other.PutScore(score("bank", "x", "b", 7))
	ends(&other, "a", at(9))
	ends(&other, "b", at(7))
	other.RemoveScore("shop", "x")
	other.RemoveScore("bank", "y")
	ends(&other, "a", time.Time{})
	ends(&r, "a", at(5))
	ends(&r, "b", time.Time{})
}

func TestOnlyListedPropertiesAreSeen(t *testing.T) {
	c := newCluster("a")
	c.AddListedProperties([]v1alpha1.ClusterProperty{{Name: "gpus", Value: "4"}, {Name: "secret", Value: "x"}}, []string{"cpus", "gpus"})
	if len(c.Properties) != 1 || c.Properties["gpus"] != "4" {
		t.Errorf("properties %v", c.Properties)
	}
}

// The first object by name that rates a cluster by a measure and has not expired counts. Each
// namespace has its own.
func TestTheFirstValidRatingCounts(t *testing.T) {
	r := NewRatings()
	put := func(ns, name, cluster string, until *time.Time, scores ...v1alpha1.NamedScore) (was string) {
		o := &v1alpha1.ClusterScore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.ClusterScoreSpec{ClusterName: cluster, Scores: scores}}
		if until != nil {
			end := metav1.NewTime(*until)
			o.Spec.ValidUntil = &end
		}
		return r.PutScore(o)
	}
	value := func(name string, n int32) v1alpha1.NamedScore {
		return v1alpha1.NamedScore{Name: name, Value: n}
	}
	soon := now.Add(time.Minute)
	put("shop", "c", "a", nil, value("price", 3), value("noise", 30))
	put("shop", "b", "a", &soon, value("price", 2))
	put("shop", "d", "a", nil, value("price", 4))
	put("shop", "a", "b", nil, value("price", 9))
	put(atoll.SystemNamespace, "x", "a", nil, value("price", 500), value("age", 50))
	expect := func(when string, cluster, measure string, at time.Time, want int64, rated bool) {
		t.Helper()
		if got, is := r.RatingOf("shop", cluster, measure, at); got != want || is != rated {
			t.Errorf("%s: %s of %s is %d, rated %t; want %d, %t", when, measure, cluster, got, is, want, rated)
		}
	}
	expect("the first by name", "a", "price", now, 2, true)
	expect("a moment before it ends", "a", "price", soon.Add(-1), 2, true)
	expect("at its end", "a", "price", soon, 3, true)
	expect("another measure", "a", "noise", now, 30, true)
	expect("no such measure", "a", "age", now, 0, false)
	expect("another cluster", "b", "price", now, 9, true)
	if was := put("shop", "b", "b", nil, value("price", 7)); was != "a" || !r.HasObject("shop", "b") {
		t.Errorf("the object b rated %q before", was)
	}
	expect("it rates another cluster", "a", "price", now, 3, true)
	expect("the other cluster has an earlier one", "b", "price", now, 9, true)
	if r.RemoveScore("shop", "a") != "b" || r.RemoveScore("shop", "a") != "" || r.HasObject("shop", "a") {
		t.Error("the object a is removed once, from b")
	}
	expect("without the first", "b", "price", now, 7, true)
	a := newCluster("a")
	for _, tc := range []struct {
		scope   PlacementScope
		measure string
		want    int64
	}{
		{PlacementScope{Namespace: "shop"}, "price", 3}, {PlacementScope{Namespace: "shop"}, "age", 50}, {PlacementScope{Namespace: "bank"}, "price", 500},
		{PlacementScope{Namespace: "shop", Source: v1alpha1.SourceClusterPropagationPolicy}, "price", 500}, {PlacementScope{}, "price", 500}, {PlacementScope{}, "none", 0},
	} {
		if got := tc.scope.RatingOf(&r, &a, tc.measure, now); got != tc.want {
			t.Errorf("%+v: %s is %d, want %d", tc.scope, tc.measure, got, tc.want)
		}
	}
}
