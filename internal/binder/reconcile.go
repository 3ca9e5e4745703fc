package binder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// errPlanStale means that an input of the plan has changed; the change touches the Bundle again.
var errPlanStale = errors.New("changed while it was planned")

// logFailure logs why a Bundle was not reconciled; a stale plan is no failure.
func (b *Binder) logFailure(id policymatch.BundleID, err error) {
	if !apierrors.IsConflict(err) && !errors.Is(err, errPlanStale) {
		b.Log.Error("could not bind; trying again", "bundle", id.String(), "err", err)
	}
}

// reconcileBundle brings a Bundle and its latest Revision in line with templates and policies.
func (b *Binder) reconcileBundle(ctx context.Context, id policymatch.BundleID) (again time.Duration, err error) {
	bundle, exists := b.Bundles.GetByName(id.Namespace, id.Name)
	if exists && bundle.Meta.DeletionTimestamp != nil || b.isTerminating(id.Namespace) {
		b.touched.endWait(id)
		return 0, nil
	}
	if exists {
		if err := b.storeLatestContent(ctx, bundle); err != nil {
			return 0, err
		}
	}
	p, err := b.preparePlan(ctx, id, bundle, exists)
	if err != nil {
		return 0, err
	}
	if p.missingPlacement = b.missingPlacementReasonForSource(id, p.origin); !exists && p.missingPlacement != "" {
		return b.awaitPlacement(id, p.missingPlacement, p.input.Chosen), nil
	}
	b.missingPlacements.endWait(id)
	if p.isNamespaceMissing() {
		return b.awaitNamespace(ctx, id, bundle, p.origin, p.input.Chosen)
	}
	b.missingNamespaces.endWait(id)
	if why := b.updateOverridesWait(id, p.origin.source); why != "" {
		return b.awaitOverrides(ctx, id, bundle, p, why)
	}
	if kind, unread := b.firstUnsyncedInput(p); unread {
		return b.awaitKind(ctx, id, bundle, p.origin, kind)
	}
	b.ownership.setWaitsForSync(id, false)
	return b.planBundle(ctx, id, bundle, exists, p)
}

// planBundle plans a Bundle's content, and writes it unless the Binder is read-only.
func (b *Binder) planBundle(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, exists bool, p bundlePlan) (again time.Duration, err error) {
	if !b.ReadOnly {
		if err := b.decideHeldBackDeletions(ctx, bundle, p.input.Previous); err != nil {
			return 0, err
		}
	}
	p.output = bundlecontent.NextContent(p.input)
	b.ownership.setDependencies(id, p.output.Dependencies, p.output.Selections)
	if kind, unread := b.firstUnsyncedKind(b.dependencyKinds(p.output)); unread {
		return b.awaitKind(ctx, id, bundle, p.origin, kind)
	}
	b.ownership.recordPendingHandovers(id, p.output.HandoverPending)
	if b.ReadOnly {
		return 0, nil
	}
	b.policyStatus.setProblems(id, atoll.ReasonCannotSend, p.output.Problems)
	if err := b.reportProblems(ctx, bundle, p.origin, p.missingPlacement, p.output.Problems); err != nil {
		return 0, err
	}
	if err := b.applyPlan(ctx, id, bundle, exists, p); err != nil {
		return 0, err
	}
	b.touched.endWait(id)
	if p.output.NeedsRevision && b.overridesOrInterpretersChangedSince(id, p.input) {
		b.touchBundles(id)
	}
	return 0, nil
}

// overridesOrInterpretersChangedSince reports whether override policies or interpreters changed after the plan. Such a
// change touches Bundles by their content, which a Bundle lacks while its first Revision is
// being written.
func (b *Binder) overridesOrInterpretersChangedSince(id policymatch.BundleID, in bundlecontent.Input) bool {
	return b.Overrides.InterpreterLibrary() != in.Interpreters || !slices.EqualFunc(b.Overrides.ClusterOverridePolicies(), in.ClusterOverrides, isSameSpec) ||
		id.Namespace != "" && !slices.EqualFunc(b.Overrides.OverridePolicies(id.Namespace), in.NamespaceOverrides, isSameSpec)
}

