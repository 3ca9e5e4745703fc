package place

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// decideTries is how often a Bundle is decided on while others take what it chose.
const decideTries = 4

// decide gathers a snapshot, and reserves what its decision is about to place; that ends
// when what was written can be read. Bundles that are placed at the same time would all
// take the clusters that have fewest, and leave those that have most: who chose one that
// another step has taken meanwhile, or leaves one that another has left, decides again.
func (r *Reconciler) decide(ctx context.Context, b state.Bundle, v view) (snap snapshot, end func(), err error) {
	for try := 1; ; try++ {
		if snap, err = r.gather(ctx, b, v); err != nil {
			return snap, nil, err
		}
		if !v.filter.Chooses() {
			return snap, func() {}, nil
		}
		moves := snap.moves()
		if r.index.reserve(moves, snap.reserved, try == decideTries) {
			return snap, func() { r.index.release(moves) }, nil
		}
	}
}

// moves tells, by the names of clusters, how many pods the decision brings there, and how
// many it takes from those that the Bundle leaves for others that score better.
func (s *snapshot) moves() map[string]int64 {
	moves, each := map[string]int64{}, s.each()
	for i := range s.in.Decision.Verdicts {
		v := &s.in.Decision.Verdicts[i]
		row, has := s.in.Rows[v.Cluster]
		better := v.Filter == schedule.FilterRebalance || v.Filter == schedule.FilterMove
		switch {
		case v.Outcome == schedule.Placed && !has:
			moves[v.Cluster] += each
		case v.Outcome == schedule.Leaves && better && has && row.Spec.Phase == atoll.RowActive:
			moves[v.Cluster] -= max(row.Spec.Pods, 1)
		}
	}
	return moves
}

// each cluster that comes gets about so many pods.
func (s *snapshot) each() int64 {
	shared := int64(0)
	for _, w := range s.in.Decision.Workloads() {
		shared += pods(w.Replicas) / int64(max(s.placed(), 1))
	}
	return max(pods(s.pods+shared), 1)
}

// pods that so many replicas count as: few enough that all of a cluster have a sum.
func pods(replicas int64) int64 { return min(max(replicas, 0), schedule.MaxWeight) }

// weigh the rows that change by the pods that they ask for.
func (s *snapshot) weigh(changes map[string]*atoll.RowSpec) {
	for _, spec := range changes {
		if spec == nil || spec.Phase != atoll.RowActive {
			continue
		}
		spec.Pods = s.pods
		for _, n := range spec.Assigned {
			spec.Pods += pods(n)
		}
		spec.Pods = pods(spec.Pods)
		if spec.Pods <= 1 {
			spec.Pods = 0 // which stands for 1
		}
	}
}

// podsOf tells of clusters how many pods they were assigned, and are about to be, or about
// not to be any more, by steps that have reserved that.
func (r *Reconciler) podsOf(reserved map[string]int64) func(c *schedule.Cluster) int64 {
	return func(c *schedule.Cluster) int64 { return r.Rows.PodsOf(c.UID) + reserved[c.Name] }
}

// reservations as they are now.
func (x *index) reservations() map[string]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.reserved)
}

// reserve what moves, unless others did so in one of the clusters, the same way, since it
// was seen; anyway does it all the same.
func (x *index) reserve(moves, seen map[string]int64, anyway bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, by := range moves {
		if others := x.reserved[name] - seen[name]; !anyway && (others > 0 && by > 0 || others < 0 && by < 0) {
			return false
		}
	}
	for name, by := range moves {
		x.shift(name, by)
	}
	return true
}

func (x *index) release(moves map[string]int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, by := range moves {
		x.shift(name, -by)
	}
}

// shift what is reserved in a cluster. The caller holds the lock.
func (x *index) shift(name string, by int64) {
	if x.reserved[name] += by; x.reserved[name] == 0 {
		delete(x.reserved, name)
	}
}

