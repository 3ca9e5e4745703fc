package bundlecontent

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/userfields"
)

// PlacedBy is the Bundle that places a template now.
type PlacedBy int

// The possible values.
const (
	// PlacedByNone: no Bundle.
	PlacedByNone PlacedBy = iota
	// PlacedByThis: the Bundle of the Input.
	PlacedByThis
	// PlacedByOther: another Bundle.
	PlacedByOther
)

// Templates are the templates on the hub, in memory.
type Templates interface {
	// TemplateOf returns a template as it is on the hub.
	TemplateOf(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	// WasDeleted returns whether a user's deletion of the template of that UID was seen.
	WasDeleted(key atoll.ItemKey, uid string) bool
	// SelectedKeys returns the templates that a selection matches now, in no order. The caller
	// watches for later matches.
	SelectedKeys(atoll.Selection) []atoll.ItemKey
	// DefinitionOf returns the key of a custom resource's CRD; false for other kinds.
	DefinitionOf(key atoll.ItemKey) (atoll.ItemKey, bool)
	// IsHubOnly returns whether the template, or the CRD of its kind, is stated to stay on the hub.
	IsHubOnly(t *unstructured.Unstructured) bool
}

// Holders are the Bundles that hold or place templates, in memory.
type Holders interface {
	// PlacedBy returns which Bundle places the template. held: that is another Bundle, and it has
	// taken the item over: the item is in its content, and healthy if its absence would be noticed.
	PlacedBy(key atoll.ItemKey) (c PlacedBy, held bool)
	// OtherHolderUIDs lists the UIDs of other Bundles whose content has the item.
	OtherHolderUIDs(key atoll.ItemKey) []string
}

// Input determines the next content of one Bundle.
type Input struct {
	// Chosen are the templates that the Bundle's source chooses.
	Chosen []atoll.ItemKey
	// Previous content; nil before the first Revision.
	Previous *atoll.Content
	// PreviousNumber is the number of the Revision that has the previous content.
	PreviousNumber int64
	Intent         *policymatch.Intent
	// Namespace is the metadata with which members create the items' namespace; nil where there is
	// none, or none is known.
	Namespace *atoll.NamespaceMeta
	// OwnNamespace is the key of that namespace, which the Bundle can carry without items; zero for a ClusterBundle.
	OwnNamespace atoll.ItemKey
	// CreatesEmptyNamespace: the Bundle carries its namespace without items, if it places the namespace.
	CreatesEmptyNamespace bool
	// Overrides that may select items of the Bundle.
	ClusterOverrides   []*v1alpha1.ClusterOverridePolicy
	NamespaceOverrides []*v1alpha1.OverridePolicy
	// Interpreters of the hub; nil: none.
	Interpreters *script.Library
	// HandedOver holds items, by key, that another Bundle still has with answers of interpreters.
	// It covers the Chosen items that Previous lacks.
	HandedOver map[atoll.ItemKey]*atoll.Item
	// BundleUID and ConfirmedPlan, the hash that a person confirmed last, decide which of the removals
	// that Previous holds for a confirmation are confirmed.
	BundleUID, ConfirmedPlan string
	// IsInNoCluster returns whether no row has anything of the Bundle, so that a removal takes nothing out. Nil: a
	// row may.
	IsInNoCluster func() bool
	// IsConfirmed returns whether all rows have carried out a tombstone. Nil: none is confirmed.
	IsConfirmed func(atoll.Tombstone) bool
	Defaulter   userfields.Defaulter
	// Fingerprint of a template; nil: userfields.FingerprintUserFields.
	Fingerprint func(*unstructured.Unstructured) string
	Templates   Templates
	Holders     Holders
	// SizeLimits of what can be stored; nil: no limits.
	SizeLimits SizeLimits
}

// SizeLimits return an error for what is too large to be stored, with the size and the remedy.
type SizeLimits interface {
	CheckItemSize(*atoll.Item) error
	CheckSizeWithoutItems(*atoll.Content) error
}

// TemplateProblem is the reason why a template cannot become an item. Without a key it concerns the
// whole content.
type TemplateProblem struct {
	Key atoll.ItemKey
	Err error
}

// Output is the next content, and what the caller does about it.
type Output struct {
	Content atoll.Content
	// NeedsRevision is false when the previous Revision has the same content.
	NeedsRevision bool
	// NeedFinalizer lists templates of Content that lack the finalizer.
	NeedFinalizer []atoll.ItemKey
	// Dependencies lists what the items depend on, whether it exists or not.
	Dependencies []atoll.ItemKey
	// Selections are the dependencies by labels; Dependencies holds what matches now.
	Selections []atoll.Selection
	// HandoverPending lists items that another Bundle takes over and does not have yet.
	HandoverPending []atoll.ItemKey
	Problems        []TemplateProblem
}

// NextContent returns the next content of a Bundle. An item of the previous content goes only by a
// tombstone, and only for a cause: a user deleted its template or stated that it stays on the hub,
// another Bundle holds it, or it was a dependency that nothing needs.
func NextContent(in Input) Output {
	if in.Fingerprint == nil {
		in.Fingerprint = userfields.FingerprintUserFields
	}
	p := &contentBuilder{
		in: in, templates: in.Templates, holders: in.Holders,
		previous: map[atoll.ItemKey]*atoll.Item{}, next: map[atoll.ItemKey]atoll.Item{}, tombstones: map[string]atoll.Tombstone{},
	}
	p.loadPrevious()
	for _, key := range in.Chosen {
		if key != in.OwnNamespace {
			p.addChosen(key)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.previous), atoll.ItemKey.Compare) {
		if !p.previous[key].Dependency && !p.isDecided(key) {
			p.keepUntilHandover(key)
		}
	}
	needed := p.addDependencies()
	p.holdUnconfirmedItems(needed)
	for _, key := range slices.SortedFunc(maps.Keys(p.previous), atoll.ItemKey.Compare) {
		if !p.isDecided(key) {
			p.decideRemaining(key, needed[key])
		}
	}
	return p.finishContent()
}

type contentBuilder struct {
	in         Input
	templates  Templates
	holders    Holders
	previous   map[atoll.ItemKey]*atoll.Item
	next       map[atoll.ItemKey]atoll.Item
	tombstones map[string]atoll.Tombstone
	dropped    map[atoll.ItemKey]bool // settled without an item in next
	confirmed  map[string]bool        // removals that a person confirmed, by removalID
	out        Output

	labelCache labelCache
	itemRules  policymatch.ItemRules
	// malformedAccount is why the ServiceAccount that the namespace names has no meaning; nil: it has one.
	malformedAccount error
}

func (p *contentBuilder) loadPrevious() {
	p.dropped = map[atoll.ItemKey]bool{}
	c := &p.out.Content
	c.ConflictResolution, c.Removal = v1alpha1.ConflictAbort, v1alpha1.RemoveDelete
	c.Namespace, p.malformedAccount = qualifyNamespaceAccount(p.in.Namespace, p.in.OwnNamespace.Name)
	if prev := p.in.Previous; prev != nil {
		c.ConflictResolution, c.Removal = prev.ConflictResolution, prev.Removal
		if c.Namespace == nil {
			c.Namespace = prev.Namespace
		}
		for i := range prev.Items {
			p.previous[prev.Items[i].Key] = &prev.Items[i]
		}
		for _, t := range prev.Tombstones {
			if p.in.IsConfirmed == nil || !p.in.IsConfirmed(t) {
				p.tombstones[t.ID()] = t
			}
		}
	}
	p.loadConfirmedRemovals()
	if p.in.Intent != nil {
		c.ConflictResolution, c.Removal = p.in.Intent.Spec.ConflictResolution, p.in.Intent.Spec.Removal.Mode
		p.itemRules = policymatch.CompileItemRules(p.in.Intent.Spec.ItemRules)
	}
}

func (p *contentBuilder) isDecided(key atoll.ItemKey) bool {
	_, ok := p.next[key]
	return ok || p.dropped[key]
}

// addTombstone takes an item out, unless its removal waits for a confirmation.
func (p *contentBuilder) addTombstone(item *atoll.Item, cause atoll.TombstoneCause) {
	item = p.removedItem(item)
	if item.Treatment.MustConfirmRemoval() && !p.confirmed[removalID(item, cause)] && (p.in.IsInNoCluster == nil || !p.in.IsInNoCluster()) {
		p.holdItem(item, cause)
		return
	}
	t := atoll.Tombstone{Key: item.Key, UID: item.UID, Cause: cause, Orphan: item.StaysAsOrphan(&p.out.Content), Last: item.Treatment.IsRemovedLast()}
	if cause != atoll.CauseDeleted {
		t.MovedTo = slices.Sorted(slices.Values(p.holders.OtherHolderUIDs(item.Key)))
	} else {
		t.Finalizers, t.RemovalHook = sentFinalizers(item), isRemovalHook(item)
	}
	p.tombstones[t.ID()] = t
	p.dropped[item.Key] = true
}

// findTemplateOrDecideItem returns the item's template if it lives under the UID that the item was made from.
// Otherwise it decides the item: deleted, kept on the hub, or kept without a template.
func (p *contentBuilder) findTemplateOrDecideItem(key atoll.ItemKey) (t *unstructured.Unstructured, ok bool) {
	prev := p.previous[key]
	t, exists := p.templates.TemplateOf(key)
	switch {
	case !exists && prev == nil:
		return nil, false
	case !exists && (prev.RemovalCause == atoll.CauseDeleted || p.templates.WasDeleted(key, prev.UID)):
		p.addTombstone(prev, atoll.CauseDeleted)
		return nil, false
	case !exists:
		p.freezeItem(key, atoll.ItemUnaccounted)
		return nil, false
	}
	if prev != nil && prev.UID != string(t.GetUID()) {
		// Another object has the name: a user deleted the former one.
		p.addTombstone(prev, atoll.CauseDeleted)
		if _, held := p.next[key]; held {
			p.out.Problems = append(p.out.Problems, TemplateProblem{key, errFormerUnconfirmed})
			return nil, false
		}
		delete(p.previous, key)
		delete(p.dropped, key)
		prev = nil
	}
	if t.GetDeletionTimestamp() != nil {
		return nil, p.dropItem(key, prev, atoll.CauseDeleted)
	}
	if p.templates.IsHubOnly(t) {
		return nil, p.dropItem(key, prev, atoll.CauseHubOnly)
	}
	return t, true
}

// dropItem decides that the content has no such item. It returns false.
func (p *contentBuilder) dropItem(key atoll.ItemKey, prev *atoll.Item, cause atoll.TombstoneCause) bool {
	if prev == nil {
		p.dropped[key] = true
		return false
	}
	p.addTombstone(prev, cause)
	return false
}

func (p *contentBuilder) freezeItem(key atoll.ItemKey, state atoll.ItemState) {
	item := *p.previous[key]
	item.State, item.RecallNote, item.RemovalCause, item.RemovalRevision = state, "", "", 0
	if t, ok := p.templates.TemplateOf(key); ok {
		holdRememberedDeletion(&item, t)
	}
	p.next[key] = item
}

// holdRememberedDeletion holds the item where members recorded that a user deleted its template.
func holdRememberedDeletion(item *atoll.Item, t *unstructured.Unstructured) {
	if note, held := atoll.RememberedDeletionNote(t.GetAnnotations()); held && string(t.GetUID()) == item.UID {
		item.State, item.RecallNote = atoll.ItemRemovalHeld, note
	}
}

func (p *contentBuilder) addChosen(key atoll.ItemKey) {
	if t, ok := p.findTemplateOrDecideItem(key); ok {
		p.addItem(key, t, false)
	}
}

// addItem makes the template an item. It takes the former content where no user wrote since.
func (p *contentBuilder) addItem(key atoll.ItemKey, t *unstructured.Unstructured, dependency bool) {
	item := atoll.Item{Key: key, APIVersion: t.GetAPIVersion(), UID: string(t.GetUID()), Dependency: dependency, SourceFingerprint: p.in.Fingerprint(t)}
	unedited := p.previous[key]
	if unedited != nil && unedited.SourceFingerprint != item.SourceFingerprint {
		unedited = nil
	}
	err := p.fillItem(&item, t, unedited)
	if err == nil {
		item.Treatment, err = p.treatmentOf(key, t, unedited)
	}
	if err != nil {
		p.reportProblem(key, err)
		return
	}
	holdRememberedDeletion(&item, t)
	p.setDivision(&item, t, unedited)
	setVersionChoice(&item, unedited)
	if !slices.Contains(t.GetFinalizers(), atoll.Finalizer) {
		p.out.NeedFinalizer = append(p.out.NeedFinalizer, key)
	}
	p.next[key] = item
}

// fillItem sets what the item is sent with, and what interpreters answer about it. unedited is the
// former item where no user wrote since.
func (p *contentBuilder) fillItem(item *atoll.Item, t *unstructured.Unstructured, unedited *atoll.Item) error {
	if unedited != nil {
		item.APIVersion, item.Object, item.Hash = unedited.APIVersion, unedited.Object, unedited.Hash
	} else if err := FillItem(item, t, p.in.Defaulter, p.in.SizeLimits); err != nil {
		return err
	}
	if err := p.interpretItem(item, t); err != nil || item.Interpreted == nil || p.in.SizeLimits == nil {
		return err
	}
	return p.in.SizeLimits.CheckItemSize(item)
}

// setDivision sets whether and how the item's replicas are divided.
func (p *contentBuilder) setDivision(item *atoll.Item, t *unstructured.Unstructured, unedited *atoll.Item) {
	custom, replicated := kinds.IsCustomKind(t.GroupVersionKind().GroupKind()), StatesReplicas(t)
	if custom && replicated {
		item.ReplicaKindsVersion = atoll.CurrentReplicaKinds
		if unedited != nil {
			item.ReplicaKindsVersion = unedited.ReplicaKindsVersion
		}
	}
	divisible := replicated && (item.ReplicaKindsVersion > 0 || !custom) || p.isDivisibleByScript(item, t)
	item.Divided = p.in.Intent != nil && !item.Dependency && p.in.Intent.DividesReplicas() && divisible
	item.ReplicaOverrides = item.Divided && replicated && p.in.Intent.AllowsReplicaOverrides()
}

// reportProblem records why a template cannot become an item. The item stays as it was sent last.
func (p *contentBuilder) reportProblem(key atoll.ItemKey, err error) {
	p.out.Problems = append(p.out.Problems, TemplateProblem{key, err})
	if p.previous[key] != nil {
		p.keepAsSent(key)
	}
}

// FillItem sets what the template states in the item. It returns an error when the result cannot be
// sent.
func FillItem(item *atoll.Item, t *unstructured.Unstructured, defaults userfields.Defaulter, limits SizeLimits) error {
	object, err := userfields.ExtractUserFields(t, defaults)
	if err != nil {
		return err
	}
	item.Object, item.Hash = object, atoll.HashParts(object)
	if limits == nil {
		return nil
	}
	return limits.CheckItemSize(item)
}

// keepUntilHandover keeps an item that the Bundle's source no longer chooses until another Bundle
// has it. Then decideRemaining decides, since the item may still be needed here.
func (p *contentBuilder) keepUntilHandover(key atoll.ItemKey) {
	if _, ok := p.findTemplateOrDecideItem(key); !ok || p.previous[key] == nil {
		return
	}
	switch claim, held := p.holders.PlacedBy(key); {
	case claim != PlacedByOther:
		p.freezeItem(key, atoll.ItemUnclaimed)
	case !held:
		p.keepAsSent(key)
		p.out.HandoverPending = append(p.out.HandoverPending, key)
	}
}

// decideRemaining decides an item that the Bundle has only as a dependency, or no longer.
func (p *contentBuilder) decideRemaining(key atoll.ItemKey, needed bool) {
	t, ok := p.findTemplateOrDecideItem(key)
	prev := p.previous[key]
	switch {
	case !ok || prev == nil:
	case needed && p.sendsDependencies():
		p.addItem(key, t, true)
	case !prev.Dependency:
		p.addTombstone(prev, atoll.CauseMoved)
	case needed || !isRemovableUnused(key):
		p.freezeItem(key, atoll.ItemUnclaimed)
	default:
		p.addTombstone(prev, atoll.CauseUnused)
	}
}

func (p *contentBuilder) sendsDependencies() bool {
	return p.in.Intent != nil && p.in.Intent.Spec.PropagateDeps
}

// isRemovableUnused returns whether copies of the kind go when nothing in their Bundle needs them.
func isRemovableUnused(key atoll.ItemKey) bool {
	return key.Group == "" && (key.Kind == "ConfigMap" || key.Kind == "Secret" || key.Kind == "ServiceAccount")
}

// addDependencies follows references from the Bundle's items, and adds what they need where the
// source sends dependencies along.
func (p *contentBuilder) addDependencies() map[atoll.ItemKey]bool {
	needed := map[atoll.ItemKey]bool{}
	held := p.itemsInState(atoll.ItemRemovalHeld)
	queue := slices.SortedFunc(maps.Keys(p.next), atoll.ItemKey.Compare)
	queue = slices.DeleteFunc(queue, func(key atoll.ItemKey) bool { return p.next[key].State == atoll.ItemRemovalHeld })
	for len(queue) > 0 {
		key := queue[0]
		queue = queue[1:]
		for _, dep := range p.listReferences(key) {
			if needed[dep] {
				continue
			}
			needed[dep] = true
			if _, have := p.next[dep]; have || p.dropped[dep] || !p.sendsDependencies() {
				continue
			}
			if t, ok := p.findTemplateOrDecideItem(dep); ok && !policymatch.IsHubSecret(policymatch.SubjectFromObject(t)) {
				p.addItem(dep, t, true)
				queue = append(queue, dep)
			}
		}
	}
	p.freezeDependencies(held, needed, atoll.ItemRemovalHeld)
	p.freezeUnreferenced(needed)
	if p.sendsDependencies() {
		p.out.Dependencies = slices.SortedFunc(maps.Keys(needed), atoll.ItemKey.Compare)
		p.out.Selections = p.collectSelections()
	}
	return needed
}

// itemsInState returns the items of the state, sorted.
func (p *contentBuilder) itemsInState(state atoll.ItemState) (keys []atoll.ItemKey) {
	for key := range p.next {
		if p.next[key].State == state {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, atoll.ItemKey.Compare)
	return keys
}

// freezeDependencies freezes the dependencies that only frozen items need. Dependencies of held
// items neither go nor come before the decision; those of kept items stay with them.
func (p *contentBuilder) freezeDependencies(queue []atoll.ItemKey, needed map[atoll.ItemKey]bool, state atoll.ItemState) {
	for ; len(queue) > 0; queue = queue[1:] {
		for _, dep := range p.listReferences(queue[0]) {
			prev := p.previous[dep]
			if needed[dep] || p.isDecided(dep) || prev == nil || !prev.Dependency {
				continue
			}
			if _, ok := p.findTemplateOrDecideItem(dep); ok && p.previous[dep] != nil {
				p.freezeItem(dep, state)
				queue = append(queue, dep)
			}
		}
	}
}

// listReferences returns what an item refers to: by its template, or by its content where the
// template is gone or not followed.
func (p *contentBuilder) listReferences(key atoll.ItemKey) []atoll.ItemKey {
	item, ok := p.next[key]
	if !ok {
		return nil
	}
	obj, exists := p.templates.TemplateOf(key)
	if !exists || item.State != "" || string(obj.GetUID()) != item.UID {
		obj = &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(item.Object, &obj.Object); err != nil {
			p.out.Problems = append(p.out.Problems, TemplateProblem{key, fmt.Errorf("read its content: %w", err)})
			return nil
		}
	}
	refs := append(NamedDependencies(item.Interpreted, obj), p.selectedDependencies(&item)...)
	if crd, ok := p.templates.DefinitionOf(key); ok {
		refs = append(refs, crd)
	}
	return refs
}

func (p *contentBuilder) finishContent() Output {
	c := &p.out.Content
	for _, key := range slices.SortedFunc(maps.Keys(p.next), atoll.ItemKey.Compare) {
		item := p.next[key]
		c.Items = append(c.Items, item)
		delete(p.tombstones, atoll.Tombstone{Key: key, UID: item.UID}.ID())
	}
	c.NamespaceAlone = p.isNamespaceAlone()
	c.Interpreters = p.in.Interpreters.InterpretersForContent(itemKinds(c.Items))
	p.setRules(c)
	for _, k := range slices.Sorted(maps.Keys(p.tombstones)) {
		c.Tombstones = append(c.Tombstones, p.recordReleasedFinalizers(p.tombstones[k]))
	}
	slices.SortFunc(c.Tombstones, func(a, b atoll.Tombstone) int { return cmp.Or(a.Key.Compare(b.Key), strings.Compare(a.UID, b.UID)) })
	c.SetRemovedWithHooks(p.in.Previous)
	if p.in.Previous != nil {
		c.MinRevision = p.in.Previous.MinRevision
	}
	if p.out.NeedsRevision = p.needsRevision(*c, p.in.Previous); p.out.NeedsRevision {
		c.MinRevision = p.lowestAcceptableRevision()
	}
	if p.out.NeedsRevision && p.in.SizeLimits != nil {
		if err := p.in.SizeLimits.CheckSizeWithoutItems(c); err != nil {
			p.out.NeedsRevision = false
			p.out.Problems = append(p.out.Problems, TemplateProblem{Err: err})
		}
	}
	return p.out
}

// isNamespaceAlone returns whether the content is the namespace without an item. It stays, as an item would, when
// nothing places it any more.
func (p *contentBuilder) isNamespaceAlone() bool {
	if len(p.next) > 0 || p.out.Content.Namespace == nil || p.in.OwnNamespace == (atoll.ItemKey{}) {
		return false
	}
	if t, ok := p.templates.TemplateOf(p.in.OwnNamespace); ok && p.templates.IsHubOnly(t) {
		return false
	}
	was := p.in.Previous != nil && p.in.Previous.NamespaceAlone
	by, _ := p.holders.PlacedBy(p.in.OwnNamespace)
	return by == PlacedByThis && (was || p.in.CreatesEmptyNamespace) || was && by == PlacedByNone
}

// itemLabels returns an item's labels: those of its template, or those of the content where the
// item is frozen.
func (p *contentBuilder) itemLabels(item *atoll.Item) map[string]string {
	if t, ok := p.templates.TemplateOf(item.Key); ok && item.State == "" {
		return t.GetLabels()
	}
	return parseItemLabels(item)
}

// needsRevision returns whether the content needs a Revision of its own. Confirmed tombstones need
// none: the next Revision drops them.
func (p *contentBuilder) needsRevision(next atoll.Content, prev *atoll.Content) bool {
	if prev == nil {
		return !next.HoldsNothing()
	}
	type grave struct {
		key      atoll.ItemKey
		uid      string
		cause    atoll.TombstoneCause
		orphan   bool
		released string
	}
	graveOf := func(t atoll.Tombstone) grave {
		return grave{t.Key, t.UID, t.Cause, t.Orphan, strings.Join(t.ReleasedFinalizers, " ")}
	}
	known := make(map[grave]bool, len(prev.Tombstones))
	for _, t := range prev.Tombstones {
		known[graveOf(t)] = true
	}
	for _, t := range next.Tombstones {
		if !known[graveOf(t)] {
			return true
		}
	}
	next.Tombstones = prev.Tombstones
	for i := range next.Tombstones {
		if item, ok := p.next[next.Tombstones[i].Key]; ok && item.UID == next.Tombstones[i].UID {
			return true
		}
	}
	if !slices.EqualFunc(next.Items, prev.Items, isSameItemIgnoringEncoding) {
		return true
	}
	rest := *prev
	if slices.EqualFunc(next.Items, prev.Items, func(a, b atoll.Item) bool { return bytes.Equal(a.Object, b.Object) }) {
		next.Items, rest.Items = nil, nil
	}
	return !bytes.Equal(atoll.EncodeContentIdentity(&next), atoll.EncodeContentIdentity(&rest))
}

// isSameItemIgnoringEncoding returns whether items have the same identity in the content, apart from the encoding
// of their objects.
func isSameItemIgnoringEncoding(a, b atoll.Item) bool {
	a.Object, b.Object = nil, nil
	return reflect.DeepEqual(a.WithoutFingerprints(), b.WithoutFingerprints())
}

// StatesReplicas returns whether the object states replicas that can be divided.
func StatesReplicas(t *unstructured.Unstructured) bool {
	_, _, ok := kinds.ReplicasOf(t)
	return ok
}
