package bundlecontent

import "atoll.dev/atoll/internal/atoll"

// withoutNewHook returns a treatment without the hook that the former item did not have, although no user wrote its template
// since: an older hub did not read hooks, and an upgrade of the hub runs none. t is not changed.
func withoutNewHook(t *atoll.Treatment, unedited *atoll.Item) *atoll.Treatment {
	if t == nil || t.Hook == nil || unedited == nil || unedited.Treatment != nil && unedited.Treatment.Hook != nil {
		return t
	}
	out := *t
	if out.Hook = nil; out.IsEmpty() {
		return nil
	}
	return &out
}

// isRemovalHook reports whether an item is a hook that runs in removals.
func isRemovalHook(item *atoll.Item) bool {
	hook := item.Treatment.StatedHook()
	return hook != nil && len(hook.RemovalPhases()) > 0
}
