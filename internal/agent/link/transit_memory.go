package link

import (
	"cmp"

	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/session"
)

// transitMemory bounds what is on its way between the hub and the member, in bytes.
type transitMemory struct {
	// incomplete orders wait for objects.
	incomplete int
	// queued manifests wait to be stored. Above the bound the agent receives no frame.
	queued int
	// unsent frames were not taken by the hub, beside those that are sent at its Welcome: one frame of a hub can request
	// many.
	unsent int
}

// The most of each, for agents with much memory.
const (
	maxQueuedBytes = 32 << 20
	maxUnsentBytes = 64 << 20
)

// newTransitMemory returns the bounds of an agent that stores so many bytes of its hub: two thirds of that, all together.
// 0 is the default of the store.
func newTransitMemory(stored int) transitMemory {
	stored = cmp.Or(stored, store.DefaultMemoryBytes)
	return transitMemory{
		incomplete: min(stored/3, session.MaxIncompleteBytes),
		queued:     min(stored/6, maxQueuedBytes),
		unsent:     min(stored/6, maxUnsentBytes),
	}
}
