package place

import (
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// compiled terms, which Bundles that have the same share, and what they say of the fleet:
// where a policy places many applications, each cluster is held against it once.
type compiled struct {
	filter    *schedule.Filter
	placement string // hash

	mu      sync.Mutex
	version uint64 // of the fleet; 0: none was looked at
	admits  []bool
}

// compile terms once for all Bundles that have them, as those of one policy do.
func (x *index) compile(terms schedule.Terms) *compiled {
	c := &compiled{placement: atoll.PlacementHash(terms.Placement)}
	rest := terms
	rest.Placement = v1alpha1.PlacementSpec{}
	key := c.placement + " " + atoll.HashJSON(rest)
	if known, ok := x.filters.Get(key); ok {
		return known.(*compiled)
	}
	c.filter = terms.Compile()
	x.filters.Add(key, c)
	return c
}

// admitted tells which of the clusters the filter admits; nil where they are not the fleet
// of the view, or not one filter decides.
func (v *view) admitted(clusters []schedule.Cluster) []bool {
	if v.shared == nil || !v.isFleet(clusters) || v.filter.Grouped() {
		return nil
	}
	c := v.shared
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != v.version {
		c.version, c.admits = v.version, make([]bool, len(clusters))
		for i := range clusters {
			c.admits[i] = c.filter.Admits(&clusters[i])
		}
	}
	return c.admits
}
