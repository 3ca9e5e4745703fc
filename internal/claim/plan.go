package claim

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/render"
)

// Claim is who places a template now.
type Claim int

// The claims.
const (
	// Unclaimed: nobody.
	Unclaimed Claim = iota
	// Mine: the Bundle that is planned.
	Mine
	// Others: another Bundle.
	Others
)

// World is what a plan may look up; all of it is in memory.
type World interface {
	// Template gives a template as it is on the hub.
	Template(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	// Claim tells who places the template, and, where that is another Bundle,
	// whether that has taken the item over already: it is in its content, and
	// healthy if it would otherwise be missed.
	Claim(key atoll.ItemKey) (c Claim, held bool)
	// Deleted tells whether a user was seen to delete the template of that UID.
	Deleted(key atoll.ItemKey, uid string) bool
	// Holders lists the UIDs of other Bundles whose content has the item.
	Holders(key atoll.ItemKey) []string
	// Selected lists the templates that a selection means now, in no order. One that
	// begins to match is the asker's to hear of.
	Selected(atoll.Selection) []atoll.ItemKey
	// Definition names the CRD of a custom resource; false for other kinds.
	Definition(key atoll.ItemKey) (atoll.ItemKey, bool)
}

// Intent is what the source of a Bundle wants; nil when the source is gone.
type Intent struct {
	Spec v1alpha1.PropagationSpec
}

// Divides tells whether the source shares replicas out.
func (i *Intent) Divides() bool {
	return i.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided
}

// HandsReplicas tells whether overrides may set what clusters get of divided replicas.
func (i *Intent) HandsReplicas() bool {
	return i.Spec.Placement.ReplicaScheduling.ReplicaOverrides == v1alpha1.AllowReplicaOverrides
}

// PlanInput is what the next content of one Bundle follows from.
type PlanInput struct {
	// Claimed are the templates that the Bundle's source chooses.
	Claimed []atoll.ItemKey
	// Previous content; nil before the first Revision.
	Previous *atoll.Content
	// Number of the Revision that has the previous content.
	Number int64
	Intent *Intent
	// Namespace of the items, as members are to make it; nil where there is none, or
	// none that is known.
	Namespace *atoll.NamespaceMeta
	// Overrides that may select items of the Bundle.
	ClusterOverrides []*v1alpha1.ClusterOverridePolicy
	Overrides        []*v1alpha1.OverridePolicy
	// Interpreters of the hub; nil: none.
	Interpreters *script.Library
	// Handed has, by key, items of which interpreters answered something in another Bundle
	// that has them still, for those of Claimed that Previous has not.
	Handed map[atoll.ItemKey]*atoll.Item
	// Confirmed tells whether all rows have carried a tombstone out.
	Confirmed func(atoll.Tombstone) bool
	Defaults  render.Defaulter
	// Fingerprint of a template, as render gives it; nil: render.Fingerprint.
	Fingerprint func(*unstructured.Unstructured) string
	World       World
	// Limits of what can be stored; nil: there are none.
	Limits Limits
}

// Limits tell what is too large to be stored, with the size and what to do in the error.
type Limits interface {
	Storable(*atoll.Item) error
	StorableRules(*atoll.Content) error
}

// Problem is a template that cannot become an item, or, where it names none, something
// about all of the content.
type Problem struct {
	Key atoll.ItemKey
	Err error
}

// PlanOutput is what to do.
type PlanOutput struct {
	Content atoll.Content
	// Cut is false when the previous Revision will do.
	Cut bool
	// Finalize lists templates of Content that lack the finalizer.
	Finalize []atoll.ItemKey
	// Wants lists what the items depend on, whether it exists or not.
	Wants []atoll.ItemKey
	// Selections are what the items depend on by labels; Wants has what matches now.
	Selections []atoll.Selection
	// Waiting lists items that another Bundle is to take over and has not yet.
	Waiting  []atoll.ItemKey
	Problems []Problem
}

// Plan gives the next content of a Bundle. The previous content is the memory: what
// it has goes only by a tombstone, and only for a cause: its template was deleted by
// a user, another Bundle holds it, or it was a dependency that nothing needs.
func Plan(in PlanInput) PlanOutput {
	if in.Fingerprint == nil {
		in.Fingerprint = render.Fingerprint
	}
	p := &planner{
		in: in, world: in.World,
		prev: map[atoll.ItemKey]*atoll.Item{}, next: map[atoll.ItemKey]atoll.Item{}, tombs: map[string]atoll.Tombstone{},
	}
	p.remember()
	for _, key := range in.Claimed {
		p.claimed(key)
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.prev), atoll.ItemKey.Compare) {
		if !p.prev[key].Dependency && !p.done(key) {
			p.unclaimed(key)
		}
	}
	needed := p.dependencies()
	for _, key := range slices.SortedFunc(maps.Keys(p.prev), atoll.ItemKey.Compare) {
		if !p.done(key) {
			p.leave(key, needed[key])
		}
	}
	return p.finish()
}

