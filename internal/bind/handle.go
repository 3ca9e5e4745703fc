package bind

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/render"
)

// handle one event: find out which Bundles it is about.
func (b *Binder) handle(e event) {
	switch {
	case e.template != (atoll.ItemKey{}):
		b.template(e.template, e.anew)
	case e.policy != (policyKey{}):
		b.policy(e.policy)
	case e.placement != (types.NamespacedName{}):
		b.placementChanged(e.placement)
	case e.namespace != "":
		b.namespace(e.namespace)
	case e.bundle != "":
		b.bundle(e.bundle)
	case e.rows != "":
		b.rows(e.rows)
	case e.clusters:
		b.touch(b.claims.awaiting(claim.BundleID{})...)
	case e.synced:
		b.touch(b.claims.blocked()...)
	}
}

func (b *Binder) touch(ids ...claim.BundleID) {
	for _, id := range ids {
		b.quiet.touch(id)
	}
}

// template finds out who places the template now. Where nothing changed that users
// write, there is nothing to find out, unless it is to be looked at anew.
func (b *Binder) template(key atoll.ItemKey, anew bool) {
	t, ok := b.Templates.Get(key)
	now := looked{}
	if ok {
		now = b.look(t)
	}
	if before, known := b.seen[key]; known && now.sameAs(before) && !anew {
		b.seen[key] = now
		return
	}
	if b.seen[key] = now; !ok {
		delete(b.seen, key)
		b.claims.selections.gone(key)
		b.Prints.forget(key)
	}
	touched := b.claims.touched(key)
	if ok {
		touched = append(touched, b.claims.selections.hear(t)...)
	}
	switch {
	case !ok:
		b.claims.unplace(key)
	case t.GetDeletionTimestamp() != nil:
		b.claims.bury(key, string(t.GetUID()))
		b.claims.unplace(key)
	case b.terminating(key.Namespace):
		return
	default:
		b.decide(t)
	}
	b.touch(touched...)
	b.touch(b.claims.touched(key)...)
}

// looked is all of a template that matters here.
type looked struct {
	content string
	held    bool // it has the finalizer
}

// sameAs tells whether there is nothing to do about a template that was looked at before:
// nothing else is new than that it has the finalizer, which bind puts on itself.
func (l looked) sameAs(before looked) bool {
	return l.content == before.content && (l.held || !before.held)
}

func (b *Binder) look(t *unstructured.Unstructured) looked {
	clusters, annotated := claim.Clusters(t.GetAnnotations())
	return looked{
		content: fmt.Sprint(t.GetUID(), b.Prints.Of(t), annotated, clusters, t.GetAnnotations()[atoll.AnnotationRecalled], t.GetDeletionTimestamp() != nil),
		held:    slices.Contains(t.GetFinalizers(), atoll.Finalizer),
	}
}

func (b *Binder) decide(t *unstructured.Unstructured) {
	sub := claim.SubjectFrom(t)
	d, held := b.who(sub)
	if d.Winner == nil || !held && atoll.IsNowhere(d.Winner.Spec.Placement) {
		b.claims.unplace(sub.Key)
		return
	}
	id, group := claim.BundleFor(*d.Winner, sub)
	o := origin{source: d.Winner.Source, group: group}
	if d.Winner.Source.Kind == v1alpha1.SourceAnnotation {
		o.object = sub.Key
	}
	b.claims.place(sub.Key, id, o)
}

func (b *Binder) namespaceOf(name string) claim.Namespace {
	if name == "" {
		return claim.Namespace{}
	}
	ns, ok := b.Namespaces.Get(name)
	if !ok {
		return claim.Namespace{Name: name}
	}
	return claim.Namespace{Name: name, UID: string(ns.UID), Annotations: ns.Annotations}
}

// terminating namespaces stay as they are: their rows go, their Revisions do not.
func (b *Binder) terminating(name string) bool {
	ns, ok := b.Namespaces.Get(name)
	return ok && ns.DeletionTimestamp != nil
}

// policy looks at what the policy selected or selects, at what it placed, and at its
// Bundles.
func (b *Binder) policy(key policyKey) {
	switch key.kind {
	case v1alpha1.SourcePropagationPolicy:
		var now *claim.Policy
		if p, ok := b.Policies.PropagationPolicy(key.namespace, key.name); ok {
			now = claim.Compile(key.kind, &p.ObjectMeta, &p.Spec)
		}
		b.propagation(key, now, []string{key.namespace})
	case v1alpha1.SourceClusterPropagationPolicy:
		var now *claim.Policy
		if p, ok := b.Policies.ClusterPropagationPolicy(key.name); ok {
			now = claim.Compile(key.kind, &p.ObjectMeta, &p.Spec)
		}
		b.propagation(key, now, append([]string{""}, b.Namespaces.List()...))
	case script.Kind:
		b.interpreted()
	default:
		b.overriding(key)
	}
}

