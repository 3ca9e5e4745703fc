package state

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// With gives a table as this one would be if the policies among the objects were written:
// those that have a deletion timestamp are gone. Nobody hears of it, and it does not follow this one.
func (p *Policies) With(written ...client.Object) *Policies {
	out := newPolicies()
	p.mu.RLock()
	for scope, all := range p.byNS {
		out.byNS[scope] = maps.Clone(all)
	}
	out.library = p.library
	p.mu.RUnlock()
	for _, o := range written {
		switch {
		case !IsPolicy(o):
		case o.GetDeletionTimestamp() != nil:
			out.drop(o)
		default:
			out.put(o)
		}
	}
	return out
}

// IsPolicy tells of the kinds that the table of Policies holds.
func IsPolicy(o client.Object) bool {
	switch o.(type) {
	case *v1alpha1.PropagationPolicy, *v1alpha1.ClusterPropagationPolicy, *v1alpha1.OverridePolicy, *v1alpha1.ClusterOverridePolicy,
		*v1alpha1.ResourceInterpreter:
		return true
	}
	return false
}

// With gives a table as this one would be if the namespaces were written. Nobody hears of
// it, and it does not follow this one.
func (t *Namespaces) With(written ...*corev1.Namespace) *Namespaces {
	out := newNamespaces()
	t.mu.RLock()
	out.byName = maps.Clone(t.byName)
	t.mu.RUnlock()
	for _, ns := range written {
		out.put(ns)
	}
	return out
}

// SupposedTemplates is the table of templates as it would be. The zero value has none.
type SupposedTemplates struct {
	*Templates
	written map[atoll.ItemKey]*unstructured.Unstructured
}

// With gives the table as it would be if the templates were written; those that a user
// deletes have a deletion timestamp. Nobody hears of it.
func (t *Templates) With(written map[atoll.ItemKey]*unstructured.Unstructured) SupposedTemplates {
	return SupposedTemplates{t, written}
}

// Get a template as it would be.
func (t SupposedTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	if o, ok := t.written[key]; ok {
		return o, true
	}
	return t.Templates.Get(key)
}

// InNamespace lists the templates of a namespace as they would be.
func (t SupposedTemplates) InNamespace(ns string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range t.Templates.InNamespace(ns) {
		if _, ok := t.written[keyOf(o.GroupVersionKind().GroupKind(), o)]; !ok {
			out = append(out, o)
		}
	}
	keys := slices.SortedFunc(maps.Keys(t.written), func(a, b atoll.ItemKey) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		if key.Namespace == ns {
			out = append(out, t.written[key])
		}
	}
	return out
}

// OfKind lists the templates of a kind in a namespace as they would be.
func (t SupposedTemplates) OfKind(gk schema.GroupKind, ns string) (out []*unstructured.Unstructured) {
	for _, o := range t.Templates.OfKind(gk, ns) {
		if _, ok := t.written[keyOf(gk, o)]; !ok {
			out = append(out, o)
		}
	}
	for key, o := range t.written {
		if key.Group == gk.Group && key.Kind == gk.Kind && key.Namespace == ns {
			out = append(out, o)
		}
	}
	return out
}

// Synced tells whether a kind is read; of one that only written objects are of there is
// nothing to read.
func (t SupposedTemplates) Synced(group, kind string) bool {
	if _, known := t.Templates.Namespaced(group, kind); known {
		return t.Templates.Synced(group, kind)
	}
	for key := range t.written {
		if key.Group == group && key.Kind == kind {
			return true
		}
	}
	return t.Templates.Synced(group, kind)
}

// PolicyKeyOf a policy.
func PolicyKeyOf(p client.Object) PolicyKey {
	return PolicyKey{Kind: kindOf(p), Namespace: p.GetNamespace(), Name: p.GetName()}
}

// apply to a table what would be written: those that have a deletion timestamp are gone.
func apply[T client.Object](written []client.Object, put, drop func(T)) {
	for _, o := range written {
		v, mine := o.(T)
		switch {
		case !mine:
		case v.GetDeletionTimestamp() != nil:
			drop(v)
		default:
			put(v)
		}
	}
}