type planner struct {
	in    PlanInput
	world World
	prev  map[atoll.ItemKey]*atoll.Item
	next  map[atoll.ItemKey]atoll.Item
	tombs map[string]atoll.Tombstone
	gone  map[atoll.ItemKey]bool // settled without an item in next
	out   PlanOutput

	memo labelMemo
}

func (p *planner) remember() {
	p.gone = map[atoll.ItemKey]bool{}
	c := &p.out.Content
	c.ConflictResolution, c.Removal, c.Namespace = v1alpha1.ConflictAbort, v1alpha1.RemoveDelete, p.in.Namespace
	if prev := p.in.Previous; prev != nil {
		c.ConflictResolution, c.Removal = prev.ConflictResolution, prev.Removal
		if c.Namespace == nil {
			c.Namespace = prev.Namespace
		}
		for i := range prev.Items {
			p.prev[prev.Items[i].Key] = &prev.Items[i]
		}
		for _, t := range prev.Tombstones {
			if p.in.Confirmed == nil || !p.in.Confirmed(t) {
				p.tombs[t.ID()] = t
			}
		}
	}
	if p.in.Intent != nil {
		c.ConflictResolution, c.Removal = p.in.Intent.Spec.ConflictResolution, p.in.Intent.Spec.Removal.Mode
	}
}

func (p *planner) done(key atoll.ItemKey) bool {
	_, ok := p.next[key]
	return ok || p.gone[key]
}

func (p *planner) bury(item *atoll.Item, cause atoll.TombstoneCause) {
	t := atoll.Tombstone{Key: item.Key, UID: item.UID, Cause: cause, Orphan: p.out.Content.Removal == v1alpha1.RemoveOrphan}
	if cause != atoll.CauseDeleted {
		t.MovedTo = slices.Sorted(slices.Values(p.world.Holders(item.Key)))
	}
	p.tombs[t.ID()] = t
	p.gone[item.Key] = true
}

// template settles what follows from the template's own fate; ok when it lives under
// the UID that the item, if any, was made from.
func (p *planner) template(key atoll.ItemKey) (t *unstructured.Unstructured, ok bool) {
	prev := p.prev[key]
	t, exists := p.world.Template(key)
	switch {
	case !exists && prev == nil:
		return nil, false
	case !exists && p.world.Deleted(key, prev.UID):
		p.bury(prev, atoll.CauseDeleted)
		return nil, false
	case !exists:
		p.freeze(key, atoll.ItemUnaccounted)
		return nil, false
	}
	if prev != nil && prev.UID != string(t.GetUID()) {
		// Another object has the name: somebody deleted the one before it.
		p.bury(prev, atoll.CauseDeleted)
		delete(p.prev, key)
		delete(p.gone, key)
		prev = nil
	}
	if t.GetDeletionTimestamp() != nil {
		if prev != nil {
			p.bury(prev, atoll.CauseDeleted)
		}
		p.gone[key] = true
		return nil, false
	}
	return t, true
}