// near gives the clusters of the Bundles that one asks for, by Bundle: of its own
// namespace, so that nobody learns or steers anything by the Bundles of others.
func (r *Reconciler) near(b state.Bundle) func(*v1alpha1.NearBundles) [][]atoll.ClusterView {
	return func(n *v1alpha1.NearBundles) [][]atoll.ClusterView {
		sel, err := metav1.LabelSelectorAsSelector(n.LabelSelector) // nil selects nothing
		if err != nil {
			sel = labels.Nothing() // admission keeps that out
		}
		var out [][]atoll.ClusterView
		for _, o := range r.Bundles.InNamespace(b.Ref.Namespace) {
			named := slices.Contains(n.Names, o.Ref.Name) || slices.Contains(n.Names, o.Spec.Source.Name)
			if o.Ref.UID == b.Ref.UID || !named && !sel.Matches(labels.Set(o.Meta.Labels)) {
				continue
			}
			var names []string
			for _, row := range r.Rows.OfBundle(o.Ref.UID) {
				if row.Spec.Phase == atoll.RowActive {
					names = append(names, row.Cluster)
				}
			}
			var views []atoll.ClusterView
			for _, c := range r.index.clusters(names) {
				views = append(views, c.ClusterView)
			}
			if len(views) > 0 {
				out = append(out, views)
			}
		}
		return out
	}
}

// Scores is the table of ClusterScores.
type Scores interface {
	Of(namespace, cluster, measure string, now time.Time) (value int64, rated bool)
	// Ends tells when the next of what rates the cluster stops to count, of which nobody
	// else tells; zero: nothing will. Ending lists the clusters of which something does.
	Ends(cluster string, now time.Time) time.Time
	Ending() []string
	Subscribe(fn func(cluster string))
}

// noScores rate nothing.
type noScores struct{}

func (noScores) Of(string, string, string, time.Time) (int64, bool) { return 0, false }
func (noScores) Ends(string, time.Time) time.Time                   { return time.Time{} }
func (noScores) Ending() []string                                   { return nil }
func (noScores) Subscribe(func(string))                             {}

// rated gives how clusters are rated for a Bundle of the namespace that such a source
// placed.
func (r *Reconciler) rated(namespace, source string) func(c *schedule.Cluster, measure string) int64 {
	return schedule.RatedFor(namespace, source, r.Scores.Of, time.Now)
}

// ratedAnew: a cluster is rated otherwise; that matters to who may move.
func (r *Reconciler) ratedAnew(cluster string) {
	r.scored(cluster)
	r.awaitEnd(cluster)
}

// awaitEnd of what rates a cluster: then it is rated otherwise, and nobody says so.
func (r *Reconciler) awaitEnd(cluster string) {
	now := time.Now()
	r.mu.Lock()
	q := r.scores
	r.mu.Unlock()
	if at := r.Scores.Ends(cluster, now); q != nil && !at.IsZero() {
		q.AddAfter(cluster, at.Sub(now))
	}
}

// reserveAge is how long a reserve holds: scores move on, and what comes is to be the best
// of a time that is not long ago.
const reserveAge = time.Minute

// enough tells whether a decision over a reserve is one that all of the fleet would have
// come to: it chose all that it wanted, and of each kind no more than the reserve has.
func (s *snapshot) enough() bool {
	come := 0
	for i := range s.in.Decision.Verdicts {
		v := &s.in.Decision.Verdicts[i]
		if _, has := s.in.Rows[v.Cluster]; v.Outcome == schedule.Placed && !has {
			come++
		}
	}
	return come <= schedule.ReserveDepth && !s.in.Decision.Hungry && !s.in.Decision.NoFit
}

// spend the reserve of a Bundle: the next look is at all of the fleet.
func (x *index) spend(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		e.reserve = nil
	}
}

// Feed a decision for a namespace, that is of no Bundle, with what scores ask for.
func (r *Reconciler) Feed(in *schedule.Input, namespace string) {
	source := v1alpha1.SourcePropagationPolicy
	if namespace == "" {
		source = v1alpha1.SourceClusterPropagationPolicy
	}
	var b state.Bundle
	b.Ref.Namespace = namespace
	in.Load, in.Near, in.Rated = r.podsOf(r.index.reservations()), r.near(b), r.rated(namespace, source)
	in.Healthy = r.healthy
}
