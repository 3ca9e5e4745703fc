package preview

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// OldCopyWait is what clusters wait for before a Bundle starts there.
type OldCopyWait struct {
	Clusters []string     `json:"clusters"`
	For      string       `json:"for"`
	Reason   atoll.Reason `json:"reason"`
}

// oldCopyWaits lists the waits for old copies, equal ones together.
func (c *bundleComparison) oldCopyWaits() (out []OldCopyWait) {
	for _, cluster := range slices.Sorted(maps.Keys(c.OldCopyWaits)) {
		w := c.OldCopyWaits[cluster]
		i := slices.IndexFunc(out, func(o OldCopyWait) bool { return o.For == w.For })
		if i < 0 {
			i, out = len(out), append(out, OldCopyWait{For: w.For, Reason: w.Reason})
		}
		out[i].Clusters = append(out[i].Clusters, cluster)
	}
	return out
}
