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

// IsRemovedWithHooks reports whether users deleted all objects of the content but hooks of removals: each cluster then removes
// the Bundle as a whole, so that the hooks run.
func (c *Content) IsRemovedWithHooks() bool {
	if c == nil || c.NamespaceAlone {
		return false
	}
	for i := range c.Items {
		if hook := c.Items[i].Treatment.StatedHook(); hook == nil || !hook.RunsOnlyAtRemoval() {
			return false
		}
	}
	isMoved := func(t Tombstone) bool { return len(t.MovedTo) > 0 }
	isHook := func(t Tombstone) bool { return t.RemovalHook }
	return !slices.ContainsFunc(c.Tombstones, isMoved) && (len(c.Items) > 0 || slices.ContainsFunc(c.Tombstones, isHook))
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
