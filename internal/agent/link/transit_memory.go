package link

import (
	"cmp"

	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/session"
)

// transitMemory bounds what is on its way between the hub and the member, in bytes but for the tunnels.
type transitMemory struct {
	// incomplete orders wait for objects.
	incomplete int
	// queued manifests wait to be stored. Above the bound the agent receives no frame.
	queued int
	// unsent frames were not taken by the hub, beside those that are sent at its Welcome: one frame of a hub can request
	// many.
	unsent int
	// tunnels of a hub at a time. A hub can have each hold a header, a request and an answer.
	tunnels int
}

// The most of each, for agents with much memory.
const (
	maxQueuedBytes = 32 << 20
	maxUnsentBytes = 64 << 20
	// maxTunnels is above the 1,000 that a hub opens, which sees the end of one a moment later than the agent.
	maxTunnels = 1024
)

// memoryForTunnel is the memory for what is stored that an agent has for each tunnel that it opens, in bytes.
const memoryForTunnel = 192 << 10

// newTransitMemory returns the bounds of an agent that stores so many bytes of its hub: two thirds of that, beside the tunnels.
// 0 is the default of the store.
func newTransitMemory(stored int) transitMemory {
	stored = cmp.Or(stored, store.DefaultMemoryBytes)
	return transitMemory{
		incomplete: min(stored/3, session.MaxIncompleteBytes),
		queued:     min(stored/6, maxQueuedBytes),
		unsent:     min(stored/6, maxUnsentBytes),
		tunnels:    min(stored/memoryForTunnel, maxTunnels),
	}
}
