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
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/schedule"
)

// Bundle is what a World comes to for one Bundle. Read-only.
type Bundle struct {
	ID     policymatch.BundleID
	Source v1alpha1.BundleSource
	Spec   v1alpha1.PropagationSpec
	// Strategy that the rollout of Spec comes from; nil: the source states the rollout itself, or states none.
	Strategy *v1alpha1.AppliedStrategy
	// Content of its first Revision.
	Content  *atoll.Content
	Decision schedule.Decision
	Shares   schedule.ReplicaAssignment
	// Why the source places each of the templates that it chose.
	Why      map[atoll.ItemKey]string
	Problems []bundlecontent.TemplateProblem
}

// Unplaced is a template without a policy.
type Unplaced struct {
	Key    atoll.ItemKey
	Why    string
	Reason atoll.Reason
}

// Clusters returns the clusters of the World, by name.
func (w *World) Clusters() []*v1alpha1.Cluster { return w.clusters }

// Placement and the clusters that it would publish. Read-only.
type Placement struct {
	// Namespace is empty for a ClusterPlacement.
	Namespace, Name string
	Decision        schedule.Decision
}

// IdlePolicy is a policy that nothing comes of, and why.
type IdlePolicy struct{ Kind, Namespace, Name, Why string }

// Outcome is what a World comes to. Read-only.
type Outcome struct {
	// Bundles by namespace and name.
	Bundles []Bundle
	// Placements, cluster-scoped ones first, then by namespace and name.
	Placements []Placement
	// Unplaced templates, without a policy, by key.
	Unplaced []Unplaced
	// Idle policies by kind, namespace and name.
	Idle []IdlePolicy
}

// DecidePlacements decides what the World comes to at a time. Bundles are decided one after the other by
// name, those last that are scored by where others are; each finds the load and the room
// that the ones before left. A World without clusters is an error: nothing could be placed.
func (w *World) DecidePlacements(now time.Time) (Outcome, error) {
	if len(w.clusters) == 0 {
		return Outcome{}, errNoClusters
	}
	var out Outcome
	out.Bundles, out.Unplaced = w.bindTemplates()
	f := w.newFleetState(now)
	for _, asking := range []bool{false, true} {
		for i := range out.Bundles {
			if b := &out.Bundles[i]; scoresByBundles(&b.Spec.Placement) == asking {
				if err := f.decideBundle(b); err != nil {
					return Outcome{}, err
				}
			}
		}
	}
	publish := func(kind, namespace, name string, spec v1alpha1.PlacementSpec) {
		in := f.scheduleInput(namespace, kind, spec)
		in.BundleUID, in.WhenUnfit = namespace+"/"+name, v1alpha1.UnfitRemove
		out.Placements = append(out.Placements, Placement{namespace, name, schedule.DecidePlacement(in)})
	}
	for _, p := range w.clusterPlacements {
		publish(v1alpha1.SourceClusterPropagationPolicy, "", p.Name, p.Spec)
	}
	for _, p := range w.placements {
		publish(v1alpha1.SourcePropagationPolicy, p.Namespace, p.Name, p.Spec)
	}
	out.Idle = w.policiesWithoutEffect(out.Bundles)
	return out, nil
}

var errNoClusters = errors.New("there is no Cluster among the files, so that nothing can be placed: give them too, such as what `kubectl get clusters -o yaml` prints")