// With gives a table as this one would be if the Placements among the objects were written:
// those that have a deletion timestamp are gone. Nobody hears of it, and it does not follow
// this one.
func (t *Placements) With(written ...client.Object) *Placements {
	out := newPlacements()
	t.mu.RLock()
	out.byKey = maps.Clone(t.byKey)
	t.mu.RUnlock()
	for _, o := range written {
		if _, ok := placementOf(o); !ok {
			continue
		}
		if o.GetDeletionTimestamp() != nil {
			out.drop(o)
		} else {
			out.put(o)
		}
	}
	return out
}

// With gives a table as this one would be if the ClusterScores among the objects were
// written: those that have a deletion timestamp are gone. Nobody hears of it, and it does
// not follow this one.
func (s *Scores) With(written ...client.Object) *Scores {
	s.mu.RLock()
	out := &Scores{ratings: s.ratings.Clone()}
	s.mu.RUnlock()
	apply(written, func(o *v1alpha1.ClusterScore) { out.put(o) }, func(o *v1alpha1.ClusterScore) { out.drop(o) })
	return out
}

// With gives a table as this one would be if the Clusters and ClusterSets among the objects
// were written: those that have a deletion timestamp are gone. A Cluster that is not there
// yet can be counted on. Nobody hears of it, and it does not follow this one. It costs the
// fleet.
func (c *Clusters) With(written ...client.Object) *Clusters {
	c.mu.RLock()
	out := &Clusters{
		byName: maps.Clone(c.byName), byUID: maps.Clone(c.byUID), online: maps.Clone(c.online), coming: map[string]bool{}, sets: c.sets.Clone(),
	}
	c.mu.RUnlock()
	apply(written, func(v *v1alpha1.Cluster) {
		old, had := out.byName[v.Name]
		if had {
			delete(out.byUID, string(old.UID))
		}
		if !had || old.UID != v.UID {
			out.coming[string(v.UID)] = true
		}
		out.byName[v.Name], out.byUID[string(v.UID)] = v, v
		out.sets.Put(v.Name, v.Labels)
	}, func(v *v1alpha1.Cluster) {
		if old, had := out.byName[v.Name]; had {
			delete(out.byUID, string(old.UID))
		}
		delete(out.byName, v.Name)
		out.sets.Drop(v.Name)
	})
	apply(written, func(v *v1alpha1.ClusterSet) { out.define(v.Name, &v.Spec.ClusterSelector) },
		func(v *v1alpha1.ClusterSet) { out.define(v.Name, nil) })
	return out
}

// With gives a table as this one would be if the ClusterSets and ClusterSetBindings among
// the objects were written, over clusters, which knows of the ClusterSets: those that have a
// deletion timestamp are gone. Nobody hears of it, and it does not follow this one.
func (t *Sets) With(clusters *Clusters, written ...client.Object) *Sets {
	t.mu.RLock()
	out := &Sets{clusters: clusters, grants: t.grants.Clone()}
	t.mu.RUnlock()
	apply(written, func(v *v1alpha1.ClusterSet) { out.grants.Set(v.Name, v) }, func(v *v1alpha1.ClusterSet) { out.grants.Set(v.Name, nil) })
	apply(written, func(v *v1alpha1.ClusterSetBinding) { out.grants.Bind(v.Namespace, v.Spec.ClusterSet, true) },
		func(v *v1alpha1.ClusterSetBinding) { out.grants.Bind(v.Namespace, v.Spec.ClusterSet, false) })
	return out
}

// With gives the views of these clusters as they would be if the HubSettings among the
// objects were written, or, with a deletion timestamp, gone. Nobody hears of it, and it does
// not follow this one.
func (v *Views) With(clusters *Clusters, written ...client.Object) *Views {
	v.mu.RLock()
	out := &Views{clusters: clusters, apis: maps.Clone(v.apis), listed: v.listed}
	v.mu.RUnlock()
	apply(written, func(o *v1alpha1.HubSettings) { out.put(o) }, func(o *v1alpha1.HubSettings) { out.drop(o) })
	return out
}
