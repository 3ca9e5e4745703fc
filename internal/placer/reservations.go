package placer

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

// maxDecideTries is how often a Bundle is decided while other steps take what it chose.
const maxDecideTries = 4

// decideWithReservation gathers the input of a step, and reserves the pods that its decision
// moves; endStep releases them. Bundles that are placed at the same time would otherwise all
// choose the same clusters. A decision that collides with another step's reservation is made
// again. Last tries are made one after the other, so that they see each other's reservations.
func (r *PlacementReconciler) decideWithReservation(ctx context.Context, b state.Bundle, v bundleView) (snap stepInput, end func(), err error) {
	return r.decideInGroups(&b, func() (stepInput, func(), error) { return r.decideAndReserve(ctx, b, v) })
}

// decideAndReserve is decideWithReservation without groups of workloadAffinity.
func (r *PlacementReconciler) decideAndReserve(ctx context.Context, b state.Bundle, v bundleView) (snap stepInput, end func(), err error) {
	if !v.filter.LimitsClusters() {
		snap, err = r.gatherStepInput(ctx, b, v)
		return snap, func() {}, err
	}
	for try := 1; ; try++ {
		if snap, end, err = r.tryDecideWithReservation(ctx, b, v, try == maxDecideTries); end != nil || err != nil {
			return snap, end, err
		}
	}
}

// tryDecideWithReservation decides once; end is nil when other steps reserved the same clusters since it began.
func (r *PlacementReconciler) tryDecideWithReservation(ctx context.Context, b state.Bundle, v bundleView, last bool) (snap stepInput, end func(), err error) {
	if last {
		r.lastTryMu.Lock()
		defer r.lastTryMu.Unlock()
	}
	began := r.index.beginDeciding()
	defer r.index.endDeciding()
	if snap, err = r.gatherStepInput(ctx, b, v); err != nil {
		return snap, nil, err
	}
	moves := snap.podMoves()
	if !r.index.reservePods(moves, began, last) {
		return snap, nil, nil
	}
	return snap, func() { r.index.releasePods(moves) }, nil
}

// podMoves counts, by cluster name, the pods that the decision adds, less the pods of rows that
// leave for better scores.
func (s *stepInput) podMoves() map[string]int64 {
	moves, each := map[string]int64{}, s.podsPerNewCluster()
	for i := range s.rollout.Decision.Verdicts {
		v := &s.rollout.Decision.Verdicts[i]
		row, has := s.rollout.Rows[v.Cluster]
		better := v.Filter == schedule.FilterRebalance || v.Filter == schedule.FilterRescheduling
		switch {
		case v.Outcome == schedule.OutcomePlaced && !has:
			moves[v.Cluster] += each
		case v.Outcome == schedule.OutcomeLeaves && better && has && row.Spec.Phase.IsChosen():
			moves[v.Cluster] -= max(row.Spec.RequestedPods, 1)
		}
	}
	return moves
}

// podsPerNewCluster returns about how many pods a new cluster gets.
func (s *stepInput) podsPerNewCluster() int64 {
	shared := int64(0)
	for _, w := range s.rollout.Decision.DividedWorkloads() {
		shared += boundPodCount(w.Replicas) / int64(max(s.countPlacedClusters(), 1))
	}
	return max(boundPodCount(s.podsPerRow+shared), 1)
}

// boundPodCount bounds a number of replicas, so that all pods of a cluster have a sum.
func boundPodCount(replicas int64) int64 { return min(max(replicas, 0), schedule.MaxWeight) }

// setRequestedPods sets the requested pods of the rows that change.
func (s *stepInput) setRequestedPods(changes map[string]*atoll.RowSpec) {
	for _, spec := range changes {
		if spec == nil || !spec.Phase.IsChosen() {
			continue
		}
		spec.RequestedPods = s.podsPerRow
		for _, n := range spec.Assigned {
			spec.RequestedPods += boundPodCount(n)
		}
		spec.RequestedPods = boundPodCount(spec.RequestedPods)
		if spec.RequestedPods <= 1 {
			spec.RequestedPods = 0 // stands for 1
		}
	}
}

// podReservations counts the pods that running steps are about to move, which no table shows yet.
type podReservations struct {
	// pods by cluster name, less the pods that are about to be removed.
	pods map[string]int64
	// count numbers the reservations. lastAdded and lastRemoved hold the last number by cluster
	// name; they are kept while a decision is under way, which may be older than a reservation
	// that is released already.
	count                  uint64
	lastAdded, lastRemoved map[string]uint64
	deciding               int
}

func newPodReservations() podReservations {
	return podReservations{pods: map[string]int64{}, lastAdded: map[string]uint64{}, lastRemoved: map[string]uint64{}}
}

// copyReservations copies the current reservations.
func (x *bundleIndex) copyReservations() map[string]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.reserved.pods)
}

// beginDeciding returns the number of the last reservation. The caller calls endDeciding once.
func (x *bundleIndex) beginDeciding() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reserved.deciding++
	return x.reserved.count
}

func (x *bundleIndex) endDeciding() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reserved.deciding--; x.reserved.deciding == 0 {
		clear(x.reserved.lastAdded)
		clear(x.reserved.lastRemoved)
	}
}