// policiesWithoutEffect lists the policies that place or override nothing.
func (w *World) policiesWithoutEffect(bundles []Bundle) (out []IdlePolicy) {
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
			out = append(out, IdlePolicy{kind, namespace, name, why})
		}
	}
	const places, overrides = "it places nothing: it selects none of the templates, or what else selects them wins", "it overrides nothing that is placed"
	for _, o := range policymatch.SortOverrides(w.clusterOverrides, nil) {
		note("ClusterOverridePolicy", "", o.Name, o.String(), overrides)
	}
	for _, p := range w.clusterPropagation {
		note(v1alpha1.SourceClusterPropagationPolicy, "", p.Name, v1alpha1.SourceClusterPropagationPolicy+"//"+p.Name, places)
	}
	for _, o := range policymatch.SortOverrides(nil, w.overrides) {
		note("OverridePolicy", o.Namespace, o.Name, o.String(), overrides)
	}
	for _, p := range w.propagation {
		note(v1alpha1.SourcePropagationPolicy, p.Namespace, p.Name, v1alpha1.SourcePropagationPolicy+"/"+p.Namespace+"/"+p.Name, places)
	}
	slices.SortFunc(out, func(a, b IdlePolicy) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// bindTemplates binds the templates into Bundles, by name.
func (w *World) bindTemplates() (out []Bundle, unplaced []Unplaced) {
	parents, byID := worldParents{w, w.policyIndex()}, map[policymatch.BundleID]*Bundle{}
	placed, strategies := map[atoll.ItemKey]policymatch.BundleID{}, w.listStrategies()
	for _, key := range slices.SortedFunc(maps.Keys(w.templates), atoll.ItemKey.Compare) {
		sub := policymatch.SubjectFromObject(w.templates[key])
		d := parents.decidePolicy(sub)
		if d.Winner == nil || atoll.IsNowhere(d.Winner.Spec.Placement) {
			unplaced = append(unplaced, newUnplaced(key, d))
			continue
		}
		if w.isHubOnly(key) {
			unplaced = append(unplaced, Unplaced{Key: key, Why: "it is stated to stay on the hub", Reason: atoll.ReasonHubOnly})
		}
		id, _ := d.BundleOf(sub)
		intent, missing := w.resolveSource(strategies, d.Winner, id.Namespace)
		if missing.Reason != "" {
			missing.Key = key
			unplaced = append(unplaced, missing)
			continue
		}
		if byID[id] == nil {
			byID[id] = &Bundle{ID: id, Source: d.Winner.Source, Spec: intent.Spec, Strategy: intent.Strategy, Why: map[atoll.ItemKey]string{}}
		}
		byID[id].Why[key], placed[key] = d.Winner.MatchedBy+": "+d.Reason, id
	}
	along, library := map[atoll.ItemKey]bool{}, script.NewLibrary(w.interpreters)
	for _, id := range slices.SortedFunc(maps.Keys(byID), policymatch.BundleID.Compare) {
		b := byID[id]
		p := bundlecontent.NextContent(bundlecontent.Input{
			Chosen: slices.SortedFunc(maps.Keys(b.Why), atoll.ItemKey.Compare), Intent: &policymatch.Intent{Spec: b.Spec},
			OwnNamespace: id.OwnNamespace(), CreatesEmptyNamespace: w.settings != nil && w.settings.Spec.EmptyNamespaces == v1alpha1.EmptyNamespacesCreate, Namespace: w.namespaceMetadata(id.Namespace), ClusterOverrides: w.clusterOverrides, NamespaceOverrides: w.namespaceOverrides(id.Namespace),
			Interpreters: library, Templates: bundleView{w, id, placed}, Holders: bundleView{w, id, placed},
		})
		b.Content, b.Problems = &p.Content, p.Problems
		if p.Content.HoldsNothing() && len(p.Problems) == 0 {
			continue // all of it stays on the hub
		}
		for i := range p.Content.Items {
			along[p.Content.Items[i].Key] = true
		}
		out = append(out, *b)
	}
	return out, slices.DeleteFunc(unplaced, func(u Unplaced) bool { return along[u.Key] })
}

// resolvePlacement returns what the winner states, with the placement that it refers to; missing
// names that one, where the files have none.
func (w *World) resolvePlacement(winner *policymatch.Candidate, namespace string) (spec v1alpha1.PropagationSpec, missing string) {
	spec = *winner.Spec
	if spec.PlacementRef == nil {
		spec.Placement = atoll.WithPlacementDefaults(spec.Placement)
		return spec, ""
	}
	if winner.Source.Kind != v1alpha1.SourcePropagationPolicy {
		for _, p := range w.clusterPlacements {
			if p.Name == spec.PlacementRef.Name {
				spec.Placement = atoll.WithPlacementDefaults(p.Spec)
				return spec, ""
			}
		}
		return spec, "the ClusterPlacement " + spec.PlacementRef.Name + " that what places it refers to is not among the files"
	}
	for _, p := range w.placements {
		if p.Name == spec.PlacementRef.Name && p.Namespace == namespace {
			spec.Placement = atoll.WithPlacementDefaults(p.Spec)
			return spec, ""
		}
	}
	return spec, "the Placement " + spec.PlacementRef.Name + " that its policy refers to is not among the files"
}

// newUnplaced returns a template that the decision places nowhere, and why.
func newUnplaced(key atoll.ItemKey, d policymatch.Decision) Unplaced {
	switch {
	case d.Winner != nil:
		return Unplaced{Key: key, Why: "its annotation places it nowhere", Reason: atoll.ReasonNowhere}
	case d.SkippedReason != "":
		return Unplaced{Key: key, Why: "the annotation of its namespace leaves it out: " + d.SkippedReason, Reason: atoll.ReasonMachineMade}
	}
	return Unplaced{Key: key, Why: d.Reason, Reason: d.ReasonCode}
}

// namespaceMetadata is the metadata that members get of a namespace that they have to make.
func (w *World) namespaceMetadata(namespace string) *atoll.NamespaceMeta {
	if namespace == "" {
		return nil
	}
	meta := manifest.UserNamespaceMeta(nil, nil)
	if u, ok := w.namespaces[namespace]; ok {
		meta = manifest.UserNamespaceMeta(u.GetLabels(), u.GetAnnotations())
	}
	return &meta
}

func (w *World) namespaceOverrides(namespace string) (out []*v1alpha1.OverridePolicy) {
	for _, p := range w.overrides {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	return out
}
