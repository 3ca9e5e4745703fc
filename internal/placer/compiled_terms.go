package placer

import (
	"sync"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// compiledTerms is the filter of some terms, and which clusters of the fleet it admits. Bundles
// of equal terms share it, so that each cluster is checked once for all Bundles of a policy.
type compiledTerms struct {
	filter        *schedule.CompiledPlacement
	placementHash string // hash

	mu           sync.Mutex
	fleetVersion uint64 // of the fleet; 0: none was checked
	admitted     []bool
}

// compileTerms compiles terms once for all Bundles that have them.
func (x *bundleIndex) compileTerms(terms schedule.PlacementTerms) *compiledTerms {
	c := &compiledTerms{placementHash: atoll.HashPlacement(terms.Placement)}
	rest := terms
	rest.Placement = v1alpha1.PlacementSpec{}
	key := c.placementHash + " " + atoll.HashJSON(rest)
	if known, ok := x.termsCache.Get(key); ok {
		return known.(*compiledTerms)
	}
	c.filter = terms.CompilePlacement()
	x.termsCache.Add(key, c)
	return c
}

// admittedClusters returns which clusters the filter admits; nil when the clusters are not the
// view's fleet, or when the filter has groups.
func (v *bundleView) admittedClusters(clusters []schedule.Cluster) []bool {
	if v.compiledTerms == nil || !v.isFleet(clusters) || v.filter.HasGroups() {
		return nil
	}
	c := v.compiledTerms
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fleetVersion != v.fleetVersion {
		c.fleetVersion, c.admitted = v.fleetVersion, make([]bool, len(clusters))
		for i := range clusters {
			c.admitted[i] = c.filter.AdmitsCluster(&clusters[i])
		}
	}
	return c.admitted
}
