package binder

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/policymatch"
)

// handleEvent touches the Bundles that an event concerns.
func (b *Binder) handleEvent(e tableEvent) {
	switch {
	case e.template != (atoll.ItemKey{}):
		b.templateChanged(e.template, e.force)
	case e.policy != (PolicyKey{}):
		b.policyChanged(e.policy)
	case e.placement != (types.NamespacedName{}):
		b.placementChanged(e.placement)
	case e.namespace != "":
		b.namespaceChanged(e.namespace)
	case e.bundleUID != "":
		b.bundleChanged(e.bundleUID)
	case e.rowsOfBundle != "":
		b.rowsChanged(e.rowsOfBundle)
	case e.clustersChanged:
		b.touchBundles(b.ownership.bundlesHandingOverTo(policymatch.BundleID{})...)
	case e.settingsChanged:
		b.hubSettingsChanged()
	case e.kindsSynced:
		b.touchBundles(b.ownership.bundlesWaitingForSync()...)
	}
}

func (b *Binder) touchBundles(ids ...policymatch.BundleID) {
	for _, id := range ids {
		b.touchBundle(id)
	}
}

// templateChanged decides the owner of a template. A template in which no user changed anything
// is skipped unless force is set.
func (b *Binder) templateChanged(key atoll.ItemKey, force bool) {
	t, ok := b.Templates.Get(key)
	now := templateState{}
	if ok {
		now = b.templateStateOf(t)
	}
	before, known := b.lastTemplates[key]
	if known && now.isUnchangedSince(before) && !force {
		b.lastTemplates[key] = now
		return
	}
	if b.lastTemplates[key] = now; !ok {
		b.dropTemplateRecords(key)
	}
	touched, placing := b.ownership.bundlesTouchedBy(key), b.ownership.placingBundle(key)
	if ok {
		touched = append(touched, b.ownership.selections.templateChanged(t)...)
		b.ownership.setParent(key, now.parentUID)
	}
	switch {
	case !ok:
		b.ownership.unassignTemplate(key)
	case t.GetDeletionTimestamp() != nil:
		b.ownership.recordDeletion(key, string(t.GetUID()))
		b.ownership.unassignTemplate(key)
	case b.isTerminating(key.Namespace):
		return
	default:
		b.assignToBundle(t)
	}
	b.ownership.markDecided(key)
	b.touchBundles(touched...)
	b.touchBundles(b.ownership.bundlesTouchedBy(key)...)
	if ok {
		b.parentChanged(t, known, placing)
		b.crdHubOnlyChanged(t, before, now)
	}
}

// dropTemplateRecords drops the records of a template that is gone.
func (b *Binder) dropTemplateRecords(key atoll.ItemKey) {
	delete(b.lastTemplates, key)
	delete(b.warnedParents, key)
	b.ownership.setParent(key, "")
	b.ownership.selections.templateDeleted(key)
	b.Fingerprints.removeTemplate(key)
}

// templateState is the part of a template that a Binder depends on.
type templateState struct {
	content      string
	parentUID    string // of the controller reference
	isHubOnly    bool   // by its own labels or annotations
	hasFinalizer bool   // it has the finalizer
}

// isUnchangedSince reports whether a template needs no handling. A new finalizer of Atoll counts
// as no change, because the Binder adds it itself.
func (l templateState) isUnchangedSince(before templateState) bool {
	return l.content == before.content && l.parentUID == before.parentUID && l.isHubOnly == before.isHubOnly && (l.hasFinalizer || !before.hasFinalizer)
}

func (b *Binder) templateStateOf(t *unstructured.Unstructured) templateState {
	annotations := t.GetAnnotations()
	clusters, annotated := policymatch.ClustersAnnotation(annotations)
	return templateState{
		content: fmt.Sprint(t.GetUID(), b.Fingerprints.FingerprintOf(t), annotated, clusters, annotations[atoll.AnnotationRecalled], annotations[atoll.AnnotationServiceAccount],
			policymatch.TreatmentAnnotations(annotations), t.GetDeletionTimestamp() != nil),
		isHubOnly:    policymatch.IsHubOnly(t.GetLabels(), t.GetAnnotations()),
		parentUID:    policymatch.SubjectFromObject(t).Parent.UID,
		hasFinalizer: slices.Contains(t.GetFinalizers(), atoll.Finalizer),
	}
}