// reservePods reserves moves, unless another step reserved pods of the same cluster in the same
// direction since the reservation with the number began. anyway reserves in any case.
func (x *bundleIndex) reservePods(moves map[string]int64, began uint64, anyway bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := &x.reserved
	for name, by := range moves {
		if !anyway && (by > 0 && all.lastAdded[name] > began || by < 0 && all.lastRemoved[name] > began) {
			return false
		}
	}
	all.count++
	for name, by := range moves {
		all.addPods(name, by)
		if by > 0 {
			all.lastAdded[name] = all.count
		} else {
			all.lastRemoved[name] = all.count
		}
	}
	return true
}

func (x *bundleIndex) releasePods(moves map[string]int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, by := range moves {
		x.reserved.addPods(name, -by)
	}
}

// addPods changes the reservation of a cluster.
func (p *podReservations) addPods(name string, by int64) {
	if p.pods[name] += by; p.pods[name] == 0 {
		delete(p.pods, name)
	}
}

// nearbyBundles returns, by index of the scores, the Bundles that a score selects. Only Bundles
// of b's namespace count, so that tenants cannot observe or steer each other.
func (r *PlacementReconciler) nearbyBundles(b state.Bundle, scores []v1alpha1.Score) (out [][]schedule.BundleClusters) {
	for i := range scores {
		n := scores[i].Bundles
		if n == nil {
			continue
		}
		if out == nil {
			out = make([][]schedule.BundleClusters, len(scores))
		}
		out[i] = r.selectNearbyClusters(b, n)
	}
	return out
}

// selectNearbyClusters returns the clusters of the Bundles that NearBundles selects, by Bundle.
func (r *PlacementReconciler) selectNearbyClusters(b state.Bundle, n *v1alpha1.NearBundles) (out []schedule.BundleClusters) {
	sel, err := metav1.LabelSelectorAsSelector(n.LabelSelector) // nil selects nothing
	if err != nil {
		sel = labels.Nothing() // admission refuses invalid selectors
	}
	for _, o := range r.Bundles.InNamespace(b.Ref.Namespace) {
		named := slices.Contains(n.Names, o.Ref.Name) || slices.Contains(n.Names, o.Spec.Source.Name)
		if o.Ref.UID == b.Ref.UID || !named && !sel.Matches(labels.Set(o.Meta.Labels)) {
			continue
		}
		var names []string
		for _, row := range r.Rows.ListOfBundle(o.Ref.UID) {
			if row.Spec.Phase == atoll.RowActive {
				names = append(names, row.Cluster)
			}
		}
		var views schedule.BundleClusters
		for _, c := range r.index.clustersNamed(names) {
			views = append(views, c.ClusterView)
		}
		if len(views) > 0 {
			out = append(out, views)
		}
	}
	return out
}

// Scores is the table of ClusterScores.
type Scores interface {
	RatingOf(namespace, cluster, measure string, now time.Time) (value int64, rated bool)
	// NextExpiry returns when the next rating of the cluster expires, of which there is no
	// event; zero: none expires. ClustersWithExpiry lists the clusters with such ratings.
	NextExpiry(cluster string, now time.Time) time.Time
	ClustersWithExpiry() []string
	Subscribe(fn func(cluster string))
}

// noScores has no ratings.
type noScores struct{}

func (noScores) RatingOf(string, string, string, time.Time) (int64, bool) { return 0, false }
func (noScores) NextExpiry(string, time.Time) time.Time                   { return time.Time{} }
func (noScores) ClustersWithExpiry() []string                             { return nil }
func (noScores) Subscribe(func(string))                                   {}

// ratingChanged handles a cluster with new ratings, which may move Bundles.
func (r *PlacementReconciler) ratingChanged(cluster string) {
	r.scoresChanged(cluster)
	r.rescoreAtRatingExpiry(cluster)
}

// rescoreAtRatingExpiry rescores a cluster when its next rating expires.
func (r *PlacementReconciler) rescoreAtRatingExpiry(cluster string) {
	now := time.Now()
	if at := r.Scores.NextExpiry(cluster, now); !at.IsZero() {
		r.scoreLoop.EnqueueAfter(cluster, at.Sub(now))
	}
}

// reserveMaxAge is how long a reserve is used. Scores change, and a new cluster must be among
// the best of recent scores.
const reserveMaxAge = time.Minute

// isReserveEnough reports whether the whole fleet would have led to the same decision: it chose as
// many clusters as it needed, and no more new ones than the reserve covers.
func (s *stepInput) isReserveEnough() bool {
	come := 0
	for i := range s.rollout.Decision.Verdicts {
		v := &s.rollout.Decision.Verdicts[i]
		if _, has := s.rollout.Rows[v.Cluster]; v.Outcome == schedule.OutcomePlaced && !has {
			come++
		}
	}
	return come <= schedule.ReserveDepth && !s.rollout.Decision.WantsMore && !s.rollout.Decision.ChoseUnfit && !s.rollout.Decision.NoFit
}

// dropReserveClusters makes the next step look at the whole fleet.
func (x *bundleIndex) dropReserveClusters(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		e.reserve = nil
	}
}

// SetScoreInputs sets the inputs of scores in a decision for a namespace that is not of a Bundle.
// in.Placement is set before.
func (r *PlacementReconciler) SetScoreInputs(in *schedule.Input, namespace string) {
	source := v1alpha1.SourcePropagationPolicy
	if namespace == "" {
		source = v1alpha1.SourceClusterPropagationPolicy
	}
	var b state.Bundle
	b.Ref.Namespace = namespace
	b.Spec.Source.Kind = source
	in.Facts, in.NearbyBundles = r.factsFor(b, r.index.copyReservations()), r.nearbyBundles(b, in.Placement.Scores)
}