// isSameSpec reports whether two policies differ in their status at most.
func isSameSpec[T interface {
	comparable
	client.Object
}](a, b T) bool {
	return a == b || a.GetUID() != "" && a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration()
}

// preparePlan gathers the inputs of a Bundle's plan.
func (b *Binder) preparePlan(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, exists bool) (bundlePlan, error) {
	started := time.Now()
	from, claimed := b.ownership.originAndPlacedKeys(id)
	claimed = b.addUndecidedTemplates(id, claimed)
	intent := b.intentOf(id, from)
	in := bundlecontent.Input{
		BundleUID: bundle.Ref.UID, ConfirmedPlan: bundle.Meta.Annotations[atoll.AnnotationConfirm],
		Chosen: claimed, Intent: intent, Defaulter: b.Defaults, Fingerprint: b.Fingerprints.FingerprintOf, Templates: bundleWorld{b, id}, Holders: bundleWorld{b, id}, SizeLimits: storeLimits{}, OwnNamespace: id.OwnNamespace(), CreatesEmptyNamespace: b.createsEmptyNamespaces(),
		ClusterOverrides: b.Overrides.ClusterOverridePolicies(), Interpreters: b.Overrides.InterpreterLibrary(),
	}
	if id.Namespace != "" {
		in.NamespaceOverrides = b.Overrides.OverridePolicies(id.Namespace)
		in.Namespace = b.namespaceMeta(id.Namespace)
	}
	if exists {
		var err error
		if in.Previous, in.PreviousNumber, err = b.latestContent(ctx, bundle.Ref.UID); err != nil {
			return bundlePlan{}, fmt.Errorf("read the content that bundle %s has: %w", id, err)
		}
		in.IsConfirmed = b.tombstoneCarriedOutCheck(bundle.Ref.UID)
		in.IsInNoCluster = func() bool { return b.isInNoCluster(bundle.Ref.UID) }
	}
	var err error
	if in.HandedOver, err = b.itemsTakenOver(ctx, id, claimed, in.Previous); err != nil {
		return bundlePlan{}, fmt.Errorf("read what bundle %s takes over: %w", id, err)
	}
	return bundlePlan{input: in, origin: from, intent: intent, startedAt: started, isNamespaced: id.Namespace != ""}, nil
}

// addUndecidedTemplates adds the templates that a Bundle has from before the start, until an event decides about
// each of them: a start is no reason to call them Unclaimed. Changes of users go before these events, so a plan
// can come first. A template that is gone gets no event, and is decided here.
func (b *Binder) addUndecidedTemplates(id policymatch.BundleID, claimed []atoll.ItemKey) []atoll.ItemKey {
	for _, key := range b.ownership.undecidedItems(id) {
		isRead := b.Kinds.IsSynced(key.Group, key.Kind) // before the look into the table
		if _, exists := b.Templates.Get(key); exists {
			claimed = append(claimed, key)
		} else if isRead {
			b.ownership.markDecided(key)
		}
	}
	slices.SortFunc(claimed, atoll.ItemKey.Compare)
	return claimed
}

// tombstoneCarriedOutCheck returns whether all rows of a Bundle have carried out a tombstone of its
// latest Revision. Rows are read at the first call.
func (b *Binder) tombstoneCarriedOutCheck(bundle string) func(atoll.Tombstone) bool {
	var rows []state.Row
	revision, read := "", false
	return func(t atoll.Tombstone) bool {
		if !read {
			rows, read = b.Rows.ListOfBundle(bundle), true
			if latest, ok := b.Revisions.LatestOfBundle(bundle); ok {
				revision = latest.Name
			}
		}
		return !slices.ContainsFunc(rows, func(r state.Row) bool { return !t.IsDoneInRow(revision, r.Spec, r.Status) })
	}
}

// bundlePlan is a plan with its inputs.
type bundlePlan struct {
	input  bundlecontent.Input
	output bundlecontent.Output
	origin bundleOrigin
	intent *policymatch.Intent
	// missingPlacement explains which Placement of the source is missing; empty: none.
	missingPlacement string
	// startedAt is when the gathering of inputs began.
	startedAt time.Time
	// isNamespaced is true for a Bundle in a namespace.
	isNamespaced bool
}

// isNamespaceMissing reports whether templates are placed in a namespace that the hub does not
// have.
func (p bundlePlan) isNamespaceMissing() bool {
	return p.isNamespaced && p.input.Namespace == nil && len(p.input.Chosen) > 0
}