func (b *Binder) assignToBundle(t *unstructured.Unstructured) {
	sub := policymatch.SubjectFromObject(t)
	d, held := b.decidePlacingSource(sub)
	if held && d.Winner == nil && d.IsParentMissing {
		b.ownership.keepWithHolder(sub.Key)
		return
	}
	if d.Winner == nil || !held && atoll.IsNowhere(d.Winner.Spec.Placement) {
		b.ownership.unassignTemplate(sub.Key)
		b.reportUnplaced(t, sub)
		return
	}
	id, group := d.BundleOf(sub)
	o := bundleOrigin{source: d.Winner.Source, group: group}
	if d.Winner.Source.Kind == v1alpha1.SourceAnnotation {
		o.annotatedObject = d.PlacedSubject(sub).Key
	}
	b.ownership.assignTemplate(sub.Key, id, o)
	b.recordTwoControllersEvent(t, d)
	b.withdrawUnselected(t, withdrawAfter)
}

func (b *Binder) namespaceOf(name string) policymatch.Namespace {
	if name == "" {
		return policymatch.Namespace{}
	}
	ns, ok := b.Namespaces.Get(name)
	if !ok {
		return policymatch.Namespace{Name: name}
	}
	return policymatch.Namespace{Name: name, UID: string(ns.UID), Annotations: ns.Annotations}
}

// isTerminating reports whether a namespace is being deleted. Its rows are removed; its
// Revisions stay.
func (b *Binder) isTerminating(name string) bool {
	ns, ok := b.Namespaces.Get(name)
	return ok && ns.DeletionTimestamp != nil
}

// policyChanged handles the objects that a policy selected, selects and placed, and its Bundles.
func (b *Binder) policyChanged(key PolicyKey) {
	switch key.Kind {
	case v1alpha1.SourcePropagationPolicy:
		var now *policymatch.CompiledPolicy
		if p, ok := b.Policies.GetPropagationPolicy(key.Namespace, key.Name); ok {
			now = policymatch.CompilePolicy(key.Kind, &p.ObjectMeta, &p.Spec)
		}
		b.propagationPolicyChanged(key, now, []string{key.Namespace})
	case v1alpha1.SourceClusterPropagationPolicy:
		var now *policymatch.CompiledPolicy
		if p, ok := b.Policies.GetClusterPropagationPolicy(key.Name); ok {
			now = policymatch.CompilePolicy(key.Kind, &p.ObjectMeta, &p.Spec)
		}
		b.propagationPolicyChanged(key, now, append([]string{""}, b.Namespaces.List()...))
	case script.Kind:
		b.interpretersChanged()
	default:
		b.overridePolicyChanged(key)
	}
}

// interpretersChanged touches the Bundles with objects of kinds whose interpretation changed.
func (b *Binder) interpretersChanged() {
	now := b.Overrides.InterpreterLibrary()
	b.touchBundles(b.ownership.bundlesWithKinds(script.ChangedKinds(b.lastInterpreters, now))...)
	b.lastInterpreters = now
}

// propagationPolicyChanged handles a policy; now is nil when the policy is deleted.
func (b *Binder) propagationPolicyChanged(key PolicyKey, now *policymatch.CompiledPolicy, namespaces []string) {
	was, isHandled := b.index.setPolicy(key, now), false
	defer func() {
		if !isHandled { // a panic comes through: the next try must find the change
			b.index.setPolicy(key, was)
		}
	}()
	names, open := policymatch.SelectedNames(was, now)
	for _, ns := range namespaces {
		for _, k := range names {
			k.Namespace = ns
			if _, ok := b.Templates.Get(k); ok {
				b.events.put(tableEvent{template: k, force: true})
			}
		}
		if len(open) == 0 {
			continue
		}
		for _, t := range b.Templates.InNamespace(ns) {
			if !policymatch.IncludesKind(open, t.GroupVersionKind().GroupKind()) {
				continue
			}
			sub := policymatch.SubjectFromObject(t)
			_, before := was.MatchSubject(sub)
			if _, after := now.MatchSubject(sub); before || after {
				b.events.put(tableEvent{template: sub.Key, force: true})
			}
		}
	}
	for _, k := range b.ownership.keysChosenBySource(key.Kind, key.Namespace, key.Name) {
		b.events.put(tableEvent{template: k, force: true})
	}
	b.touchBundles(b.ownership.bundlesOfSource(key.Kind, key.Namespace, key.Name)...)
	isHandled = true
	b.policyStatus.enqueuePolicy(key)
}

