package binder

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// SupposedTables are hypothetical tables, and their differences to the real ones.
type SupposedTables struct {
	Templates  Templates
	Kinds      Kinds
	Namespaces Namespaces
	Policies   Policies
	Overrides  Overrides
	// Placements; nil: the real table.
	Placements Placements
	// Settings of the hub; nil: the real ones.
	Settings Settings
	// Keys of what differs, as the tables report them to subscribers.
	ChangedTemplates  []atoll.ItemKey
	ChangedNamespaces []string
	ChangedPolicies   []PolicyKey
	ChangedPlacements []types.NamespacedName
}

// PreviewedBundle is a Bundle that the hypothetical tables touch.
type PreviewedBundle struct {
	// Bundle that would result. A new Bundle gets a UID that starts with "new:".
	Bundle state.Bundle
	New    bool
	// Content and Revision that would result; the latest ones when no new Revision is needed.
	Content  *atoll.Content
	Revision string
	// Problems of templates that cannot become items.
	Problems []bundlecontent.TemplateProblem
	// WaitReason is why no Revision would be created; empty: one would be. The other results
	// are unknown then.
	WaitReason string
	// WaitCode is the enumerated reason of the wait.
	WaitCode atoll.Reason
}

// maxPreviewRounds bounds how often Bundles that take items over from each other are previewed.
const maxPreviewRounds = 10

// PreviewBundles returns the Bundles that hypothetical tables touch, and their contents. It
// calls the functions that Run calls, and counts every handover between Bundles as done. It
// writes nothing and does not change the Binder.
func (b *Binder) PreviewBundles(ctx context.Context, s SupposedTables) ([]PreviewedBundle, error) {
	f, touched := b.forkForPreview(s)
	b.replayChanges(f, s)
	found, waits := map[policymatch.BundleID]PreviewedBundle{}, map[policymatch.BundleID]bool{}
	for round := 0; len(touched) > 0 && round < maxPreviewRounds; round++ {
		ids := slices.SortedFunc(maps.Keys(touched), policymatch.BundleID.Compare)
		clear(touched)
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			one, ok, err := f.previewBundle(ctx, id, waits)
			if err != nil {
				return nil, err
			}
			if ok {
				found[id] = one
			}
		}
	}
	out := make([]PreviewedBundle, 0, len(found))
	for _, id := range slices.SortedFunc(maps.Keys(found), policymatch.BundleID.Compare) {
		out = append(out, found[id])
	}
	return out, nil
}

// replayChanges makes the fork handle the differences of the hypothetical tables.
func (b *Binder) replayChanges(f *Binder, s SupposedTables) {
	for _, ns := range s.ChangedNamespaces {
		f.lastClustersAnnotation[ns], f.lastNamespaceMeta[ns] = b.clustersAnnotationState(ns), b.namespaceFingerprint(ns)
		if f.handleEvent(tableEvent{namespace: ns}); f.isTerminating(ns) {
			f.touchBundles(f.ownership.bundlesInNamespace(ns)...)
		}
	}
	for _, p := range s.ChangedPolicies {
		f.handleEvent(tableEvent{policy: p})
	}
	if s.Settings != nil {
		f.hubSettingsChanged()
	}
	for _, key := range s.ChangedPlacements {
		f.placementChanged(key)
	}
	for _, key := range s.ChangedTemplates {
		f.handleEvent(tableEvent{template: key, force: true})
	}
	for e, ok := f.events.takeNext(); ok; e, ok = f.events.takeNext() {
		f.handleEvent(e)
	}
}