func (p *planner) freeze(key atoll.ItemKey, state atoll.ItemState) {
	item := *p.prev[key]
	item.State, item.Recalled = state, ""
	if t, ok := p.world.Template(key); ok {
		hold(&item, t)
	}
	p.next[key] = item
}

// hold the item back where members remember that a user deleted its template.
func hold(item *atoll.Item, t *unstructured.Unstructured) {
	if note, held := atoll.Recalled(t.GetAnnotations()); held && string(t.GetUID()) == item.UID {
		item.State, item.Recalled = atoll.ItemRemovalHeld, note
	}
}

func (p *planner) claimed(key atoll.ItemKey) {
	if t, ok := p.template(key); ok {
		p.take(key, t, false)
	}
}

// take makes the template an item, from what it was before where no user wrote.
func (p *planner) take(key atoll.ItemKey, t *unstructured.Unstructured, dependency bool) {
	item := atoll.Item{Key: key, APIVersion: t.GetAPIVersion(), UID: string(t.GetUID()), Dependency: dependency, Source: p.in.Fingerprint(t)}
	if prev := p.prev[key]; prev != nil && prev.Source == item.Source {
		item.APIVersion, item.Object, item.Hash = prev.APIVersion, prev.Object, prev.Hash
	} else if err := Fill(&item, t, p.in.Defaults, p.in.Limits); err != nil {
		p.stop(key, err)
		return
	}
	if err := p.interpret(&item, t); err != nil {
		p.stop(key, err)
		return
	}
	if item.Interpreted != nil && p.in.Limits != nil {
		if err := p.in.Limits.Storable(&item); err != nil {
			p.stop(key, err)
			return
		}
	}
	hold(&item, t)
	custom, replicated := interpret.Custom(t.GroupVersionKind().GroupKind()), Replicated(t)
	if custom && replicated {
		item.Kinds = atoll.KnownKinds
		if prev := p.prev[key]; prev != nil && prev.Source == item.Source {
			item.Kinds = prev.Kinds
		}
	}
	divisible := replicated && (item.Kinds > 0 || !custom) || p.dividedByScript(&item, t)
	item.Divided = p.in.Intent != nil && !dependency && p.in.Intent.Divides() && divisible
	item.ReplicaOverrides = item.Divided && replicated && p.in.Intent.HandsReplicas()
	if !slices.Contains(t.GetFinalizers(), atoll.Finalizer) {
		p.out.Finalize = append(p.out.Finalize, key)
	}
	p.next[key] = item
}

// stop the template where it cannot become an item: what was sent of it stays.
func (p *planner) stop(key atoll.ItemKey, err error) {
	p.out.Problems = append(p.out.Problems, Problem{key, err})
	if prev := p.prev[key]; prev != nil {
		p.next[key] = *prev
	}
}

// Fill the item with what its template states; an error where that cannot be sent.
func Fill(item *atoll.Item, t *unstructured.Unstructured, defaults render.Defaulter, limits Limits) error {
	object, err := render.Prune(t, defaults)
	if err != nil {
		return err
	}
	item.Object, item.Hash = object, atoll.Hash(object)
	if limits == nil {
		return nil
	}
	return limits.Storable(item)
}

// unclaimed settles an item that the Bundle's source no longer chooses. It stays
// until another Bundle has it; then leave settles it, since it may be needed here.
func (p *planner) unclaimed(key atoll.ItemKey) {
	if _, ok := p.template(key); !ok || p.prev[key] == nil {
		return
	}
	switch claim, held := p.world.Claim(key); {
	case claim != Others:
		p.freeze(key, atoll.ItemUnclaimed)
	case !held:
		p.next[key] = *p.prev[key]
		p.out.Waiting = append(p.out.Waiting, key)
	}
}