// overridePolicyChanged touches the Bundles that an override policy selected or selects.
func (b *Binder) overridePolicyChanged(key PolicyKey) {
	now, exists := objectSet{}, false
	for _, o := range policymatch.SortOverrides(b.Overrides.ClusterOverridePolicies(), b.Overrides.OverridePolicies(key.Namespace)) {
		if (PolicyKey{o.Kind, o.Namespace, o.Name}) == key {
			now, exists = selectedByOverride(o.Spec), true
		}
	}
	b.touchBundles(b.ownership.bundlesContaining(key.Namespace, now.unionWith(b.overrideSelections[key]))...)
	if b.overrideSelections[key] = now; !exists {
		delete(b.overrideSelections, key)
	}
	b.touchBundles(b.bundlesAwaitingOverride(key)...)
	b.policyStatus.enqueuePolicy(key)
}

// clustersAnnotationState returns the part of a namespace that decides where its templates go.
func (b *Binder) clustersAnnotationState(name string) string {
	ns := b.namespaceOf(name)
	if value, ok := policymatch.ClustersAnnotation(ns.Annotations); ok {
		return "=" + value
	}
	return ""
}

// namespaceMeta returns the labels and annotations that members get; nil when there is no such
// namespace.
func (b *Binder) namespaceMeta(name string) *atoll.NamespaceMeta {
	ns, ok := b.Namespaces.Get(name)
	if !ok {
		return nil
	}
	meta := manifest.UserNamespaceMeta(ns.Labels, ns.Annotations)
	return &meta
}

// namespaceFingerprint identifies a namespace and its namespaceMeta; empty when there is no such
// namespace. The UID is part of it, because a namespace that was recreated is another one.
func (b *Binder) namespaceFingerprint(name string) string {
	meta := b.namespaceMeta(name)
	if meta == nil {
		return ""
	}
	return b.namespaceOf(name).UID + " " + atoll.HashJSON(meta)
}

// namespaceMetaChanged touches the Bundles of a namespace that came, or whose namespaceMeta
// changed.
func (b *Binder) namespaceMetaChanged(name string) {
	now := b.namespaceFingerprint(name)
	if b.lastNamespaceMeta[name] == now {
		return
	}
	if now == "" {
		delete(b.lastNamespaceMeta, name)
		return
	}
	b.touchBundles(b.ownership.bundlesInNamespace(name)...)
	b.lastNamespaceMeta[name] = now
}

func (b *Binder) namespaceChanged(name string) {
	b.namespaceMetaChanged(name)
	now := b.clustersAnnotationState(name)
	if before := b.lastClustersAnnotation[name]; before == now {
		return
	}
	for _, t := range b.Templates.InNamespace(name) {
		b.events.put(tableEvent{template: policymatch.ItemKeyOf(t), force: true})
	}
	b.touchBundles(b.ownership.bundlesOfSource(v1alpha1.SourceNamespaceAnnotation, name, name)...)
	if b.lastClustersAnnotation[name] = now; now == "" {
		delete(b.lastClustersAnnotation, name)
	}
}

// bundleChanged handles a deleted Bundle, a new decision about held removals and, when another
// hub writes Bundles, new content.
func (b *Binder) bundleChanged(uid string) {
	if bundle, ok := b.Bundles.Get(uid); ok {
		if now := decisionOnHeldBackDeletions(bundle); b.ReadOnly || b.lastRecallDecision[uid] != now {
			b.touchBundles(policymatch.BundleID{Namespace: bundle.Ref.Namespace, Name: bundle.Ref.Name})
			b.lastRecallDecision[uid] = now
		}
		return
	}
	delete(b.lastRecallDecision, uid)
	if id, ok := b.ownership.findByUID(uid); ok {
		defer b.touchBundles(id) // after a panic, too: the next try does not find the Bundle
		b.ownership.dropBundleContent(id, uid)
		b.policyStatus.recordUsedOverrides(id, nil)
	}
}

// rowsChanged touches an empty Bundle whose last tombstone may be confirmed, one with a removal to confirm that
// is in no cluster any more, and the Bundles that wait for this one to be healthy.
func (b *Binder) rowsChanged(uid string) {
	id, ok := b.ownership.findByUID(uid)
	if !ok {
		return
	}
	if b.ownership.hasNoItems(id) || b.ownership.hasUnconfirmedItems(id) && b.isInNoCluster(uid) {
		b.touchBundles(id)
	}
	b.touchBundles(b.ownership.bundlesHandingOverTo(id)...)
}
