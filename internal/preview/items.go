package preview

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// compareItems lists the items that a row has otherwise after a change, sorted by key.
func (c *bundleComparison) compareItems(before, after []atoll.RenderedItem) (out []ItemChange) {
	old := map[atoll.ItemKey]*atoll.RenderedItem{}
	for i := range before {
		old[before[i].Key] = &before[i]
	}
	runs := manifest.NameHookRun(before) != manifest.NameHookRun(after)
	for i := range after {
		now := &after[i]
		was := old[now.Key]
		delete(old, now.Key)
		reruns := runs && isHookRerun(was, now)
		if c.in.mayReadItem(now.Key) && (was == nil || was.Hash != now.Hash || isHandledOtherwise(was, now) || reruns) {
			change := changeOfItem(was, now)
			change.HookRuns = reruns
			out = append(out, change)
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

// isHookRerun reports whether another content runs the object of a hook that the cluster has again.
func isHookRerun(was, now *atoll.RenderedItem) bool {
	return was != nil && was.Hook != nil && now.Hook != nil && !now.Failed() &&
		slices.ContainsFunc(now.Hook.PhasesOf(false), func(phase atoll.HookPhase) bool { return phase != atoll.PhaseSyncFail })
}