// leave settles an item that the Bundle has only as a dependency, or not any more.
func (p *planner) leave(key atoll.ItemKey, needed bool) {
	t, ok := p.template(key)
	prev := p.prev[key]
	switch {
	case !ok || prev == nil:
	case needed && p.sendsDependencies():
		p.take(key, t, true)
	case !prev.Dependency:
		p.bury(prev, atoll.CauseMoved)
	case needed || !removable(key):
		p.freeze(key, atoll.ItemUnclaimed)
	default:
		p.bury(prev, atoll.CauseUnused)
	}
}

func (p *planner) sendsDependencies() bool {
	return p.in.Intent != nil && p.in.Intent.Spec.PropagateDeps
}

// removable tells which copies go when nothing in their Bundle needs them any more.
func removable(key atoll.ItemKey) bool {
	return key.Group == "" && (key.Kind == "ConfigMap" || key.Kind == "Secret" || key.Kind == "ServiceAccount")
}

// dependencies follows references from the items that the Bundle has, and takes up
// what they need and the source sends along.
func (p *planner) dependencies() map[atoll.ItemKey]bool {
	needed := map[atoll.ItemKey]bool{}
	held := p.heldItems()
	queue := slices.SortedFunc(maps.Keys(p.next), atoll.ItemKey.Compare)
	queue = slices.DeleteFunc(queue, func(key atoll.ItemKey) bool { return p.next[key].State == atoll.ItemRemovalHeld })
	for len(queue) > 0 {
		key := queue[0]
		queue = queue[1:]
		for _, dep := range p.references(key) {
			if needed[dep] {
				continue
			}
			needed[dep] = true
			if _, have := p.next[dep]; have || p.gone[dep] || !p.sendsDependencies() {
				continue
			}
			if t, ok := p.template(dep); ok && !hubsOwn(SubjectFrom(t)) {
				p.take(dep, t, true)
				queue = append(queue, dep)
			}
		}
	}
	p.freezeWith(held, needed, atoll.ItemRemovalHeld)
	p.keepUnnamed(needed)
	if p.sendsDependencies() {
		p.out.Wants = slices.SortedFunc(maps.Keys(needed), atoll.ItemKey.Compare)
		p.out.Selections = p.selections()
	}
	return needed
}

// heldItems are those that are held back until somebody decides on their deletion.
func (p *planner) heldItems() (held []atoll.ItemKey) {
	for key := range p.next {
		if p.next[key].State == atoll.ItemRemovalHeld {
			held = append(held, key)
		}
	}
	slices.SortFunc(held, atoll.ItemKey.Compare)
	return held
}

// freezeWith freezes the dependencies that only frozen items need: what is held back with
// those that are held back, which neither go nor come before it is decided, and what is kept
// with those that are kept.
func (p *planner) freezeWith(queue []atoll.ItemKey, needed map[atoll.ItemKey]bool, state atoll.ItemState) {
	for ; len(queue) > 0; queue = queue[1:] {
		for _, dep := range p.references(queue[0]) {
			prev := p.prev[dep]
			if needed[dep] || p.done(dep) || prev == nil || !prev.Dependency {
				continue
			}
			if _, ok := p.template(dep); ok && p.prev[dep] != nil {
				p.freeze(dep, state)
				queue = append(queue, dep)
			}
		}
	}
}

// references of an item: of its template, or, where that is gone or not followed,
// of its content.
func (p *planner) references(key atoll.ItemKey) []atoll.ItemKey {
	item, ok := p.next[key]
	if !ok {
		return nil
	}
	obj, exists := p.world.Template(key)
	if !exists || item.State != "" || string(obj.GetUID()) != item.UID {
		obj = &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(item.Object, &obj.Object); err != nil {
			p.out.Problems = append(p.out.Problems, Problem{key, fmt.Errorf("read its content: %w", err)})
			return nil
		}
	}
	refs := append(Needs(item.Interpreted, obj), p.selected(&item)...)
	if crd, ok := p.world.Definition(key); ok {
		refs = append(refs, crd)
	}
	return refs
}

