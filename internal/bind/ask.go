package bind

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/render"
)

// Explanation is who places a template, and why.
type Explanation struct {
	claim.Decision
	// Bundle that the template goes into; zero when nobody places it.
	Bundle claim.BundleID
	// Needed lists the Bundles that take it along as a dependency.
	Needed []claim.BundleID
	// Lost says why each of Others did not win.
	Lost []string
}

// Loaded tells whether policies and what Bundles have are read, so that Explain and
// Skipped answer from all that there is.
func (b *Binder) Loaded() bool { return b.loaded.Load() }

// Explain who places a template, by the same function that decides; false when there
// is no such template.
func (b *Binder) Explain(key atoll.ItemKey) (Explanation, bool) {
	t, ok := b.Templates.Get(key)
	if !ok {
		return Explanation{}, false
	}
	sub := claim.SubjectFrom(t)
	d, _ := b.who(sub)
	e := Explanation{Decision: d}
	if e.Winner != nil {
		e.Bundle, _ = claim.BundleFor(*e.Winner, sub)
		for _, o := range e.Others {
			e.Lost = append(e.Lost, claim.Lost(*e.Winner, o))
		}
	}
	e.Needed = b.claims.needing(key)
	return e, true
}

// Involved lists the Bundles that place the object, hold it, or want it as a
// dependency; whether or not it exists.
func (b *Binder) Involved(key atoll.ItemKey) []claim.BundleID { return b.claims.touched(key) }

// Skipped is a template that its namespace's annotation leaves out.
type Skipped struct {
	Key atoll.ItemKey
	Why string
}

// Skipped lists what the annotation of a namespace leaves out; nothing where the
// namespace has none.
func (b *Binder) Skipped(namespace string) []Skipped {
	if _, ok := claim.Clusters(b.namespaceOf(namespace).Annotations); !ok {
		return nil
	}
	var out []Skipped
	for _, t := range b.Templates.InNamespace(namespace) {
		if why := claim.BeyondScope(claim.SubjectFrom(t)); why != "" {
			out = append(out, Skipped{claim.KeyOf(t), why})
		}
	}
	return out
}

// Holds tells whether an object that is being written is placed, or needed by
// something that is.
func (b *Binder) Holds(sub claim.Subject) bool {
	d, held := b.who(sub)
	if d.Winner != nil && (held || !atoll.IsNowhere(d.Winner.Spec.Placement)) {
		return true
	}
	return len(b.claims.touched(sub.Key)) > 0 || b.claims.selections.mean(sub.Key, sub.Labels)
}

// Carries tells whether a template that is being written could be sent, by what makes an
// item of it: nil, or why it is too large. Other reasons are Plan's to tell.
func (b *Binder) Carries(t *unstructured.Unstructured) error {
	sub := claim.SubjectFrom(t)
	item := atoll.Item{Key: sub.Key, APIVersion: t.GetAPIVersion(), UID: sub.UID, Source: render.Fingerprint(t)}
	if err := claim.Fill(&item, t, b.Defaults, limits{}); err != nil && len(item.Object) > 0 {
		return err
	}
	return nil
}

// Protected names a template in the namespace that may not be deleted.
func (b *Binder) Protected(namespace string) (atoll.ItemKey, bool) {
	for _, t := range b.Templates.InNamespace(namespace) {
		if t.GetLabels()[atoll.LabelProtected] == "true" {
			return claim.KeyOf(t), true
		}
	}
	return atoll.ItemKey{}, false
}

// Kinds lists the kinds of the templates in the namespace.
func (b *Binder) Kinds(namespace string) []schema.GroupKind {
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

// Divided names a template that override selectors choose (none: all) and whose
// replicas its placement divides and does not hand over. An empty namespace means any.
func (b *Binder) Divided(namespace string, selectors []v1alpha1.ResourceSelector) (atoll.ItemKey, bool) {
	o := claim.CompileOverride(claim.Override{Namespace: namespace, Spec: &v1alpha1.OverrideSpec{ResourceSelectors: selectors}})
	labelsOf := func(item *atoll.Item) map[string]string { return b.labels(item.Key) }
	for _, id := range b.claims.where(namespace, func(claim.BundleID, *bundleClaims) bool { return true }) {
		from, placed := b.claims.known(id)
		intent := b.intent(id, from)
		if intent == nil || !intent.Divides() || intent.HandsReplicas() {
			continue
		}
		for _, key := range placed {
			if o.Selects(&atoll.Item{Key: key}, labelsOf) && b.replicated(key) {
				return key, true
			}
		}
	}
	return atoll.ItemKey{}, false
}

func (b *Binder) labels(key atoll.ItemKey) map[string]string {
	if t, ok := b.Templates.Get(key); ok {
		return t.GetLabels()
	}
	return nil
}

func (b *Binder) replicated(key atoll.ItemKey) bool {
	t, ok := b.Templates.Get(key)
	return ok && (claim.Replicated(t) || b.Policies.Interpreters().Divides(t.GroupVersionKind()))
}