// forkForPreview makes a Binder over hypothetical tables with a copy of the state of b.
// touched collects the Bundles that its events touch.
func (b *Binder) forkForPreview(s SupposedTables) (f *Binder, touched map[policymatch.BundleID]bool) {
	touched = map[policymatch.BundleID]bool{}
	o := b.Options
	o.Templates, o.Kinds, o.Namespaces, o.Policies, o.Overrides = s.Templates, s.Kinds, s.Namespaces, s.Policies, s.Overrides
	if s.Placements != nil {
		o.Placements = s.Placements
	}
	if s.Settings != nil {
		o.Settings = s.Settings
	}
	o.Client, o.Events, o.ReadOnly, o.Log = nil, nil, true, slog.New(slog.DiscardHandler)
	o.Fingerprints = &FingerprintCache{} // keeps hypothetical templates out of the shared cache
	f = &Binder{
		Options: o, ownership: b.ownership.clone(), events: newEventQueue(),
		overrideSelections: map[PolicyKey]objectSet{}, lastInterpreters: b.Overrides.InterpreterLibrary(), lastDefaultPlacement: b.defaultPlacement(), lastChildPlacement: b.childPlacement(), lastEmptyNamespaces: b.createsEmptyNamespaces(), warnedParents: map[atoll.ItemKey]string{}, lastClustersAnnotation: map[string]string{}, lastNamespaceMeta: map[string]string{}, lastTemplates: map[atoll.ItemKey]templateState{}, lastRecallDecision: map[string]string{},
		touchBundle: func(id policymatch.BundleID) { touched[id] = true },
	}
	for _, id := range b.missingOverrides.pendingKeys() {
		f.missingOverrides.startWait(id, time.Now())
	}
	f.policyStatus = newPolicyStatusWriter(f)
	b.index.mu.RLock()
	f.index.PolicyIndex = b.index.Clone()
	b.index.mu.RUnlock()
	for _, p := range b.Overrides.ClusterOverridePolicies() {
		f.overrideSelections[PolicyKey{"ClusterOverridePolicy", "", p.Name}] = selectedByOverride(&p.Spec.OverrideSpec)
	}
	for _, changed := range s.ChangedPolicies {
		for _, p := range b.Overrides.OverridePolicies(changed.Namespace) {
			f.overrideSelections[PolicyKey{"OverridePolicy", changed.Namespace, p.Name}] = selectedByOverride(&p.Spec)
		}
	}
	return f, touched
}

// previewBundle previews one Bundle; false when there would be none. waits collects the Bundles
// that take nothing over.
func (b *Binder) previewBundle(ctx context.Context, id policymatch.BundleID, waits map[policymatch.BundleID]bool) (PreviewedBundle, bool, error) {
	bundle, exists := b.Bundles.GetByName(id.Namespace, id.Name)
	if exists && bundle.Meta.DeletionTimestamp != nil {
		return PreviewedBundle{}, false, nil
	}
	one := PreviewedBundle{New: !exists}
	if latest, ok := b.Revisions.LatestOfBundle(bundle.Ref.UID); exists && ok {
		one.Revision = latest.Name
	}
	p, err := b.preparePlan(ctx, id, bundle, exists)
	if err != nil {
		return one, false, err
	}
	if one.Bundle = bundle; !exists {
		one.Bundle.Ref.UID, one.Bundle.Ref.Namespace, one.Bundle.Ref.Name = "new:"+id.String(), id.Namespace, id.Name
		one.Bundle.Spec.Source = p.origin.source
	}
	if b.isTerminating(id.Namespace) {
		now := metav1.Now()
		one.Bundle.Meta.DeletionTimestamp, one.Content = &now, p.input.Previous
		return one, exists && one.Content != nil, nil
	}
	if one.WaitCode, one.WaitReason = b.waitReason(id, p, exists); one.WaitReason != "" {
		if !waits[id] {
			waits[id] = true
			b.touchOtherBundles(id, p.input.Chosen) // which keep what this Bundle would take over
		}
		return one, true, nil
	}
	return b.previewContent(id, bundle, exists, p, one, waits)
}

