package bundlecontent

import (
	"errors"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// errFormerUnconfirmed is why an object is not sent that has the name of another one.
var errFormerUnconfirmed = errors.New("the former object of this name is deleted, and its removal from clusters waits for `atoll confirm`; until then clusters keep the former one")

// loadConfirmedRemovals records which removals of the previous content a person has confirmed: those that wait as
// their items state, or the deletions that members recorded.
func (p *contentBuilder) loadConfirmedRemovals() {
	p.confirmed = map[string]bool{}
	if p.in.ConfirmedPlan == "" {
		return
	}
	if plan, items := atoll.PlanUnconfirmedRemovals(p.in.BundleUID, p.in.Previous); plan == p.in.ConfirmedPlan {
		for _, item := range items {
			p.confirmed[removalID(item, item.RemovalCause)] = true
		}
	}
	if plan, items := atoll.PlanDeletionsRememberedByMembers(p.in.BundleUID, p.in.Previous); plan == p.in.ConfirmedPlan {
		for _, item := range items {
			p.confirmed[removalID(item, atoll.CauseDeleted)] = true
		}
	}
}

// removalID identifies the removal of an item for a cause.
func removalID(item *atoll.Item, cause atoll.TombstoneCause) string {
	return atoll.Tombstone{Key: item.Key, UID: item.UID}.ID() + " " + string(cause)
}

// removedItem returns an item that is to go, with the removal mode of the moment. The rules of now decide about
// a template that still exists; without a policy those that the item had last do.
func (p *contentBuilder) removedItem(item *atoll.Item) *atoll.Item {
	t, ok := p.templates.TemplateOf(item.Key)
	if !ok || p.in.Intent == nil || string(t.GetUID()) != item.UID {
		return item
	}
	now, err := p.itemRules.TreatmentOf(policymatch.SubjectFromObject(t))
	if err != nil || now.OwnRemoval() == item.Treatment.OwnRemoval() {
		return item
	}
	removed, treatment := *item, atoll.Treatment{}
	if item.Treatment != nil {
		treatment = *item.Treatment
	}
	treatment.Removal = now.OwnRemoval()
	removed.Treatment = &treatment
	return &removed
}

// holdItem keeps an item as it was last sent, with the cause that takes it out after the confirmation.
func (p *contentBuilder) holdItem(item *atoll.Item, cause atoll.TombstoneCause) {
	held := *item
	if item.State != atoll.ItemUnconfirmed || item.RemovalCause != cause {
		held.RemovalRevision = p.in.PreviousNumber + 1
	}
	held.State, held.RecallNote, held.RemovalCause = atoll.ItemUnconfirmed, "", cause
	p.next[item.Key] = held
}

// holdUnconfirmedItems decides the items with removals to confirm before all others, and freezes the dependencies
// that only items which wait need.
func (p *contentBuilder) holdUnconfirmedItems(needed map[atoll.ItemKey]bool) {
	for _, key := range slices.SortedFunc(maps.Keys(p.previous), atoll.ItemKey.Compare) {
		if !p.isDecided(key) && p.removedItem(p.previous[key]).Treatment.MustConfirmRemoval() {
			p.decideRemaining(key, needed[key])
		}
	}
	p.freezeDependencies(p.itemsInState(atoll.ItemUnconfirmed), needed, atoll.ItemUnclaimed)
}

// keepAsSent keeps the former item. Its removal waits no longer: it is to stay.
func (p *contentBuilder) keepAsSent(key atoll.ItemKey) {
	item := *p.previous[key]
	if item.State == atoll.ItemUnconfirmed {
		item.State, item.RemovalCause, item.RemovalRevision = "", "", 0
	}
	p.next[key] = item
}
