package preview

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// compareItems lists the items that a row has otherwise after a change, sorted by key.
func (c *bundleComparison) compareItems(before, after []atoll.RenderedItem) (out []ItemChange) {
	old := map[atoll.ItemKey]*atoll.RenderedItem{}
	for i := range before {
		old[before[i].Key] = &before[i]
	}
	for i := range after {
		now := &after[i]
		was := old[now.Key]
		delete(old, now.Key)
		if c.in.mayReadItem(now.Key) && (was == nil || was.Hash != now.Hash || isHandledOtherwise(was, now)) {
			out = append(out, changeOfItem(was, now))
		}
	}
	for key := range old {
		if c.in.mayReadItem(key) {
			out = append(out, ItemChange{Key: key, Change: ChangeRemoved})
		}
	}
	slices.SortFunc(out, func(a, b ItemChange) int { return a.Key.Compare(b.Key) })
	return out
}
