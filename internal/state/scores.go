package state

import (
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
)

// Scores is the table of ClusterScores.
type Scores struct {
	mu sync.RWMutex
	// rated lists, by namespace and cluster, the objects by name.
	rated map[[2]string][]*v1alpha1.ClusterScore
	// of an object: the cluster that it rates.
	of map[[2]string]string
	notifier[string]
}

func newScores() *Scores {
	return &Scores{rated: map[[2]string][]*v1alpha1.ClusterScore{}, of: map[[2]string]string{}}
}

// Of a cluster by a measure, from 0 to 1000, as the objects of one namespace rate it at
// that time; false where none does.
func (s *Scores) Of(namespace, cluster, measure string, now time.Time) (value int64, rated bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, o := range s.rated[[2]string{namespace, cluster}] {
		if o.Spec.ValidUntil != nil && !now.Before(o.Spec.ValidUntil.Time) {
			continue
		}
		for i := range o.Spec.Scores {
			if o.Spec.Scores[i].Name == measure {
				return int64(o.Spec.Scores[i].Value), true
			}
		}
	}
	return 0, false
}

// Subscribe to names of clusters that are rated otherwise.
func (s *Scores) Subscribe(fn func(cluster string)) { s.subscribe(fn) }

func (s *Scores) put(obj client.Object) {
	o := obj.(*v1alpha1.ClusterScore)
	s.mu.Lock()
	was := s.forget(o)
	key := [2]string{o.Namespace, o.Spec.ClusterName}
	list := slices.Clone(s.rated[key])
	at, _ := slices.BinarySearchFunc(list, o.Name, func(o *v1alpha1.ClusterScore, name string) int { return strings.Compare(o.Name, name) })
	s.rated[key], s.of[[2]string{o.Namespace, o.Name}] = slices.Insert(list, at, o), o.Spec.ClusterName
	s.mu.Unlock()
	if was != "" && was != o.Spec.ClusterName {
		s.notify(was)
	}
	s.notify(o.Spec.ClusterName)
}

func (s *Scores) drop(obj client.Object) {
	s.mu.Lock()
	was := s.forget(obj)
	s.mu.Unlock()
	if was != "" {
		s.notify(was)
	}
}

// forget an object, and tell which cluster it rated. The caller holds the lock.
func (s *Scores) forget(obj client.Object) (cluster string) {
	id := [2]string{obj.GetNamespace(), obj.GetName()}
	cluster, known := s.of[id]
	if !known {
		return ""
	}
	delete(s.of, id)
	key := [2]string{obj.GetNamespace(), cluster}
	rest := slices.DeleteFunc(slices.Clone(s.rated[key]), func(o *v1alpha1.ClusterScore) bool { return o.Name == obj.GetName() })
	if s.rated[key] = rest; len(rest) == 0 {
		delete(s.rated, key)
	}
	return cluster
}
