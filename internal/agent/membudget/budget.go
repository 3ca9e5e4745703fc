// Package membudget divides the memory limit of an agent among everything that a hub can fill.
//
// Contract: the parts of a limit never exceed four fifths of it together. The rest is for the program, for what is decoded
// and encoded for a moment, and for garbage that Go has not collected yet. All functions are pure.
package membudget

import (
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/session"
)

// Budget bounds each use of memory, in bytes except Tunnels.
type Budget struct {
	// Stored is for bundles, records of objects, reports and removals.
	Stored int
	// Incomplete is for orders that wait for objects.
	Incomplete int
	// Queued is for manifests that wait to be stored. Above the bound the agent receives no frame.
	Queued int
	// Unsent is for frames that the hub has not taken, without those that are sent at its Welcome. One frame of a hub
	// can request many.
	Unsent int
	// Watches is for the identities of the objects that are watched.
	Watches int
	// Tunnels is how many tunnels of a hub are open at a time.
	Tunnels int
}

// The most of each, for agents with much memory.
const (
	maxQueued  = 32 << 20
	maxUnsent  = 64 << 20
	maxWatches = 32 << 20
	// maxTunnels is above the 1,000 that a hub opens, because the hub sees the end of a tunnel a moment before the agent.
	maxTunnels = 1024
)

// tunnelMemory is the most memory of a tunnel, in bytes: a header, a request and an answer.
const tunnelMemory = 192 << 10

// DivideLimit returns the parts of a memory limit in bytes. 0 is no limit: each part is as large as it can be.
func DivideLimit(limit uint64) Budget {
	most := Budget{
		Stored: store.DefaultMemoryBytes, Incomplete: session.MaxIncompleteBytes, Queued: maxQueued, Unsent: maxUnsent,
		Watches: maxWatches, Tunnels: maxTunnels,
	}
	if limit == 0 {
		return most
	}
	part := func(of64, most int) int { return int(min(limit/64*uint64(of64), uint64(most))) }
	return Budget{
		Stored:     part(20, most.Stored),
		Incomplete: part(8, most.Incomplete),
		Queued:     part(3, most.Queued),
		Unsent:     part(3, most.Unsent),
		Watches:    part(4, most.Watches),
		Tunnels:    part(12, most.Tunnels*tunnelMemory) / tunnelMemory,
	}
}