// bundleSpec returns the spec of the Bundle, from the old one and the plan.
func (p bundlePlan) bundleSpec(old v1alpha1.BundleSpec) v1alpha1.BundleSpec {
	old.Source, old.Group = p.origin.source, p.origin.group
	if p.intent != nil {
		s := p.intent.Spec
		old.WeightRule = nextWeightRule(&old, &s.Placement)
		old.Placement, old.ConflictResolution, old.Removal = s.Placement, s.ConflictResolution, s.Removal
		old.WhenUnfit, old.MoveOrder, old.Rollout, old.Suspension, old.DependsOn = s.WhenUnfit, s.MoveOrder, s.Rollout, s.Suspension, s.DependsOn
	}
	return old
}

func (b *Binder) applyPlan(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, exists bool, p bundlePlan) error {
	if !exists && p.output.Content.HoldsNothing() {
		return nil
	}
	if err := b.addFinalizers(ctx, p.output.NeedFinalizer); err != nil {
		return err
	}
	if !exists || p.intent != nil {
		var err error
		if bundle, err = b.writeBundle(ctx, id, bundle, p); err != nil {
			return err
		}
	}
	if p.output.NeedsRevision {
		if err := b.createRevision(ctx, bundle.Ref, p); err != nil {
			return err
		}
		b.recordNewContent(id, bundle.Ref.UID, p)
	}
	if p.output.Content.HoldsNothing() && len(p.output.Content.Tombstones) == 0 {
		return b.deleteEmptyBundle(ctx, bundle)
	}
	return nil
}

// recordNewContent records the new content, and touches the Bundles that waited for this one to take an
// item over.
func (b *Binder) recordNewContent(id policymatch.BundleID, uid string, p bundlePlan) {
	for _, key := range b.ownership.setContent(id, uid, p.input.PreviousNumber+1, &p.output.Content) {
		for _, other := range b.ownership.bundlesTouchedBy(key) {
			if other != id {
				b.bundleQueue.EnqueueNow(other)
			}
		}
	}
	b.policyStatus.recordUsedOverrides(id, &p.output.Content)
	if p.input.Previous != nil {
		for _, item := range p.input.Previous.Items {
			b.ownership.dropDeletionsUnlessHeld(item.Key)
		}
		for _, t := range p.input.Previous.Tombstones {
			b.ownership.dropDeletionsUnlessHeld(t.Key)
		}
	}
	b.policyStatus.enqueuePolicy(PolicyKey{p.origin.source.Kind, policyNamespace(p.origin.source.Kind, id), p.origin.source.Name})
}

func policyNamespace(kind string, id policymatch.BundleID) string {
	if kind == v1alpha1.SourcePropagationPolicy {
		return id.Namespace
	}
	return ""
}

// intentOf returns what a Bundle's source states; nil when the source is deleted or cannot be
// read.
func (b *Binder) intentOf(id policymatch.BundleID, from bundleOrigin) *policymatch.Intent {
	switch from.source.Kind {
	case v1alpha1.SourcePropagationPolicy, v1alpha1.SourceClusterPropagationPolicy:
		if spec := b.policySpecOf(id, from.source); spec != nil {
			return b.intentWithPlacement(id, from.source.Kind, *spec)
		}
	case v1alpha1.SourceNamespaceAnnotation:
		return policymatch.IntentFromAnnotation(b.namespaceOf(id.Namespace).Annotations)
	case v1alpha1.SourceHubSettings:
		if spec := b.hubDefaultSpec(); spec != nil {
			return b.intentWithPlacement(id, from.source.Kind, *spec)
		}
	case v1alpha1.SourceAnnotation:
		if t, ok := b.Templates.Get(b.annotatedObject(id, from)); ok {
			return policymatch.IntentFromAnnotation(t.GetAnnotations())
		}
	}
	return nil
}

