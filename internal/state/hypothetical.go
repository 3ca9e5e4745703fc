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

// SupposeWritten returns a copy of the table as it would be if the policies among the objects were
// written: objects with a deletion timestamp are deleted. It notifies no subscriber and does
// not follow the original.
func (p *PolicyTable) SupposeWritten(written ...client.Object) *PolicyTable {
	out := newPolicies()
	p.mu.RLock()
	for scope, all := range p.byScope {
		out.byScope[scope] = maps.Clone(all)
	}
	out.library = p.library
	p.mu.RUnlock()
	for _, o := range written {
		switch {
		case !IsPolicy(o):
		case o.GetDeletionTimestamp() != nil:
			out.removeObject(o)
		default:
			out.put(o)
		}
	}
	return out
}

// IsPolicy reports whether the object is of a kind that the table of Policies holds.
func IsPolicy(o client.Object) bool {
	switch o.(type) {
	case *v1alpha1.PropagationPolicy, *v1alpha1.ClusterPropagationPolicy, *v1alpha1.OverridePolicy, *v1alpha1.ClusterOverridePolicy,
		*v1alpha1.ResourceInterpreter:
		return true
	}
	return false
}

// SupposeWritten returns a copy of the table as it would be if the namespaces were written. It
// notifies no subscriber and does not follow the original.
func (t *NamespaceTable) SupposeWritten(written ...*corev1.Namespace) *NamespaceTable {
	out := newNamespaces()
	t.mu.RLock()
	out.byName = maps.Clone(t.byName)
	t.mu.RUnlock()
	for _, ns := range written {
		out.put(ns)
	}
	return out
}

// HypotheticalTemplates is the table of templates as it would be. The zero value has none.
type HypotheticalTemplates struct {
	*TemplateTable
	overlay map[atoll.ItemKey]*unstructured.Unstructured
}

// SupposeWritten returns the table as it would be if the templates were written; those that a user
// deletes have a deletion timestamp. It notifies no subscriber.
func (t *TemplateTable) SupposeWritten(written map[atoll.ItemKey]*unstructured.Unstructured) HypotheticalTemplates {
	return HypotheticalTemplates{t, written}
}

// Get returns a template as it would be.
func (t HypotheticalTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	if o, ok := t.overlay[key]; ok {
		return o, true
	}
	return t.TemplateTable.Get(key)
}

// InNamespace lists the templates of a namespace as they would be.
func (t HypotheticalTemplates) InNamespace(ns string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range t.TemplateTable.InNamespace(ns) {
		if _, ok := t.overlay[itemKeyOf(o.GroupVersionKind().GroupKind(), o)]; !ok {
			out = append(out, o)
		}
	}
	keys := slices.SortedFunc(maps.Keys(t.overlay), func(a, b atoll.ItemKey) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		if key.Namespace == ns {
			out = append(out, t.overlay[key])
		}
	}
	return out
}

// ListOfKind lists the templates of a kind in a namespace as they would be.
func (t HypotheticalTemplates) ListOfKind(gk schema.GroupKind, ns string) (out []*unstructured.Unstructured) {
	for _, o := range t.TemplateTable.ListOfKind(gk, ns) {
		if _, ok := t.overlay[itemKeyOf(gk, o)]; !ok {
			out = append(out, o)
		}
	}
	for key, o := range t.overlay {
		if key.Group == gk.Group && key.Kind == gk.Kind && key.Namespace == ns {
			out = append(out, o)
		}
	}
	return out
}

// IsSynced reports whether a kind is read; a kind that only written objects have needs no read.
func (t HypotheticalTemplates) IsSynced(group, kind string) bool {
	if _, known := t.TemplateTable.IsNamespaced(group, kind); known {
		return t.TemplateTable.IsSynced(group, kind)
	}
	for key := range t.overlay {
		if key.Group == group && key.Kind == kind {
			return true
		}
	}
	return t.TemplateTable.IsSynced(group, kind)
}

// PolicyKeyOf returns the key of a policy.
func PolicyKeyOf(p client.Object) PolicyKey {
	return PolicyKey{Kind: policyKindOf(p), Namespace: p.GetNamespace(), Name: p.GetName()}
}

