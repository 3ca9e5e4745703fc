package state

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
)

// With gives a table as this one would be if the policies were written: those that have
// a deletion timestamp are gone. Nobody hears of it, and it does not follow this one.
func (p *Policies) With(written ...client.Object) *Policies {
	out := newPolicies()
	p.mu.RLock()
	for scope, all := range p.byNS {
		out.byNS[scope] = maps.Clone(all)
	}
	p.mu.RUnlock()
	for _, o := range written {
		if o.GetDeletionTimestamp() != nil {
			out.drop(o)
		} else {
			out.put(o)
		}
	}
	return out
}

// With gives a table as this one would be if the namespaces were written. Nobody hears of
// it, and it does not follow this one.
func (t *Namespaces) With(written ...*corev1.Namespace) *Namespaces {
	t.mu.RLock()
	out := &Namespaces{byName: maps.Clone(t.byName)}
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
