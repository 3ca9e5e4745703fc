package binder

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/userfields"
)

// Explanation is which source places a template, and why.
type Explanation struct {
	policymatch.Decision
	// Bundle of the template; zero when nothing places it.
	Bundle policymatch.BundleID
	// NeededBy lists the Bundles that have the template as a dependency.
	NeededBy []policymatch.BundleID
	// Losses is why each of Others did not win.
	Losses []Loss
	// HubOnly is why the template stays on the hub wherever it is placed; empty: it does not.
	HubOnly string
}

// Loss is why a candidate did not win.
type Loss struct {
	Code   atoll.Reason
	Reason string
}

// IsLoaded reports whether policies and contents are read, so that queries answer from complete
// tables.
func (b *Binder) IsLoaded() bool { return b.loaded.Load() }

// ExplainTemplate explains which source places a template, by the function that decides. It
// returns false when there is no such template.
func (b *Binder) ExplainTemplate(key atoll.ItemKey) (Explanation, bool) {
	t, ok := b.Templates.Get(key)
	if !ok {
		return Explanation{}, false
	}
	sub := policymatch.SubjectFromObject(t)
	d, _ := b.decidePlacingSource(sub)
	e := Explanation{Decision: d}
	if e.Winner != nil {
		e.Bundle, _ = d.BundleOf(sub)
		for _, o := range e.Others {
			code, reason := policymatch.ExplainLoss(*e.Winner, o)
			e.Losses = append(e.Losses, Loss{code, reason})
		}
	}
	e.NeededBy = b.ownership.bundlesDependingOn(key)
	e.HubOnly = b.hubOnlyReason(key, sub.Labels, sub.Annotations)
	return e, true
}

// BundlesInvolving lists the Bundles that place the object, hold it, or depend on it; the object
// need not exist.
func (b *Binder) BundlesInvolving(key atoll.ItemKey) []policymatch.BundleID {
	return b.ownership.bundlesTouchedBy(key)
}

// BundlesHolding lists the Bundles whose contents hold the object; it need not exist.
func (b *Binder) BundlesHolding(key atoll.ItemKey) []policymatch.BundleID {
	return b.ownership.bundlesWithItem(key)
}

// BundlesHoldingAny lists the Bundles of a namespace whose contents hold an object that matches; it
// need not exist.
func (b *Binder) BundlesHoldingAny(namespace string, matches func(atoll.ItemKey) bool) []policymatch.BundleID {
	return b.ownership.bundlesWithAny(namespace, matches)
}

// SkippedTemplate is a template that the annotation of its namespace excludes.
type SkippedTemplate struct {
	Key    atoll.ItemKey
	Reason string
}

// SkippedTemplates lists the templates that the annotation of a namespace excludes.
func (b *Binder) SkippedTemplates(namespace string) []SkippedTemplate {
	if _, ok := policymatch.ClustersAnnotation(b.namespaceOf(namespace).Annotations); !ok {
		return nil
	}
	var out []SkippedTemplate
	for _, t := range b.Templates.InNamespace(namespace) {
		sub := policymatch.SubjectFromObject(t)
		why := policymatch.NamespaceAnnotationSkipReason(sub)
		if why == "" {
			continue
		}
		if d, _ := b.decidePlacingSource(sub); d.Root != nil {
			continue // it joins its parent
		}
		out = append(out, SkippedTemplate{sub.Key, why})
	}
	return out
}

// IsPlacedOrNeeded reports whether an object that is being written is placed as an item, or is a
// dependency of a placed object.
func (b *Binder) IsPlacedOrNeeded(sub policymatch.Subject) bool {
	if b.isHubOnly(sub.Key, sub.Labels, sub.Annotations) {
		return len(b.ownership.bundlesWithItem(sub.Key)) > 0
	}
	d, held := b.decidePlacingSource(sub)
	if d.PlacesNamespaceWithObjects(sub) {
		return false // its Bundle is in the namespace, which does not go before the Bundle
	}
	if d.Winner != nil && (held || !atoll.IsNowhere(d.Winner.Spec.Placement)) {
		return true
	}
	return b.isUsedByBundle(sub)
}

// isUsedByBundle reports whether a Bundle holds an object or depends on it.
func (b *Binder) isUsedByBundle(sub policymatch.Subject) bool {
	return len(b.ownership.bundlesTouchedBy(sub.Key)) > 0 || b.ownership.selections.isSelected(sub.Key, sub.Labels)
}

// CheckItemSize returns an error when a template that is being written is too large to send.
// Other errors are left to the plan.
func (b *Binder) CheckItemSize(t *unstructured.Unstructured) error {
	sub := policymatch.SubjectFromObject(t)
	item := atoll.Item{Key: sub.Key, APIVersion: t.GetAPIVersion(), UID: sub.UID, SourceFingerprint: userfields.FingerprintUserFields(t)}
	if err := bundlecontent.FillItem(&item, t, b.Defaults, storeLimits{}); err != nil && len(item.Object) > 0 {
		return err
	}
	return nil
}

// FirstProtectedTemplate returns a template in the namespace that is protected against deletion.
func (b *Binder) FirstProtectedTemplate(namespace string) (atoll.ItemKey, bool) {
	for _, t := range b.Templates.InNamespace(namespace) {
		if t.GetLabels()[atoll.LabelProtected] == "true" {
			return policymatch.ItemKeyOf(t), true
		}
	}
	return atoll.ItemKey{}, false
}

// TemplateKinds lists the kinds of the templates in the namespace. Sorted.
func (b *Binder) TemplateKinds(namespace string) []schema.GroupKind {
	seen := map[schema.GroupKind]bool{}
	var out []schema.GroupKind
	for _, t := range b.Templates.InNamespace(namespace) {
		if gk := t.GroupVersionKind().GroupKind(); !seen[gk] {
			seen[gk] = true
			out = append(out, gk)
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// FirstDividedWithoutReplicaOverrides returns a template that the override selectors choose (none: all) and
// whose replicas its placement divides without handing them over. An empty namespace means any.
func (b *Binder) FirstDividedWithoutReplicaOverrides(namespace string, selectors []v1alpha1.ResourceSelector) (atoll.ItemKey, bool) {
	o := policymatch.CompileOverride(policymatch.CompiledOverride{Namespace: namespace, Spec: &v1alpha1.OverrideSpec{ResourceSelectors: selectors}})
	labelsOf := func(item *atoll.Item) map[string]string { return b.templateLabels(item.Key) }
	for _, id := range b.ownership.bundlesWhere(namespace, func(policymatch.BundleID, *bundleEntry) bool { return true }) {
		from, placed := b.ownership.originAndPlacedKeys(id)
		intent := b.intentOf(id, from)
		if intent == nil || !intent.DividesReplicas() || intent.AllowsReplicaOverrides() {
			continue
		}
		for _, key := range placed {
			if o.SelectsItem(&atoll.Item{Key: key}, labelsOf) && b.hasReplicas(key) {
				return key, true
			}
		}
	}
	return atoll.ItemKey{}, false
}

func (b *Binder) templateLabels(key atoll.ItemKey) map[string]string {
	if t, ok := b.Templates.Get(key); ok {
		return t.GetLabels()
	}
	return nil
}

func (b *Binder) hasReplicas(key atoll.ItemKey) bool {
	t, ok := b.Templates.Get(key)
	return ok && (bundlecontent.StatesReplicas(t) || b.Overrides.InterpreterLibrary().DividesReplicas(t.GroupVersionKind()))
}
