package offline

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/schedule"
)

// fleetState is the clusters of a World as placement sees them, and what was placed on them so
// far.
type fleetState struct {
	clusters []schedule.Cluster
	grants   schedule.SetGrants
	ratings  schedule.ClusterRatings
	now      time.Time
	// load counts the pods that were placed in a cluster, by name; used is what they use of
	// the capacity that it states, and room what its Cluster reports as free, less
	// what was placed.
	load         map[string]int64
	used         map[string]schedule.ResourceUsage
	freeCapacity map[string]freecapacity.NodeClasses
	// placedBundles names the clusters of each Bundle that is decided.
	placedBundles []placedBundle
}

type placedBundle struct {
	id     policymatch.BundleID
	source string
	views  []atoll.ClusterView
	// groups of workloadAffinity that the Bundle is in, by key and value, and the name by which others see it.
	groups map[[2]string]bool
	name   schedule.MemberName
}

// newFleetState returns the state of the World: with the ClusterSet of a fresh hub, unless the files have their own of
// that name.
func (w *World) newFleetState(now time.Time) *fleetState {
	f := &fleetState{grants: schedule.NewGrants(), ratings: schedule.NewRatings(), now: now, load: map[string]int64{}, used: map[string]schedule.ResourceUsage{}, freeCapacity: map[string]freecapacity.NodeClasses{}}
	members := schedule.NewMembership()
	sets := w.sets
	if !slices.ContainsFunc(sets, func(s *v1alpha1.ClusterSet) bool { return s.Name == v1alpha1.DefaultClusterSet }) {
		sets = append(slices.Clone(sets), schedule.NewDefaultSet())
	}
	for _, s := range sets {
		members.DefineSet(s.Name, &s.Spec.ClusterSelector)
		f.grants.StoreClusterSet(s.Name, s)
	}
	for _, b := range w.bindings {
		f.grants.BindNamespace(b.Namespace, b.Spec.ClusterSet, true)
	}
	for _, s := range w.scores {
		f.ratings.PutScore(s)
	}
	var listed []string
	if w.settings != nil {
		listed = slices.Compact(slices.Sorted(slices.Values(w.settings.Spec.PlacementProperties)))
	}
	for _, c := range w.clusters {
		one := schedule.ClusterOf(c)
		one.Sets = members.SetsForLabels(c.Labels)
		one.AddListedProperties(c.Status.Properties, listed)
		f.clusters = append(f.clusters, one)
		if free, known := freecapacity.FreeCapacityOf(&c.Status.Resources); known && c.Spec.ReportedRoom != v1alpha1.RoomIgnore {
			f.freeCapacity[c.Name] = free
		}
	}
	return f
}

// scheduleInput returns the input of a decision in a namespace for what such a source places; what a Bundle and a
// Placement have in common.
func (f *fleetState) scheduleInput(namespace, source string, p v1alpha1.PlacementSpec) schedule.Input {
	return schedule.Input{
		Placement: p, Filter: schedule.PlacementTerms{Placement: p, BoundSets: schedule.AllowedClusterSets(namespace, source, f.grants.SetsOfNamespace)}.CompilePlacement(),
		Clusters: f.clusters, Now: f.now,
		Facts: &fleetFacts{fleet: f, scope: schedule.PlacementScope{Namespace: namespace, Source: source}}, NearbyBundles: f.selectBundlesForScores(namespace, p.Scores),
	}
}

// selectBundlesForScores returns, by index of the scores, the Bundles that a score selects.
func (f *fleetState) selectBundlesForScores(namespace string, scores []v1alpha1.Score) [][]schedule.BundleClusters {
	out := make([][]schedule.BundleClusters, len(scores))
	for i := range scores {
		if n := scores[i].Bundles; n != nil {
			out[i] = f.selectNearby(namespace, n)
		}
	}
	return out
}

