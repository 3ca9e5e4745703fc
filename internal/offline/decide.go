package offline

import (
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/schedule"
)

// Bundle is what a World comes to for one Bundle. Read-only.
type Bundle struct {
	ID     claim.BundleID
	Source v1alpha1.BundleSource
	Spec   v1alpha1.PropagationSpec
	// Content of its first Revision.
	Content  *atoll.Content
	Decision schedule.Decision
	Shares   schedule.Assignment
	// Why the source places each of the templates that it chose.
	Why      map[atoll.ItemKey]string
	Problems []claim.Problem
}

// Unplaced is a template that nobody places.
type Unplaced struct {
	Key atoll.ItemKey
	Why string
}

// Clusters of the World, by name.
func (w *World) Clusters() []*v1alpha1.Cluster { return w.clusters }

// Decide what the World comes to at a time, by Bundle, and which templates nobody
// places.
func (w *World) Decide(now time.Time) ([]Bundle, []Unplaced, error) {
	bundles, unplaced := w.bind()
	fleet := make([]schedule.Cluster, 0, len(w.clusters))
	for _, c := range w.clusters {
		fleet = append(fleet, schedule.ClusterOf(c))
	}
	used := map[string]schedule.Use{}
	for i := range bundles {
		b := &bundles[i]
		workloads, err := schedule.WorkloadsOf(b.Content)
		if err != nil {
			return nil, nil, err
		}
		demand, err := schedule.DemandOf(b.Content)
		if err != nil {
			return nil, nil, err
		}
		b.Decision = schedule.Schedule(schedule.Input{
			Bundle: b.ID.String(), Placement: b.Spec.Placement, WhenUnfit: b.Spec.WhenUnfit,
			Clusters: fleet, Workloads: workloads, Now: now, Demand: demand,
			Used: func(c *schedule.Cluster) (others, own schedule.Use) { return used[c.Name], nil },
		})
		b.Shares = b.Decision.Assign(nil)
		for _, v := range b.Decision.Verdicts {
			if v.Outcome == schedule.Placed {
				used[v.Cluster] = used[v.Cluster].With(demand.Use(b.Shares.Of(v.Cluster).Assigned()), 1)
			}
		}
	}
	return bundles, unplaced, nil
}

// bind the templates into Bundles, by name.
func (w *World) bind() (out []Bundle, unplaced []Unplaced) {
	index, byID := w.index(), map[claim.BundleID]*Bundle{}
	placed := map[atoll.ItemKey]claim.BundleID{}
	for _, key := range slices.SortedFunc(maps.Keys(w.templates), atoll.ItemKey.Compare) {
		sub := claim.SubjectFrom(w.templates[key])
		d := claim.Decide(index, sub, w.namespaceOf(key.Namespace), nil)
		if d.Winner == nil || atoll.IsNowhere(d.Winner.Spec.Placement) {
			unplaced = append(unplaced, Unplaced{Key: key, Why: whyNot(d)})
			continue
		}
		id, _ := claim.BundleFor(*d.Winner, sub)
		spec, missing := w.placed(d.Winner, key.Namespace)
		if missing != "" {
			unplaced = append(unplaced, Unplaced{Key: key, Why: missing})
			continue
		}
		if byID[id] == nil {
			byID[id] = &Bundle{ID: id, Source: d.Winner.Source, Spec: spec, Why: map[atoll.ItemKey]string{}}
		}
		byID[id].Why[key], placed[key] = d.Winner.Matched+": "+d.Why, id
	}
	along := map[atoll.ItemKey]bool{}
	for _, id := range slices.SortedFunc(maps.Keys(byID), claim.BundleID.Compare) {
		b := byID[id]
		p := claim.Plan(claim.PlanInput{
			Claimed: slices.SortedFunc(maps.Keys(b.Why), atoll.ItemKey.Compare), Intent: &claim.Intent{Spec: b.Spec},
			Namespace: w.told(id.Namespace), ClusterOverrides: w.clusterOverrides, Overrides: w.overridesOf(id.Namespace),
			World: seen{w, id, placed},
		})
		b.Content, b.Problems = &p.Content, p.Problems
		for i := range p.Content.Items {
			along[p.Content.Items[i].Key] = true
		}
		out = append(out, *b)
	}
	return out, slices.DeleteFunc(unplaced, func(u Unplaced) bool { return along[u.Key] })
}

// placed is what the winner wants, with the placement that it refers to; missing says
// which that is, where the files have none.
func (w *World) placed(winner *claim.Candidate, namespace string) (spec v1alpha1.PropagationSpec, missing string) {
	spec = *winner.Spec
	if spec.PlacementRef == nil {
		spec.Placement = atoll.Placement(spec.Placement)
		return spec, ""
	}
	if winner.Source.Kind == v1alpha1.SourceClusterPropagationPolicy {
		for _, p := range w.clusterPlacements {
			if p.Name == spec.PlacementRef.Name {
				spec.Placement = atoll.Placement(p.Spec)
				return spec, ""
			}
		}
		return spec, "the ClusterPlacement " + spec.PlacementRef.Name + " that its policy refers to is not among the files"
	}
	for _, p := range w.placements {
		if p.Name == spec.PlacementRef.Name && p.Namespace == namespace {
			spec.Placement = atoll.Placement(p.Spec)
			return spec, ""
		}
	}
	return spec, "the Placement " + spec.PlacementRef.Name + " that its policy refers to is not among the files"
}

func whyNot(d claim.Decision) string {
	switch {
	case d.Winner != nil:
		return "its annotation says nowhere"
	case d.Skipped != "":
		return "the annotation of its namespace leaves it out: " + d.Skipped
	}
	return d.Why
}

// told is what members are told of a namespace that they have to make.
func (w *World) told(namespace string) *atoll.NamespaceMeta {
	if namespace == "" {
		return nil
	}
	meta := render.NamespaceMeta(nil, nil)
	if u, ok := w.namespaces[namespace]; ok {
		meta = render.NamespaceMeta(u.GetLabels(), u.GetAnnotations())
	}
	return &meta
}

func (w *World) overridesOf(namespace string) (out []*v1alpha1.OverridePolicy) {
	for _, p := range w.overrides {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}
