package bind

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// Supposed are tables as they would be, and what in them differs from what is.
type Supposed struct {
	Templates  Templates
	Namespaces Namespaces
	Policies   Policies
	// Placements; nil: as they are.
	Placements Placements
	// Keys of the templates, names of the namespaces, policies and Placements, as the
	// tables' subscribers are told, that differ.
	ChangedTemplates  []atoll.ItemKey
	ChangedNamespaces []string
	ChangedPolicies   []PolicyKey
	ChangedPlacements []types.NamespacedName
}

// PolicyKey names a policy of any kind.
type PolicyKey struct{ Kind, Namespace, Name string }

// Foreseen is a Bundle that would be touched.
type Foreseen struct {
	// Bundle as it would be. Its UID is made up where there is none yet.
	Bundle state.Bundle
	New    bool
	// Content that it would have, and the name of its revision: the latest, where that
	// would do.
	Content  *atoll.Content
	Revision string
	// Problems with what it would hold.
	Problems []claim.Problem
	// Waits says what no revision would be cut for; nothing else is known then.
	Waits string
}

// mostRounds of Bundles that take items over from one another are foreseen.
const mostRounds = 10

// Foresee which Bundles the supposed tables touch, and what they would have, by the same
// functions that Run calls. What one Bundle hands over to another counts as handed over.
// Nothing is written, and the Binder stays as it is.
func (b *Binder) Foresee(ctx context.Context, s Supposed) ([]Foreseen, error) {
	f, touched := b.fork(s)
	defer f.reports.queue.ShutDown()
	for _, ns := range s.ChangedNamespaces {
		f.namespaces[ns], f.told[ns] = b.namespaceState(ns), b.toldOf(ns)
		if f.handle(event{namespace: ns}); f.terminating(ns) {
			f.touch(f.claims.inNamespace(ns)...)
		}
	}
	for _, p := range s.ChangedPolicies {
		f.handle(event{policy: policyKey{p.Kind, p.Namespace, p.Name}})
	}
	for _, key := range s.ChangedPlacements {
		f.placementChanged(key)
	}
	for _, key := range s.ChangedTemplates {
		f.handle(event{template: key, anew: true})
	}
	for e, ok := f.inbox.take(); ok; e, ok = f.inbox.take() {
		f.handle(e)
	}
	found, waits := map[claim.BundleID]Foreseen{}, map[claim.BundleID]bool{}
	for range mostRounds {
		ids := slices.SortedFunc(maps.Keys(touched), claim.BundleID.Compare)
		clear(touched)
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			one, ok, err := f.foresee(ctx, id, waits)
			if err != nil {
				return nil, err
			}
			if ok {
				found[id] = one
			}
		}
		if len(touched) == 0 {
			break
		}
	}
	out := make([]Foreseen, 0, len(found))
	for _, id := range slices.SortedFunc(maps.Keys(found), claim.BundleID.Compare) {
		out = append(out, found[id])
	}
	return out, nil
}

// fork a Binder over the supposed tables, that knows what b knows. touched are the
// Bundles that what it handles is about.
func (b *Binder) fork(s Supposed) (f *Binder, touched map[claim.BundleID]bool) {
	touched = map[claim.BundleID]bool{}
	o := b.Options
	o.Templates, o.Namespaces, o.Policies = s.Templates, s.Namespaces, s.Policies
	if s.Placements != nil {
		o.Placements = s.Placements
	}
	o.Client, o.Events, o.ReadOnly, o.Log = nil, nil, true, slog.New(slog.DiscardHandler)
	o.Prints = &Prints{} // what is supposed is nobody else's to remember
	f = &Binder{
		Options: o, claims: b.claims.clone(), inbox: newInbox(), unread: newWaits[schema.GroupKind](), homeless: newWaits[claim.BundleID](), placeless: newWaits[claim.BundleID](),
		overridden: map[policyKey]kindSet{}, library: b.Policies.Interpreters(), namespaces: map[string]string{}, told: map[string]string{}, seen: map[atoll.ItemKey]looked{}, decided: map[string]string{},
		quiet: collector(touched),
	}
	f.reports = newReporter(f)
	b.index.mu.RLock()
	f.index.Index = b.index.Clone()
	b.index.mu.RUnlock()
	for _, p := range b.Policies.ClusterOverrides() {
		f.overridden[policyKey{"ClusterOverridePolicy", "", p.Name}] = overridden(&p.Spec.OverrideSpec)
	}
	for _, changed := range s.ChangedPolicies {
		for _, p := range b.Policies.Overrides(changed.Namespace) {
			f.overridden[policyKey{"OverridePolicy", changed.Namespace, p.Name}] = overridden(&p.Spec)
		}
	}
	return f, touched
}

