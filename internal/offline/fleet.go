package offline

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/schedule"
)

// fleet is the clusters of a World as placement sees them, and what was placed on them so
// far.
type fleet struct {
	clusters []schedule.Cluster
	grants   schedule.Grants
	ratings  schedule.Ratings
	now      time.Time
	// load counts the pods that were placed in a cluster, by name; used is what they use of
	// the capacity that it states, and room what its Cluster says that it has left, less
	// what was placed.
	load map[string]int64
	used map[string]schedule.Use
	room map[string]atoll.Room
	// placed names the clusters of each Bundle that is decided.
	placed []placedBundle
}

type placedBundle struct {
	id     claim.BundleID
	source string
	views  []atoll.ClusterView
}

// fleetOf the World: with the ClusterSet of a fresh hub, unless the files have their own of
// that name.
func (w *World) fleetOf(now time.Time) *fleet {
	f := &fleet{grants: schedule.NewGrants(), ratings: schedule.NewRatings(), now: now, load: map[string]int64{}, used: map[string]schedule.Use{}, room: map[string]atoll.Room{}}
	members := schedule.NewMembership()
	sets := w.sets
	if !slices.ContainsFunc(sets, func(s *v1alpha1.ClusterSet) bool { return s.Name == v1alpha1.DefaultClusterSet }) {
		sets = append(slices.Clone(sets), schedule.DefaultSet())
	}
	for _, s := range sets {
		members.Define(s.Name, &s.Spec.ClusterSelector)
		f.grants.Set(s.Name, s)
	}
	for _, b := range w.bindings {
		f.grants.Bind(b.Namespace, b.Spec.ClusterSet, true)
	}
	for _, s := range w.scores {
		f.ratings.Put(s)
	}
	var listed []string
	if w.settings != nil {
		listed = slices.Compact(slices.Sorted(slices.Values(w.settings.Spec.PlacementProperties)))
	}
	for _, c := range w.clusters {
		one := schedule.ClusterOf(c)
		one.Sets = members.Of(c.Labels)
		one.See(c.Status.Properties, listed)
		f.clusters = append(f.clusters, one)
		if room := c.Status.Resources.Room; room != nil && c.Spec.ReportedRoom != v1alpha1.RoomIgnore {
			if left, err := atoll.ParseRoom(room.Classes); err == nil {
				f.room[c.Name] = left
			}
		}
	}
	return f
}

// input of a decision in a namespace for what such a source places; what a Bundle and a
// Placement have in common.
func (f *fleet) input(namespace, source string, p v1alpha1.PlacementSpec) schedule.Input {
	return schedule.Input{
		Placement: p, Filter: schedule.Terms{Placement: p, Bound: schedule.Limits(namespace, source, f.grants.Bound)}.Compile(),
		Clusters: f.clusters, Now: f.now,
		Load:  func(c *schedule.Cluster) int64 { return f.load[c.Name] },
		Near:  func(n *v1alpha1.NearBundles) [][]atoll.ClusterView { return f.near(namespace, n) },
		Rated: schedule.RatedFor(namespace, source, f.ratings.Of, func() time.Time { return f.now }),
	}
}

// near gives the clusters of the Bundles of a namespace that were decided before.
func (f *fleet) near(namespace string, n *v1alpha1.NearBundles) (out [][]atoll.ClusterView) {
	sel, err := metav1.LabelSelectorAsSelector(n.LabelSelector)
	if err != nil {
		sel = labels.Nothing()
	}
	for _, b := range f.placed {
		named := slices.Contains(n.Names, b.id.Name) || slices.Contains(n.Names, b.source)
		if b.id.Namespace == namespace && len(b.views) > 0 && (named || sel.Matches(labels.Set(nil))) {
			out = append(out, b.views)
		}
	}
	return out
}

// decide a Bundle, and take what it is given.
func (f *fleet) decide(b *Bundle) error {
	workloads, err := schedule.WorkloadsOf(b.Content)
	if err != nil {
		return err
	}
	demand, err := schedule.DemandOf(b.Content)
	if err != nil {
		return err
	}
	in := f.input(b.ID.Namespace, b.Source.Kind, b.Spec.Placement)
	in.Demand = demand
	in.Used = func(c *schedule.Cluster) (others, own schedule.Use) { return f.used[c.Name], nil }
	in.Bundle, in.WhenUnfit, in.Workloads = b.ID.String(), b.Spec.WhenUnfit, workloads
	in.Handed = render.HandedIn(b.Content, func(yield func(atoll.ClusterView) bool) {
		for i := range f.clusters {
			if !yield(f.clusters[i].ClusterView) {
				return
			}
		}
	})
	in.Fits = func(c *schedule.Cluster) (int64, bool) {
		left, known := f.room[c.Name]
		return schedule.FitAll(left, workloads, nil), known
	}
	b.Decision = schedule.Schedule(in)
	b.Decision = b.Decision.WithRoom(func(cluster string) (atoll.Room, bool) { left, known := f.room[cluster]; return left, known })
	b.Shares = b.Decision.Assign(nil)
	one := placedBundle{id: b.ID, source: b.Source.Name}
	for i := range f.clusters {
		c := &f.clusters[i]
		if v, ok := b.Decision.Verdict(c.Name); !ok || v.Outcome != schedule.Placed {
			continue
		}
		replicas, pods := b.Shares.Of(c.Name).Assigned(), schedule.FixedPods(b.Content)
		for _, n := range replicas {
			pods += n
		}
		f.load[c.Name] += max(pods, 1)
		f.used[c.Name] = f.used[c.Name].With(demand.Use(replicas), 1)
		one.views = append(one.views, c.ClusterView)
		if left, known := f.room[c.Name]; known {
			for j := range workloads {
				left = schedule.Take(left, workloads[j].Requests, replicas[workloads[j].Key.String()])
			}
			f.room[c.Name] = left
		}
	}
	f.placed = append(f.placed, one)
	return nil
}

// asks tells whether the placement is scored by where other Bundles are, so that it is
// decided after them.
func asks(p *v1alpha1.PlacementSpec) bool {
	return slices.ContainsFunc(p.Scores, func(s v1alpha1.Score) bool { return s.Bundles != nil })
}
