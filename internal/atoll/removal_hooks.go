package atoll

import (
	"fmt"
	"regexp"
	"slices"
)

// RemovalPhases returns the phases of a removal in which the hook runs, in their order.
func (h *Hook) RemovalPhases() (out []HookPhase) {
	if slices.Contains(h.Events, HookPreDelete) {
		out = append(out, PhasePreDelete)
	}
	if slices.Contains(h.Events, HookPostDelete) {
		out = append(out, PhasePostDelete)
	}
	return out
}

// RunsInRemoval reports whether members run the item's object as a hook in the phase of a removal.
func (t *Treatment) RunsInRemoval(phase HookPhase) bool {
	hook := t.StatedHook()
	return hook != nil && slices.Contains(hook.RemovalPhases(), phase)
}

// IsRemovedWithHooks reports whether members remove the Bundle as a whole, so that hooks of the removal run.
func (c *Content) IsRemovedWithHooks() bool { return c != nil && c.RemovedWithHooks }

// SetRemovedWithHooks sets whether members remove the Bundle as a whole: nothing is left but hooks of removals, and users deleted
// the others. Objects that another Bundle holds are not deleted. previous is the content before; nil: there is none.
func (c *Content) SetRemovedWithHooks(previous *Content) {
	c.RemovedWithHooks = c.holdsOnlyRemovalHooks() && (previous == nil || previous.RemovedWithHooks || slices.ContainsFunc(c.Tombstones, Tombstone.isOfDeletedObject))
}

// holdsOnlyRemovalHooks reports whether the content has such hooks, or had them until users deleted them, and nothing else.
func (c *Content) holdsOnlyRemovalHooks() bool {
	for i := range c.Items {
		if hook := c.Items[i].Treatment.StatedHook(); hook == nil || !hook.RunsOnlyAtRemoval() {
			return false
		}
	}
	isHook := func(t Tombstone) bool { return t.RemovalHook }
	return !c.NamespaceAlone && (len(c.Items) > 0 || slices.ContainsFunc(c.Tombstones, isHook))
}

// isOfDeletedObject reports whether a user deleted an object that is no hook of removals.
func (t Tombstone) isOfDeletedObject() bool {
	return t.Cause == CauseDeleted && !t.RemovalHook && len(t.MovedTo) == 0
}

// RunsOnlyAtRemoval reports whether the hook runs, and only in removals.
func (h *Hook) RunsOnlyAtRemoval() bool {
	return len(h.Events) > 0 && len(h.Events) == len(h.RemovalPhases())
}

// RemovalHooksSkip is the order that removals go on without their hooks.
const RemovalHooksSkip = "Skip"

// removalHooksRetry is the form of an order that removals run their failed hooks again. Another order of this form runs
// them once more.
var removalHooksRetry = regexp.MustCompile("^Retry(-[a-z0-9]{1,20})?$")

// CheckRemovalHooks returns an error for a value of AnnotationRemovalHooks without a meaning.
func CheckRemovalHooks(order string) error {
	if order == RemovalHooksSkip || removalHooksRetry.MatchString(order) {
		return nil
	}
	return fmt.Errorf("%.40q is neither %s nor Retry, which a hyphen and up to 20 small letters and digits may follow", order, RemovalHooksSkip)
}