// collector of the Bundles that are touched.
type collector map[claim.BundleID]bool

func (c collector) touch(id claim.BundleID) { c[id] = true }
func (collector) stop()                     {}

// foresee one Bundle; false when there would be nothing of it. waits are the Bundles that
// take nothing over.
func (b *Binder) foresee(ctx context.Context, id claim.BundleID, waits map[claim.BundleID]bool) (Foreseen, bool, error) {
	bundle, exists := b.Bundles.ByName(id.Namespace, id.Name)
	if exists && bundle.Meta.DeletionTimestamp != nil {
		return Foreseen{}, false, nil
	}
	one := Foreseen{New: !exists}
	if latest, ok := b.Revisions.Latest(bundle.Ref.UID); exists && ok {
		one.Revision = latest.Name
	}
	p, err := b.prepare(ctx, id, bundle, exists)
	if err != nil {
		return one, false, err
	}
	if one.Bundle = bundle; !exists {
		one.Bundle.Ref.UID, one.Bundle.Ref.Namespace, one.Bundle.Ref.Name = "new:"+id.String(), id.Namespace, id.Name
		one.Bundle.Spec.Source = p.from.source
	}
	if b.terminating(id.Namespace) {
		now := metav1.Now()
		one.Bundle.Meta.DeletionTimestamp, one.Content = &now, p.in.Previous
		return one, exists && one.Content != nil, nil
	}
	if one.Waits = b.waitsFor(id, p, exists); one.Waits != "" {
		if !waits[id] {
			waits[id] = true
			for _, key := range p.in.Claimed { // others keep what it would take over
				b.touch(slices.DeleteFunc(b.claims.touched(key), func(other claim.BundleID) bool { return other == id })...)
			}
		}
		return one, true, nil
	}
	p.in.World = foreseeing{world{b, id}, waits}
	p.out = claim.Plan(p.in)
	if !exists && len(p.out.Content.Items) == 0 {
		return one, false, nil
	}
	one.Content, one.Problems = &p.out.Content, p.out.Problems
	one.Bundle.Spec = p.spec(bundle.Spec)
	if p.out.Cut {
		one.Revision = atoll.RevisionName(one.Bundle.Ref.UID, p.in.Number+1, atoll.Hash(atoll.ContentIdentity(one.Content)))
	} else if p.in.Previous != nil {
		one.Content = p.in.Previous
	}
	b.claims.wants(id, p.out.Wants, p.out.Selections)
	for _, key := range b.claims.has(id, one.Bundle.Ref.UID, p.in.Number+1, one.Content) {
		b.touch(slices.DeleteFunc(b.claims.touched(key), func(other claim.BundleID) bool { return other == id })...)
	}
	return one, true, nil
}

// waitsFor says what no revision of the Bundle would be cut for; empty: one would be.
func (b *Binder) waitsFor(id claim.BundleID, p plan, exists bool) string {
	if unplaced := b.unplacedSource(id, p.from); !exists && unplaced != "" {
		return unplaced
	}
	if p.homeless() {
		return fmt.Sprintf("namespace %s is not there", id.Namespace)
	}
	if kind, unread := b.unsynced(p.in); unread {
		return fmt.Sprintf("objects of kind %s are not read yet", kind)
	}
	return ""
}

// foreseeing that every Bundle takes over what it is to, but for those that wait.
type foreseeing struct {
	world
	waits map[claim.BundleID]bool
}

func (w foreseeing) Claim(key atoll.ItemKey) (claim.Claim, bool) {
	c, held, to := w.claims.claim(w.id, key)
	return c, held && !(c == claim.Others && w.waits[to])
}

// clone of all that is remembered.
func (c *claims) clone() *claims {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := newClaims()
	maps.Copy(out.placed, c.placed)
	maps.Copy(out.byUID, c.byUID)
	for id, b := range c.bundles {
		one := *b
		one.placed = maps.Clone(b.placed) // items and wants are replaced, never changed
		out.bundles[id] = &one
	}
	deepCopy(out.spaces, c.spaces)
	deepCopy(out.sources, c.sources)
	deepCopy(out.held, c.held)
	deepCopy(out.wanted, c.wanted)
	deepCopy(out.deleted, c.deleted)
	deepCopy(out.awaits, c.awaits)
	out.selections = c.selections.clone()
	return out
}

func deepCopy[K, L comparable, M ~map[K]map[L]bool](to, from M) {
	for k, set := range from {
		to[k] = maps.Clone(set)
	}
}
