package state

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/schedule"
)

// Scores is the table of ClusterScores.
type Scores struct {
	mu      sync.RWMutex
	ratings schedule.Ratings
	notifier[string]
}

func newScores() *Scores { return &Scores{ratings: schedule.NewRatings()} }

// Of a cluster by a measure, from 0 to 1000, as the objects of one namespace rate it at
// that time; false where none does.
func (s *Scores) Of(namespace, cluster, measure string, now time.Time) (value int64, rated bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.Of(namespace, cluster, measure, now)
}

// Knows tells whether there is an object of that name.
func (s *Scores) Knows(namespace, name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.Knows(namespace, name)
}

// Ends tells when the next of what rates the cluster stops to count; zero: nothing will.
func (s *Scores) Ends(cluster string, now time.Time) time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.Ends(cluster, now)
}

// Ending lists the clusters of which something that rates them has an end, sorted.
func (s *Scores) Ending() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ratings.Ending()
}

// Subscribe to names of clusters that are rated otherwise.
func (s *Scores) Subscribe(fn func(cluster string)) { s.subscribe(fn) }

func (s *Scores) put(obj client.Object) {
	o := obj.(*v1alpha1.ClusterScore)
	s.mu.Lock()
	was := s.ratings.Put(o)
	s.mu.Unlock()
	if was != "" && was != o.Spec.ClusterName {
		s.notify(was)
	}
	s.notify(o.Spec.ClusterName)
}

func (s *Scores) drop(obj client.Object) {
	s.mu.Lock()
	was := s.ratings.Forget(obj.GetNamespace(), obj.GetName())
	s.mu.Unlock()
	if was != "" {
		s.notify(was)
	}
}
