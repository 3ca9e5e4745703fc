package offline

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
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

// Placement and the clusters that it would publish. Read-only.
type Placement struct {
	// Namespace is empty for a ClusterPlacement.
	Namespace, Name string
	Decision        schedule.Decision
}

// Idle is a policy that nothing comes of, and why.
type Idle struct{ Kind, Namespace, Name, Why string }

// Outcome is what a World comes to. Read-only.
type Outcome struct {
	// Bundles by namespace and name.
	Bundles []Bundle
	// Placements, cluster-scoped ones first, then by namespace and name.
	Placements []Placement
	// Unplaced templates, which nobody places, by key.
	Unplaced []Unplaced
	// Idle policies by kind, namespace and name.
	Idle []Idle
}

// Decide what the World comes to at a time. Bundles are decided one after the other by
// name, those last that are scored by where others are; each finds the load and the room
// that the ones before left. A World without clusters is an error: nothing could be placed.
func (w *World) Decide(now time.Time) (Outcome, error) {
	if len(w.clusters) == 0 {
		return Outcome{}, errNoClusters
	}
	var out Outcome
	out.Bundles, out.Unplaced = w.bind()
	f := w.fleetOf(now)
	for _, asking := range []bool{false, true} {
		for i := range out.Bundles {
			if b := &out.Bundles[i]; asks(&b.Spec.Placement) == asking {
				if err := f.decide(b); err != nil {
					return Outcome{}, err
				}
			}
		}
	}
	publish := func(kind, namespace, name string, spec v1alpha1.PlacementSpec) {
		in := f.input(namespace, kind, spec)
		in.Bundle, in.WhenUnfit = namespace+"/"+name, v1alpha1.UnfitRemove
		out.Placements = append(out.Placements, Placement{namespace, name, schedule.Schedule(in)})
	}
	for _, p := range w.clusterPlacements {
		publish(v1alpha1.SourceClusterPropagationPolicy, "", p.Name, p.Spec)
	}
	for _, p := range w.placements {
		publish(v1alpha1.SourcePropagationPolicy, p.Namespace, p.Name, p.Spec)
	}
	out.Idle = w.idle(out.Bundles)
	return out, nil
}

var errNoClusters = errors.New("there is no Cluster among the files, so that nothing can be placed: give them too, such as what `kubectl get clusters -o yaml` prints")

// idle lists the policies that place or override nothing.
func (w *World) idle(bundles []Bundle) (out []Idle) {
	busy := map[string]bool{}
	for i := range bundles {
		b := &bundles[i]
		namespace := b.ID.Namespace
		if b.Source.Kind == v1alpha1.SourceClusterPropagationPolicy {
			namespace = ""
		}
		busy[b.Source.Kind+"/"+namespace+"/"+b.Source.Name] = true
		for _, r := range b.Content.Rules {
			busy[r.Policy] = true
		}
	}
	note := func(kind, namespace, name, key, why string) {
		if !busy[key] {
			out = append(out, Idle{kind, namespace, name, why})
		}
	}
	const places, overrides = "it places nothing: it selects none of the templates, or what else selects them wins", "it overrides nothing that is placed"
	for _, o := range claim.InOrder(w.clusterOverrides, nil) {
		note("ClusterOverridePolicy", "", o.Name, o.String(), overrides)
	}
	for _, p := range w.clusterPropagation {
		note(v1alpha1.SourceClusterPropagationPolicy, "", p.Name, v1alpha1.SourceClusterPropagationPolicy+"//"+p.Name, places)
	}
	for _, o := range claim.InOrder(nil, w.overrides) {
		note("OverridePolicy", o.Namespace, o.Name, o.String(), overrides)
	}
	for _, p := range w.propagation {
		note(v1alpha1.SourcePropagationPolicy, p.Namespace, p.Name, v1alpha1.SourcePropagationPolicy+"/"+p.Namespace+"/"+p.Name, places)
	}
	slices.SortFunc(out, func(a, b Idle) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
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
	along, library := map[atoll.ItemKey]bool{}, script.NewLibrary(w.interpreters)
	for _, id := range slices.SortedFunc(maps.Keys(byID), claim.BundleID.Compare) {
		b := byID[id]
		p := claim.Plan(claim.PlanInput{
			Claimed: slices.SortedFunc(maps.Keys(b.Why), atoll.ItemKey.Compare), Intent: &claim.Intent{Spec: b.Spec},
			Namespace: w.told(id.Namespace), ClusterOverrides: w.clusterOverrides, Overrides: w.overridesOf(id.Namespace),
			Interpreters: library, World: seen{w, id, placed},
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
