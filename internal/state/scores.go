package state

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// ClusterScoreTable is the table of ClusterScores.
type ClusterScoreTable struct {
	mu      sync.RWMutex
	ratings schedule.ClusterRatings
	notifier[string]
}

func newScores() *ClusterScoreTable { return &ClusterScoreTable{ratings: schedule.NewRatings()} }

// RatingOf returns the rating of a cluster by a measure, from 0 to 1000, as the objects of one namespace rate it at
// that time; false where none does.
func (s *ClusterScoreTable) RatingOf(namespace, cluster, measure string, now time.Time) (value int64, rated bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.RatingOf(namespace, cluster, measure, now)
}

// HasObject reports whether there is an object of that name.
func (s *ClusterScoreTable) HasObject(namespace, name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.HasObject(namespace, name)
}

// NextExpiry returns when the next rating of the cluster expires; zero: never.
func (s *ClusterScoreTable) NextExpiry(cluster string, now time.Time) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.NextExpiry(cluster, now)
}

// ClustersWithExpiry lists the clusters of which something that rates them has an end, sorted.
func (s *ClusterScoreTable) ClustersWithExpiry() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.ExpiringClusters()
}

// Subscribe subscribes to names of clusters that are rated otherwise.
func (s *ClusterScoreTable) Subscribe(fn func(cluster string)) { s.addSubscriber(fn) }

func (s *ClusterScoreTable) put(obj client.Object) {
	o := obj.(*v1alpha1.ClusterScore)
	was, changed := "", []string{o.Spec.ClusterName}
	runLocked(&s.mu, func() { was = s.ratings.PutScore(o) })
	if was != "" && was != o.Spec.ClusterName {
		changed = []string{was, o.Spec.ClusterName}
	}
	s.notifyEach(changed)
}

func (s *ClusterScoreTable) removeObject(obj client.Object) {
	was := ""
	runLocked(&s.mu, func() { was = s.ratings.RemoveScore(obj.GetNamespace(), obj.GetName()) })
	if was != "" {
		s.notifyAll(was)
	}
}
