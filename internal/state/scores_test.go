package state

import (
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

func clusterScore(t *testing.T, namespace, name, spec string) *v1alpha1.ClusterScore {
	t.Helper()
	o := &v1alpha1.ClusterScore{}
	if err := yaml.UnmarshalStrict([]byte("spec: "+spec), o); err != nil {
		t.Fatal(err)
	}
	o.Namespace, o.Name = namespace, name
	return o
}

func TestScoresOfClusters(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := newScores()
	var notified []string
	s.Subscribe(func(c string) { notified = append(notified, c) })
	s.put(clusterScore(t, "shop", "b", "{clusterName: oslo, scores: [{name: price, value: 300}, {name: noise, value: 7}]}"))
	s.put(clusterScore(t, "shop", "a", "{clusterName: oslo, scores: [{name: price, value: 900}], validUntil: '2026-05-01T12:00:00Z'}"))
	s.put(clusterScore(t, "bank", "a", "{clusterName: oslo, scores: [{name: price, value: 1}]}"))
	for _, tc := range []struct {
		field, namespace, cluster, measure string
		at                                 time.Time
		want                               int64
	}{
		{"first by name", "shop", "oslo", "price", now.Add(-time.Second), 900},
		{"validUntil is over", "shop", "oslo", "price", now, 300},
		{"scores.name", "shop", "oslo", "noise", now, 7},
		{"scores.name without an object", "shop", "oslo", "colour", now, -1},
		{"another namespace", "bank", "oslo", "price", now, 1},
		{"clusterName", "shop", "rome", "price", now, -1},
	} {
		value, rated := s.RatingOf(tc.namespace, tc.cluster, tc.measure, tc.at)
		if !rated {
			value = -1
		}
		if value != tc.want {
			t.Errorf("%s: %d, want %d", tc.field, value, tc.want)
		}
	}
	s.put(clusterScore(t, "shop", "b", "{clusterName: rome, scores: [{name: price, value: 5}]}"))
	if _, rated := s.RatingOf("shop", "oslo", "noise", now); rated {
		t.Error("oslo is rated still by what rates rome now")
	}
	s.removeObject(clusterScore(t, "shop", "b", "{clusterName: rome, scores: []}"))
	if _, rated := s.RatingOf("shop", "rome", "price", now); rated {
		t.Error("what is deleted counts still")
	}
	s.removeObject(clusterScore(t, "shop", "b", "{clusterName: rome, scores: []}"))
	if want := []string{"oslo", "oslo", "oslo", "oslo", "rome", "rome"}; !slices.Equal(notified, want) {
		t.Errorf("notified of %v, want %v", notified, want)
	}
}