// previewContent previews the content of a Bundle that does not wait.
func (b *Binder) previewContent(id policymatch.BundleID, bundle state.Bundle, exists bool, p bundlePlan, one PreviewedBundle, waits map[policymatch.BundleID]bool) (PreviewedBundle, bool, error) {
	world := previewWorld{bundleWorld{b, id}, waits}
	p.input.Templates, p.input.Holders = world, world
	p.output = bundlecontent.NextContent(p.input)
	if !exists && p.output.Content.HoldsNothing() {
		return one, false, nil
	}
	one.Content, one.Problems = &p.output.Content, p.output.Problems
	one.Bundle.Spec = p.bundleSpec(bundle.Spec)
	if p.output.NeedsRevision {
		one.Revision = atoll.RevisionName(one.Bundle.Ref.UID, p.input.PreviousNumber+1, atoll.HashParts(atoll.EncodeContentIdentity(one.Content)))
	} else if p.input.Previous != nil {
		one.Content = p.input.Previous
	}
	b.ownership.setDependencies(id, p.output.Dependencies, p.output.Selections)
	b.touchOtherBundles(id, b.ownership.setContent(id, one.Bundle.Ref.UID, p.input.PreviousNumber+1, one.Content))
	return one, true, nil
}

// touchOtherBundles touches the Bundles that the keys concern, but for one.
func (b *Binder) touchOtherBundles(id policymatch.BundleID, keys []atoll.ItemKey) {
	for _, key := range keys {
		b.touchBundles(slices.DeleteFunc(b.ownership.bundlesTouchedBy(key), func(other policymatch.BundleID) bool { return other == id })...)
	}
}

// waitReason returns why no Revision of the Bundle would be created; empty: one would be.
func (b *Binder) waitReason(id policymatch.BundleID, p bundlePlan, exists bool) (atoll.Reason, string) {
	if unplaced := b.missingPlacementReasonForSource(id, p.origin); !exists && unplaced != "" {
		return atoll.ReasonPlacementMissing, unplaced
	}
	if p.isNamespaceMissing() {
		return atoll.ReasonNamespaceUnknown, fmt.Sprintf("namespace %s is not there", id.Namespace)
	}
	if why := b.MissingOverridesReason(id, p.origin.source); why != "" {
		return atoll.ReasonOverridesMissing, why
	}
	if kind, unread := b.firstUnsyncedInput(p); unread {
		return atoll.ReasonCannotRead, fmt.Sprintf("objects of kind %s are not read yet", kind)
	}
	return "", ""
}

// previewWorld counts every handover as done, but for Bundles that wait.
type previewWorld struct {
	bundleWorld
	waiting map[policymatch.BundleID]bool
}

func (w previewWorld) PlacedBy(key atoll.ItemKey) (bundlecontent.PlacedBy, bool) {
	c, held, to := w.ownership.placedByOf(w.id, key)
	return c, held && !(c == bundlecontent.PlacedByOther && w.waiting[to])
}

// clone copies the index.
func (c *ownershipIndex) clone() *ownershipIndex {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := newOwnershipIndex()
	maps.Copy(out.placedBy, c.placedBy)
	maps.Copy(out.byUID, c.byUID)
	for id, b := range c.bundles {
		one := *b
		one.placedKeys, one.undecided = maps.Clone(b.placedKeys), maps.Clone(b.undecided) // items, dependencies and releasing are replaced, never changed
		out.bundles[id] = &one
	}
	cloneSets(out.byNamespace, c.byNamespace)
	cloneSets(out.bySource, c.bySource)
	cloneSets(out.holders, c.holders)
	cloneSets(out.dependents, c.dependents)
	cloneSets(out.releasing, c.releasing)
	cloneSets(out.deletedUIDs, c.deletedUIDs)
	cloneSets(out.handoverTargets, c.handoverTargets)
	out.family, out.selections = c.family.clone(), c.selections.clone()
	return out
}

func cloneSets[K, L comparable, M ~map[K]map[L]bool](to, from M) {
	for k, set := range from {
		to[k] = maps.Clone(set)
	}
}