// interpreted touches the Bundles that have objects of kinds about which interpreters say
// something else than before.
func (b *Binder) interpreted() {
	before := b.library
	b.library = b.Policies.Interpreters()
	b.touch(b.claims.about(script.Replaces(before, b.library))...)
}

// propagation: now is nil when the policy is gone.
func (b *Binder) propagation(key policyKey, now *claim.Policy, namespaces []string) {
	was := b.index.set(key, now)
	names, open := claim.Named(was, now)
	for _, ns := range namespaces {
		for _, k := range names {
			k.Namespace = ns
			if _, ok := b.Templates.Get(k); ok {
				b.inbox.put(event{template: k, anew: true})
			}
		}
		if len(open) == 0 {
			continue
		}
		for _, t := range b.Templates.InNamespace(ns) {
			if !open[t.GroupVersionKind().GroupKind()] {
				continue
			}
			sub := claim.SubjectFrom(t)
			_, before := was.Match(sub)
			if _, after := now.Match(sub); before || after {
				b.inbox.put(event{template: sub.Key, anew: true})
			}
		}
	}
	for _, k := range b.claims.chosenBy(key.kind, key.namespace, key.name) {
		b.inbox.put(event{template: k, anew: true})
	}
	b.touch(b.claims.ofSource(key.kind, key.namespace, key.name)...)
	b.reports.touch(key)
}

// remember what an override policy selects now; what it selected before or does now is
// affected.
func (b *Binder) remember(key policyKey, now kindSet, exists bool) (affected kindSet) {
	affected = now.union(b.overridden[key])
	if b.overridden[key] = now; !exists {
		delete(b.overridden, key)
	}
	return affected
}

// overriding touches the Bundles that an override policy was or is about.
func (b *Binder) overriding(key policyKey) {
	now, exists := kindSet{}, false
	for _, o := range claim.InOrder(b.Policies.ClusterOverrides(), b.Policies.Overrides(key.namespace)) {
		if (policyKey{o.Kind, o.Namespace, o.Name}) == key {
			now, exists = overridden(o.Spec), true
		}
	}
	b.touch(b.claims.having(key.namespace, b.remember(key, now, exists))...)
}

// namespaceState is what of a namespace matters to its templates.
func (b *Binder) namespaceState(name string) string {
	ns := b.namespaceOf(name)
	if value, ok := claim.Clusters(ns.Annotations); ok {
		return "=" + value
	}
	return ""
}

// namespaceMeta is what members are told of a namespace; nil where it is not there.
func (b *Binder) namespaceMeta(name string) *atoll.NamespaceMeta {
	ns, ok := b.Namespaces.Get(name)
	if !ok {
		return nil
	}
	meta := render.NamespaceMeta(ns.Labels, ns.Annotations)
	return &meta
}

// toldOf a namespace is what members are told of it, and which it is, since one that was
// made anew comes like any other; "" where it is not there.
func (b *Binder) toldOf(name string) string {
	meta := b.namespaceMeta(name)
	if meta == nil {
		return ""
	}
	return b.namespaceOf(name).UID + " " + atoll.HashJSON(meta)
}

// relabelled looks at the Bundles of a namespace that came, or of which members are to be
// told something else.
func (b *Binder) relabelled(name string) {
	now := b.toldOf(name)
	if b.told[name] == now {
		return
	}
	if b.told[name] = now; now == "" {
		delete(b.told, name)
		return
	}
	b.touch(b.claims.inNamespace(name)...)
}

func (b *Binder) namespace(name string) {
	b.relabelled(name)
	now := b.namespaceState(name)
	if before := b.namespaces[name]; before == now {
		return
	}
	if b.namespaces[name] = now; now == "" {
		delete(b.namespaces, name)
	}
	for _, t := range b.Templates.InNamespace(name) {
		b.inbox.put(event{template: claim.KeyOf(t), anew: true})
	}
	b.touch(b.claims.ofSource(v1alpha1.SourceNamespaceAnnotation, name, name)...)
}

// bundle hears of Bundles that are gone, of what was decided of held removals, and,
// where another hub writes them, of what they have now.
func (b *Binder) bundle(uid string) {
	if bundle, ok := b.Bundles.Get(uid); ok {
		if now := decision(bundle); b.ReadOnly || b.decided[uid] != now {
			b.decided[uid] = now
			b.touch(claim.BundleID{Namespace: bundle.Ref.Namespace, Name: bundle.Ref.Name})
		}
		return
	}
	delete(b.decided, uid)
	if id, ok := b.claims.withUID(uid); ok {
		b.claims.forget(id, uid)
		b.touch(id)
	}
}

// rows that confirmed the last tombstone let an empty Bundle go, and rows that became
// healthy let others go that waited for them.
func (b *Binder) rows(uid string) {
	id, ok := b.claims.withUID(uid)
	if !ok {
		return
	}
	if b.claims.empty(id) {
		b.touch(id)
	}
	b.touch(b.claims.awaiting(id)...)
}
