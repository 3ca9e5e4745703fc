package manifest

import (
	"cmp"
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// hasHooks reports whether members run some of the content's objects.
func hasHooks(content *atoll.Content) bool {
	return slices.ContainsFunc(content.Items, func(item atoll.Item) bool { return item.Treatment.StatedHook() != nil })
}

// markHooked marks the items of a Bundle with hooks, so that an agent without support for hooks applies none of them. Items
// beyond a bound have an Error.
func markHooked(items []atoll.RenderedItem, hooked bool) {
	boundHooks(items)
	boundWaves(items)
	if !hooked {
		return
	}
	for i := range items {
		if it := &items[i]; !it.Failed() {
			it.Hooked, it.Error = true, atoll.UnknownHook
		}
	}
}

// boundHooks fails the hooks beyond MaxHooks, in the order of the items.
func boundHooks(items []atoll.RenderedItem) {
	hooks := 0
	for i := range items {
		it := &items[i]
		if it.Hook == nil {
			continue
		}
		if hooks++; hooks > atoll.MaxHooks {
			it.Hook = nil
			failItem(it, atoll.ReasonTooManyHooks, fmt.Sprintf("the Bundle has more than %d hooks, and this one is not run: split the policy, or remove hooks", atoll.MaxHooks))
		}
	}
}

// boundWaves fails the items of the waves after the first MaxWaves.
func boundWaves(items []atoll.RenderedItem) {
	if len(items) <= atoll.MaxWaves {
		return
	}
	waves := map[int32]bool{}
	for i := range items {
		waves[items[i].Wave] = true
	}
	if len(waves) <= atoll.MaxWaves {
		return
	}
	sorted := make([]int32, 0, len(waves))
	for wave := range waves {
		sorted = append(sorted, wave)
	}
	slices.Sort(sorted)
	last := sorted[atoll.MaxWaves-1]
	for i := range items {
		if it := &items[i]; it.Wave > last {
			it.Wave, it.Hook = last, nil
			failItem(it, atoll.ReasonTooManyWaves, fmt.Sprintf("the Bundle has more than %d different waves, and this one is not applied: give objects that need no order one wave", atoll.MaxWaves))
		}
	}
}

// failItem gives an item an error in the place of its content.
func failItem(it *atoll.RenderedItem, reason atoll.Reason, text string) {
	it.Object, it.MemberOwned, it.Observe, it.ServiceAccount, it.Assessment = nil, nil, "", "", nil
	it.ErrorReason, it.Error = reason, text
	*it = withHash(*it)
}

// NameHookRun returns the name of the content for which the hooks of items run; empty: there are none. Another share of
// replicas, and what is no part of an item's hash, run none again.
func NameHookRun(items []atoll.RenderedItem) string {
	if !slices.ContainsFunc(items, func(it atoll.RenderedItem) bool { return it.Hook != nil }) {
		return ""
	}
	parts := make([][]byte, 0, 3*len(items))
	for i := range items {
		it := &items[i]
		parts = append(parts, []byte(it.Key.String()), []byte(it.UID), []byte(cmp.Or(it.SharedHash, it.Hash)))
	}
	return atoll.HashParts(parts...)
}
