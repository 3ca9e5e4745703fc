package schedule

import (
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// ClusterRatings are the ratings of all ClusterScores. Make it with NewRatings. It is not
// safe for concurrent use.
type ClusterRatings struct {
	// byCluster lists, by namespace and cluster, the objects by name. Lists are replaced,
	// never changed.
	byCluster map[[2]string][]*v1alpha1.ClusterScore
	// clusterByObject is the cluster that an object rates.
	clusterByObject map[[2]string]string
	// expiries are when objects that rate a cluster expire. Lists are replaced, never
	// changed.
	expiries map[string][]ratingExpiry
}

// ratingExpiry of the object of that namespace and name.
type ratingExpiry struct {
	object    [2]string
	expiresAt time.Time
}

// NewRatings returns a ClusterRatings without ratings.
func NewRatings() ClusterRatings {
	return ClusterRatings{byCluster: map[[2]string][]*v1alpha1.ClusterScore{}, clusterByObject: map[[2]string]string{}, expiries: map[string][]ratingExpiry{}}
}

// Clone returns an independent copy.
func (r *ClusterRatings) Clone() ClusterRatings {
	return ClusterRatings{byCluster: maps.Clone(r.byCluster), clusterByObject: maps.Clone(r.clusterByObject), expiries: maps.Clone(r.expiries)}
}

// NextExpiry returns when the next rating of the cluster expires; zero: none does.
func (r *ClusterRatings) NextExpiry(cluster string, now time.Time) (next time.Time) {
	for _, e := range r.expiries[cluster] {
		if now.Before(e.expiresAt) && (next.IsZero() || e.expiresAt.Before(next)) {
			next = e.expiresAt
		}
	}
	return next
}

// ExpiringClusters lists the clusters that have a rating which expires, sorted.
func (r *ClusterRatings) ExpiringClusters() []string { return slices.Sorted(maps.Keys(r.expiries)) }

// RatingOf returns the rating of a cluster by a measure, from 0 to 1000, by the objects of
// one namespace at that time; false where there is none.
func (r *ClusterRatings) RatingOf(namespace, cluster, measure string, now time.Time) (value int64, rated bool) {
	for _, o := range r.byCluster[[2]string{namespace, cluster}] {
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

// HasObject reports whether an object of that name rates a cluster.
func (r *ClusterRatings) HasObject(namespace, name string) bool {
	_, known := r.clusterByObject[[2]string{namespace, name}]
	return known
}

// PutScore stores an object, and returns the cluster that it rated before; empty if none.
func (r *ClusterRatings) PutScore(o *v1alpha1.ClusterScore) (was string) {
	was = r.RemoveScore(o.Namespace, o.Name)
	key := [2]string{o.Namespace, o.Spec.ClusterName}
	list := slices.Clone(r.byCluster[key])
	at, _ := slices.BinarySearchFunc(list, o.Name, func(o *v1alpha1.ClusterScore, name string) int { return strings.Compare(o.Name, name) })
	r.byCluster[key], r.clusterByObject[[2]string{o.Namespace, o.Name}] = slices.Insert(list, at, o), o.Spec.ClusterName
	if o.Spec.ValidUntil != nil {
		name := o.Spec.ClusterName
		r.expiries[name] = append(slices.Clip(r.expiries[name]), ratingExpiry{[2]string{o.Namespace, o.Name}, o.Spec.ValidUntil.Time})
	}
	return was
}

// RemoveScore removes an object, and returns the cluster that it rated; empty if there is
// none of that name.
func (r *ClusterRatings) RemoveScore(namespace, name string) (cluster string) {
	id := [2]string{namespace, name}
	cluster, known := r.clusterByObject[id]
	if !known {
		return ""
	}
	delete(r.clusterByObject, id)
	key := [2]string{namespace, cluster}
	rest := slices.DeleteFunc(slices.Clone(r.byCluster[key]), func(o *v1alpha1.ClusterScore) bool { return o.Name == name })
	if r.byCluster[key] = rest; len(rest) == 0 {
		delete(r.byCluster, key)
	}
	if ends := r.expiries[cluster]; len(ends) > 0 {
		if ends = slices.DeleteFunc(slices.Clone(ends), func(e ratingExpiry) bool { return e.object == id }); len(ends) > 0 {
			r.expiries[cluster] = ends
		} else {
			delete(r.expiries, cluster)
		}
	}
	return cluster
}

// RatingTable has the ratings of clusters, such as ClusterRatings.
type RatingTable interface {
	RatingOf(namespace, cluster, measure string, now time.Time) (value int64, rated bool)
}

// PlacementScope is what selects the ratings that a placement uses.
type PlacementScope struct {
	Namespace string
	// Source is the kind of what places.
	Source string
}

// RatingOf returns the rating of a cluster for placements of the scope: the namespace's own
// first, then the hub's. Cluster policies use the hub's alone.
func (s PlacementScope) RatingOf(t RatingTable, c *Cluster, measure string, now time.Time) int64 {
	if s.Namespace != "" && s.Source != v1alpha1.SourceClusterPropagationPolicy {
		if value, ok := t.RatingOf(s.Namespace, c.Name, measure, now); ok {
			return value
		}
	}
	value, _ := t.RatingOf(atoll.SystemNamespace, c.Name, measure, now)
	return value
}

// AddListedProperties adds the reported properties of a Cluster that the hub's administrator
// listed. listed is sorted, without duplicates.
func (c *Cluster) AddListedProperties(reported []v1alpha1.ClusterProperty, listed []string) {
	for i := range reported {
		p := &reported[i]
		if _, ok := slices.BinarySearch(listed, p.Name); !ok {
			continue
		}
		if c.Properties == nil {
			c.Properties = map[string]string{}
		}
		c.Properties[p.Name] = p.Value
	}
}