func (p *planner) finish() PlanOutput {
	c := &p.out.Content
	for _, key := range slices.SortedFunc(maps.Keys(p.next), atoll.ItemKey.Compare) {
		item := p.next[key]
		c.Items = append(c.Items, item)
		delete(p.tombs, atoll.Tombstone{Key: key, UID: item.UID}.ID())
	}
	c.Interpreters = p.in.Interpreters.ForContent(kindsOf(c.Items))
	c.Rules = rulesFor(c.Items, InOrder(p.in.ClusterOverrides, p.in.Overrides), p.labels)
	if p.in.Previous != nil {
		keepMeaning(c.Rules, p.in.Previous.Rules)
	}
	for _, k := range slices.Sorted(maps.Keys(p.tombs)) {
		c.Tombstones = append(c.Tombstones, p.tombs[k])
	}
	slices.SortFunc(c.Tombstones, func(a, b atoll.Tombstone) int {
		if n := a.Key.Compare(b.Key); n != 0 {
			return n
		}
		return strings.Compare(a.UID, b.UID)
	})
	if p.in.Previous != nil {
		c.Base = p.in.Previous.Base
	}
	if p.out.Cut = p.differs(*c, p.in.Previous); p.out.Cut {
		c.Base = p.base()
	}
	if p.out.Cut && p.in.Limits != nil {
		if err := p.in.Limits.StorableRules(c); err != nil {
			p.out.Cut = false
			p.out.Problems = append(p.out.Problems, Problem{Err: err})
		}
	}
	return p.out
}

// labels of an item as people see them now; of a frozen one as they were.
func (p *planner) labels(item *atoll.Item) map[string]string {
	if t, ok := p.world.Template(item.Key); ok && item.State == "" {
		return t.GetLabels()
	}
	return contentLabels(item)
}

// differs tells whether the content needs a Revision of its own. That tombstones
// were confirmed does not: they fall off with the next Revision.
func (p *planner) differs(next atoll.Content, prev *atoll.Content) bool {
	if prev == nil {
		return len(next.Items) > 0
	}
	type grave struct {
		key    atoll.ItemKey
		uid    string
		cause  atoll.TombstoneCause
		orphan bool
	}
	known := make(map[grave]bool, len(prev.Tombstones))
	for _, t := range prev.Tombstones {
		known[grave{t.Key, t.UID, t.Cause, t.Orphan}] = true
	}
	for _, t := range next.Tombstones {
		if !known[grave{t.Key, t.UID, t.Cause, t.Orphan}] {
			return true
		}
	}
	next.Tombstones = prev.Tombstones
	for i := range next.Tombstones {
		if item, ok := p.next[next.Tombstones[i].Key]; ok && item.UID == next.Tombstones[i].UID {
			return true
		}
	}
	if !slices.EqualFunc(next.Items, prev.Items, sameItem) {
		return true
	}
	rest := *prev
	if slices.EqualFunc(next.Items, prev.Items, func(a, b atoll.Item) bool { return bytes.Equal(a.Object, b.Object) }) {
		next.Items, rest.Items = nil, nil
	}
	return !bytes.Equal(atoll.ContentIdentity(&next), atoll.ContentIdentity(&rest))
}

// sameItem tells whether items are the same to the content's identity, but for how
// their objects are written.
func sameItem(a, b atoll.Item) bool {
	a.Object, b.Object = nil, nil
	return reflect.DeepEqual(a.Identity(), b.Identity())
}

// Replicated tells whether the object states replicas that can be shared out.
func Replicated(t *unstructured.Unstructured) bool {
	_, _, ok := interpret.Replicas(t)
	return ok
}