// selectNearby returns the clusters of the Bundles of a namespace that were decided before.
func (f *fleetState) selectNearby(namespace string, n *v1alpha1.NearBundles) (out []schedule.BundleClusters) {
	sel, err := metav1.LabelSelectorAsSelector(n.LabelSelector)
	if err != nil {
		sel = labels.Nothing()
	}
	for _, b := range f.placedBundles {
		named := slices.Contains(n.Names, b.id.Name) || slices.Contains(n.Names, b.source)
		if b.id.Namespace == namespace && len(b.views) > 0 && (named || sel.Matches(labels.Set(nil))) {
			out = append(out, b.views)
		}
	}
	return out
}

// decideBundle decides a Bundle's placement and records what it is assigned.
func (f *fleetState) decideBundle(b *Bundle) error {
	workloads, err := schedule.WorkloadsOf(b.Content)
	if err != nil {
		return err
	}
	demand, err := schedule.DemandOf(b.Content)
	if err != nil {
		return err
	}
	in := f.scheduleInput(b.ID.Namespace, b.Source.Kind, b.Spec.Placement)
	in.Demand = demand
	in.BundleUID, in.WhenUnfit, in.Workloads = b.ID.String(), b.Spec.WhenUnfit, workloads
	in.OverriddenShares = manifest.OverriddenReplicasByCluster(b.Content, func(yield func(atoll.ClusterView) bool) {
		for i := range f.clusters {
			if !yield(f.clusters[i].ClusterView) {
				return
			}
		}
	})
	in.UseFreeCapacity, in.KeepsDecision = true, b.Spec.Suspension.SuspendsScheduling()
	one := placedBundle{id: b.ID, source: b.Source.Name}
	if in.WorkloadGroups, err = f.joinGroups(b, &one); err != nil {
		return err
	}
	undivided := schedule.UndividedPodsOf(b.Content)
	in.PodFitOf = f.judgeFitOf(undivided)
	in.Facts.(*fleetFacts).workloads = workloads
	b.Decision = schedule.DecidePlacement(in)
	b.Decision = b.Decision.WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) {
		left, known := f.freeCapacity[cluster]
		return left, known
	})
	b.Shares = b.Decision.AssignReplicas(nil)
	for i := range f.clusters {
		c := &f.clusters[i]
		if v, ok := b.Decision.FindVerdict(c.Name); !ok || v.Outcome != schedule.OutcomePlaced {
			continue
		}
		replicas, pods := b.Shares.ShareOf(c.Name).AssignedReplicas(), schedule.CountUndividedPods(undivided)
		for _, n := range replicas {
			pods += n
		}
		f.load[c.Name] += max(pods, 1)
		f.used[c.Name] = f.used[c.Name].AddTimes(demand.UsageFor(replicas), 1)
		one.views = append(one.views, c.ClusterView)
		if left, known := f.freeCapacity[c.Name]; known {
			for j := range workloads {
				left = schedule.TakeCapacity(left, workloads[j].Requests, replicas[workloads[j].Key.String()])
			}
			f.freeCapacity[c.Name] = left
		}
	}
	f.placedBundles = append(f.placedBundles, one)
	return nil
}

// judgeFitOf returns the answers whether undivided pods fit in a cluster; nil where there are no pods.
func (f *fleetState) judgeFitOf(undivided []schedule.PodDemand) func(c *schedule.Cluster, explain bool) schedule.PodFit {
	if len(undivided) == 0 {
		return nil
	}
	return func(c *schedule.Cluster, explain bool) schedule.PodFit {
		left, known := f.freeCapacity[c.Name]
		if !known {
			return schedule.PodFit{}
		}
		return schedule.JudgePodFit(left, undivided, explain)
	}
}

// scoresByBundles reports whether the placement is scored by where other Bundles are, so that it is
// decided after them.
func scoresByBundles(p *v1alpha1.PlacementSpec) bool {
	return slices.ContainsFunc(p.Scores, func(s v1alpha1.Score) bool { return s.Bundles != nil })
}
