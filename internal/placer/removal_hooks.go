package placer

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// removalHooksOf returns a person's order about the hooks of removals; empty: there is none. Admission refuses malformed
// orders, and one that is stored all the same has no meaning.
func removalHooksOf(b state.Bundle) string {
	order := b.Meta.Annotations[atoll.AnnotationRemovalHooks]
	if atoll.CheckRemovalHooks(order) != nil {
		return ""
	}
	return order
}