// applyWritten puts written objects into a table: objects with a deletion timestamp are
// deleted.
func applyWritten[T client.Object](written []client.Object, put, drop func(T)) {
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

// SupposeWritten returns a copy of the table as it would be if the Placements among the objects
// were written: objects with a deletion timestamp are deleted. It notifies no subscriber and
// does not follow the original.
func (t *PlacementTable) SupposeWritten(written ...client.Object) *PlacementTable {
	out := newPlacements()
	t.mu.RLock()
	out.byKey = maps.Clone(t.byKey)
	t.mu.RUnlock()
	for _, o := range written {
		if _, ok := placementOf(o); !ok {
			continue
		}
		if o.GetDeletionTimestamp() != nil {
			out.removeObject(o)
		} else {
			out.put(o)
		}
	}
	return out
}

// SupposeWritten returns a copy of the table as it would be if the ClusterScores among the objects
// were written: objects with a deletion timestamp are deleted. It notifies no subscriber and
// does not follow the original.
func (s *ClusterScoreTable) SupposeWritten(written ...client.Object) *ClusterScoreTable {
	s.mu.RLock()
	out := &ClusterScoreTable{ratings: s.ratings.Clone()}
	s.mu.RUnlock()
	applyWritten(written, func(o *v1alpha1.ClusterScore) { out.put(o) }, func(o *v1alpha1.ClusterScore) { out.removeObject(o) })
	return out
}

// SupposeWritten returns a copy of the table as it would be if the Clusters and ClusterSets among
// the objects were written: objects with a deletion timestamp are deleted. A new Cluster counts
// as online. It notifies no subscriber and does not follow the original. Its cost grows with
// the fleet.
func (c *ClusterTable) SupposeWritten(written ...client.Object) *ClusterTable {
	c.mu.RLock()
	out := &ClusterTable{
		byName: maps.Clone(c.byName), byUID: maps.Clone(c.byUID), online: maps.Clone(c.online), expectedOnline: map[string]bool{}, membership: c.membership.Clone(),
	}
	c.mu.RUnlock()
	applyWritten(written, func(v *v1alpha1.Cluster) {
		old, had := out.byName[v.Name]
		if had {
			delete(out.byUID, string(old.UID))
		}
		if !had || old.UID != v.UID {
			out.expectedOnline[string(v.UID)] = true
		}
		out.byName[v.Name], out.byUID[string(v.UID)] = v, v
		out.membership.PutCluster(v.Name, v.Labels)
	}, func(v *v1alpha1.Cluster) {
		if old, had := out.byName[v.Name]; had {
			delete(out.byUID, string(old.UID))
		}
		delete(out.byName, v.Name)
		out.membership.RemoveCluster(v.Name)
	})
	applyWritten(written, func(v *v1alpha1.ClusterSet) { out.defineSet(v.Name, &v.Spec.ClusterSelector) },
		func(v *v1alpha1.ClusterSet) { out.defineSet(v.Name, nil) })
	return out
}

// SupposeWritten returns a copy of the table as it would be if the ClusterSets and
// ClusterSetBindings among the objects were written, over clusters, which must hold the
// ClusterSets: objects with a deletion timestamp are deleted. It notifies no subscriber and
// does not follow the original.
func (t *ClusterSetTable) SupposeWritten(clusters *ClusterTable, written ...client.Object) *ClusterSetTable {
	t.mu.RLock()
	out := &ClusterSetTable{clusters: clusters, grants: t.grants.Clone()}
	t.mu.RUnlock()
	applyWritten(written, func(v *v1alpha1.ClusterSet) { out.grants.StoreClusterSet(v.Name, v) }, func(v *v1alpha1.ClusterSet) { out.grants.StoreClusterSet(v.Name, nil) })
	applyWritten(written, func(v *v1alpha1.ClusterSetBinding) { out.grants.BindNamespace(v.Namespace, v.Spec.ClusterSet, true) },
		func(v *v1alpha1.ClusterSetBinding) { out.grants.BindNamespace(v.Namespace, v.Spec.ClusterSet, false) })
	return out
}

// SupposeWritten returns the views of these clusters as they would be if the HubSettings among the
// objects were written, or, with a deletion timestamp, deleted. It notifies no subscriber and
// does not follow the original.
func (v *ClusterViews) SupposeWritten(clusters *ClusterTable, written ...client.Object) *ClusterViews {
	v.mu.RLock()
	out := &ClusterViews{clusters: clusters, apisByHash: maps.Clone(v.apisByHash), versions: v.versions.copyTable(), listedProperties: v.listedProperties}
	v.mu.RUnlock()
	applyWritten(written, func(o *v1alpha1.HubSettings) { out.put(o) }, func(o *v1alpha1.HubSettings) { out.removeObject(o) })
	return out
}
