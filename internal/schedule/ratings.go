package schedule

import (
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Ratings are what ClusterScores say. Make it with NewRatings; not for several goroutines
// at once.
type Ratings struct {
	// rated lists, by namespace and cluster, the objects by name; lists are replaced,
	// never changed.
	rated map[[2]string][]*v1alpha1.ClusterScore
	// of an object: the cluster that it rates.
	of map[[2]string]string
	// ends are when objects that rate a cluster stop to count; lists are replaced, never
	// changed.
	ends map[string][]ending
}

// ending of the object of that namespace and name.
type ending struct {
	object [2]string
	at     time.Time
}

// NewRatings of nothing.
func NewRatings() Ratings {
	return Ratings{rated: map[[2]string][]*v1alpha1.ClusterScore{}, of: map[[2]string]string{}, ends: map[string][]ending{}}
}

// Clone of it, which changes apart.
func (r *Ratings) Clone() Ratings {
	return Ratings{rated: maps.Clone(r.rated), of: maps.Clone(r.of), ends: maps.Clone(r.ends)}
}

// Ends tells when the next of what rates the cluster stops to count; zero: nothing will.
func (r *Ratings) Ends(cluster string, now time.Time) (next time.Time) {
	for _, e := range r.ends[cluster] {
		if now.Before(e.at) && (next.IsZero() || e.at.Before(next)) {
			next = e.at
		}
	}
	return next
}

// Ending lists the clusters of which something that rates them has an end, sorted.
func (r *Ratings) Ending() []string { return slices.Sorted(maps.Keys(r.ends)) }

// Of a cluster by a measure, from 0 to 1000, as the objects of one namespace rate it at
// that time; false where none does.
func (r *Ratings) Of(namespace, cluster, measure string, now time.Time) (value int64, rated bool) {
	for _, o := range r.rated[[2]string{namespace, cluster}] {
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

// Knows tells whether an object of that name rates any cluster.
func (r *Ratings) Knows(namespace, name string) bool {
	_, known := r.of[[2]string{namespace, name}]
	return known
}

// Put an object, and tell which cluster it rated before; empty if none.
func (r *Ratings) Put(o *v1alpha1.ClusterScore) (was string) {
	was = r.Forget(o.Namespace, o.Name)
	key := [2]string{o.Namespace, o.Spec.ClusterName}
	list := slices.Clone(r.rated[key])
	at, _ := slices.BinarySearchFunc(list, o.Name, func(o *v1alpha1.ClusterScore, name string) int { return strings.Compare(o.Name, name) })
	r.rated[key], r.of[[2]string{o.Namespace, o.Name}] = slices.Insert(list, at, o), o.Spec.ClusterName
	if o.Spec.ValidUntil != nil {
		name := o.Spec.ClusterName
		r.ends[name] = append(slices.Clip(r.ends[name]), ending{[2]string{o.Namespace, o.Name}, o.Spec.ValidUntil.Time})
	}
	return was
}

// Forget an object, and tell which cluster it rated; empty if there is none of that name.
func (r *Ratings) Forget(namespace, name string) (cluster string) {
	id := [2]string{namespace, name}
	cluster, known := r.of[id]
	if !known {
		return ""
	}
	delete(r.of, id)
	key := [2]string{namespace, cluster}
	rest := slices.DeleteFunc(slices.Clone(r.rated[key]), func(o *v1alpha1.ClusterScore) bool { return o.Name == name })
	if r.rated[key] = rest; len(rest) == 0 {
		delete(r.rated, key)
	}
	if ends := r.ends[cluster]; len(ends) > 0 {
		if ends = slices.DeleteFunc(slices.Clone(ends), func(e ending) bool { return e.object == id }); len(ends) > 0 {
			r.ends[cluster] = ends
		} else {
			delete(r.ends, cluster)
		}
	}
	return cluster
}

// RatedFor gives how clusters are rated for what such a source places in the namespace: by
// what its people say of them, then by what the hub's do. What a cluster policy places is
// rated by the hub's people alone. of is a table's, such as Ratings.Of.
func RatedFor(namespace, source string, of func(namespace, cluster, measure string, now time.Time) (int64, bool), now func() time.Time) func(c *Cluster, measure string) int64 {
	return func(c *Cluster, measure string) int64 {
		at := now()
		if namespace != "" && source != v1alpha1.SourceClusterPropagationPolicy {
			if value, ok := of(namespace, c.Name, measure, at); ok {
				return value
			}
		}
		value, _ := of(atoll.SystemNamespace, c.Name, measure, at)
		return value
	}
}

// See the properties that a Cluster's agent reported, of those that the hub's admin listed:
// sorted, without doubles.
func (c *Cluster) See(reported []v1alpha1.ClusterProperty, listed []string) {
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