// firstUnsyncedInput returns a kind without which the plan could be wrong; false when there is
// none.
func (b *Binder) firstUnsyncedInput(p bundlePlan) (schema.GroupKind, bool) {
	in := p.input
	kinds, keys := map[schema.GroupKind]bool{crdKind: true}, slices.Clone(in.Chosen)
	if in.Previous != nil {
		for i := range in.Previous.Items {
			keys = append(keys, in.Previous.Items[i].Key)
		}
	}
	for _, key := range keys {
		kinds[policymatch.GroupKindOf(key)] = true
	}
	if in.Intent != nil {
		for _, rs := range in.Intent.Spec.ResourceSelectors {
			if _, known := b.Kinds.IsNamespaced(policymatch.SelectorKind(rs).Group, rs.Kind); known {
				kinds[policymatch.SelectorKind(rs)] = true
			}
		}
		if in.Intent.Spec.PropagateDeps {
			for _, kind := range []string{"ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"} {
				kinds[schema.GroupKind{Kind: kind}] = true
			}
		}
	}
	gk, unread := b.firstUnsyncedKind(kinds)
	if !unread && p.intent == nil && p.origin.source.Kind == v1alpha1.SourceAnnotation {
		return b.unsyncedParentKind(keys) // the annotated object may be a parent that is no item
	}
	return gk, unread
}

// dependencyKinds lists the kinds of the plan's dependencies that the hub serves.
func (b *Binder) dependencyKinds(out bundlecontent.Output) map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	note := func(gk schema.GroupKind) {
		if _, known := b.Kinds.IsNamespaced(gk.Group, gk.Kind); known {
			kinds[gk] = true
		}
	}
	for _, key := range out.Dependencies {
		note(policymatch.GroupKindOf(key))
	}
	for _, s := range out.Selections {
		note(schema.GroupKind{Group: s.Group, Kind: s.Kind})
	}
	return kinds
}

// firstUnsyncedKind returns the first kind, by name, that is not synced.
func (b *Binder) firstUnsyncedKind(kinds map[schema.GroupKind]bool) (schema.GroupKind, bool) {
	for _, gk := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }) {
		if !b.Kinds.IsSynced(gk.Group, gk.Kind) {
			return gk, true
		}
	}
	return schema.GroupKind{}, false
}

// writeBundle creates the Bundle, or updates its spec.
func (b *Binder) writeBundle(ctx context.Context, id policymatch.BundleID, old state.Bundle, p bundlePlan) (state.Bundle, error) {
	spec := p.bundleSpec(old.Spec)
	if old.Ref.UID == "" {
		if p.intent == nil {
			return old, errPlanStale
		}
		old.Ref.Namespace, old.Ref.Name = id.Namespace, id.Name
		old.Meta = metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Finalizers: []string{atoll.FinalizerBundle}}
		old.Spec = spec
		return b.writeAndStore(old.ToObject(), func(o client.Object) error { return b.Client.Create(ctx, o) }, "make bundle "+id.String())
	}
	if apiequality.Semantic.DeepEqual(old.Spec, spec) {
		return old, nil
	}
	old.Spec = spec
	old.Meta.Annotations = dropTakenDriftOrders(old.Meta.Annotations, func() []state.Row { return b.Rows.ListOfBundle(old.Ref.UID) })
	return b.writeAndStore(old.ToObject(), func(o client.Object) error { return b.Client.Update(ctx, o) }, "write bundle "+id.String())
}

func (b *Binder) writeAndStore(obj client.Object, write func(client.Object) error, what string) (state.Bundle, error) {
	if err := write(obj); err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = errPlanStale
		}
		return state.Bundle{}, fmt.Errorf("%s: %w", what, err)
	}
	b.Bundles.Put(obj)
	bundle, _ := state.BundleOf(obj)
	return bundle, nil
}

// deleteEmptyBundle deletes a Bundle without content, unless one of its rows is held.
func (b *Binder) deleteEmptyBundle(ctx context.Context, bundle state.Bundle) error {
	if slices.ContainsFunc(b.Rows.ListOfBundle(bundle.Ref.UID), func(r state.Row) bool { return r.Spec.Phase == atoll.RowHeld }) {
		return nil
	}
	obj := bundle.ToObject()
	pre := client.Preconditions{UID: &bundle.Meta.UID, ResourceVersion: &bundle.Meta.ResourceVersion}
	if err := b.Client.Delete(ctx, obj, pre); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the empty bundle %s/%s: %w", bundle.Ref.Namespace, bundle.Ref.Name, err)
	}
	return nil
}
