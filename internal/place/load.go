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
// take the clusters that have fewest: who chose one that another step has taken meanwhile
// decides again.
func (r *Reconciler) decide(ctx context.Context, b state.Bundle, v view) (snap snapshot, end func(), err error) {
	for try := 1; ; try++ {
		if snap, err = r.gather(ctx, b, v); err != nil {
			return snap, nil, err
		}
		if !v.filter.Chooses() {
			return snap, func() {}, nil
		}
		uids := snap.news()
		if r.index.reserve(uids, snap.reserved, try == decideTries) {
			return snap, func() { r.index.release(uids) }, nil
		}
	}
}

// news are the UIDs of the clusters that get a row of the Bundle.
func (s *snapshot) news() (uids []string) {
	for i := range s.in.Decision.Verdicts {
		v := &s.in.Decision.Verdicts[i]
		if _, has := s.in.Rows[v.Cluster]; v.Outcome == schedule.Placed && !has {
			uids = append(uids, v.UID)
		}
	}
	return uids
}

// loads tells of clusters how many Bundles they have, and are about to get by steps that
// have reserved them.
func (r *Reconciler) loads(reserved map[string]int64) func(c *schedule.Cluster) int64 {
	return func(c *schedule.Cluster) int64 { return int64(r.Rows.CountOf(c.UID)) + reserved[c.UID] }
}

// reservations as they are now.
func (x *index) reservations() map[string]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.reserved)
}

// reserve a row in each of the clusters, unless one of them was reserved by others since
// it was seen; anyway does it all the same.
func (x *index) reserve(uids []string, seen map[string]int64, anyway bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !anyway && slices.ContainsFunc(uids, func(uid string) bool { return x.reserved[uid] > seen[uid] }) {
		return false
	}
	for _, uid := range uids {
		x.reserved[uid]++
	}
	return true
}

func (x *index) release(uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, uid := range uids {
		if x.reserved[uid]--; x.reserved[uid] == 0 {
			delete(x.reserved, uid)
		}
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

// rescore looks at the Bundles that may move now that a cluster scores otherwise.
func (r *Reconciler) rescore(c schedule.Cluster) {
	loads := r.loads(r.index.reservations())
	for _, e := range r.index.movables() {
		row, has := r.Rows.Get(e.uid, c.Name)
		holds := has && row.Spec.UID == c.UID
		if (holds || e.filter.Admits(&c)) && e.filter.Moves(&c, holds, &schedule.Input{Load: loads, Rated: r.rated(e.namespace, e.source)}, e.standing) {
			r.touched(e.uid, c.Name)
		}
	}
}

// movables are the Bundles that may move when scores change.
func (x *index) movables() []entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]entry, 0, len(x.movable))
	for uid := range x.movable {
		if e := x.entries[uid]; e != nil {
			out = append(out, *e)
		}
	}
	return out
}

// stands notes how scores stood when the Bundle was decided. The caller holds the lock.
func (x *index) stands(e *entry, w written) {
	e.namespace, e.source = w.bundle.Ref.Namespace, w.bundle.Spec.Source.Kind
	if e.standing = w.standing; e.standing != nil {
		x.movable[e.uid] = struct{}{}
	} else {
		delete(x.movable, e.uid)
	}
}

// Scores is the table of ClusterScores.
type Scores interface {
	Of(namespace, cluster, measure string, now time.Time) (value int64, rated bool)
	Subscribe(fn func(cluster string))
}

// noScores rate nothing.
type noScores struct{}

func (noScores) Of(string, string, string, time.Time) (int64, bool) { return 0, false }
func (noScores) Subscribe(func(string))                             {}

// rated gives how clusters are rated for a Bundle of the namespace that such a source
// placed.
func (r *Reconciler) rated(namespace, source string) func(c *schedule.Cluster, measure string) int64 {
	return schedule.RatedFor(namespace, source, r.Scores.Of, time.Now)
}

// ratedAnew: a cluster is rated otherwise; that matters to who may move.
func (r *Reconciler) ratedAnew(cluster string) {
	if cs := r.index.clusters([]string{cluster}); len(cs) == 1 {
		r.rescore(cs[0])
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
	in.Load, in.Near, in.Rated = r.loads(r.index.reservations()), r.near(b), r.rated(namespace, source)
}
