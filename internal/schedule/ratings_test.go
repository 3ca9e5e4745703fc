package schedule

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
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
