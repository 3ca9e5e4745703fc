package session

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// OrderHubs returns the addresses of hubs in the order in which the agent of that name
// dials them. The orders of agents differ, so that a fleet spreads over the hubs, and
// agents of a lost hub spread over the rest. The order of one agent is always the same.
func OrderHubs(name string, hubs []string) []string {
	weight := func(hub string) uint64 {
		h := fnv.New64a()
		for _, part := range []string{name, "\x00", hub} {
			_, _ = h.Write([]byte(part)) // never fails
		}
		x := h.Sum64() // FNV mixes the last bytes little
		x ^= x >> 33
		x *= 0xff51afd7ed558ccd
		return x ^ x>>33
	}
	out := slices.Clone(hubs)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(weight(a), weight(b)) })
	return out
}
