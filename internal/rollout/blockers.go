package rollout

import (
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/phrase"
)

// blockerSet is the rows that other rows wait for. Many rows wait for the same ones, so the
// set is computed once and shared.
type blockerSet struct {
	clusters []string // by cluster name
	// excluded is a cluster of the set that does not count; empty: all count.
	excluded string
	// isSuspended: they wait for the end of a suspension, so that no time ends the wait.
	isSuspended bool
	// latestArrivals is when the last two of them came, in Unix seconds, the later one
	// first. longestTimeouts is the same for the two longest readiness timeouts.
	latestArrivals  [2]int64
	longestTimeouts [2]time.Duration
}

func (w *blockerSet) addCluster(s *rolloutStep, c string) {
	w.clusters = append(w.clusters, c)
	keepHighestTwo(&w.latestArrivals, s.nextSpecs[c].JoinedOrGrownAt())
	keepHighestTwo(&w.longestTimeouts, s.Rows[c].readinessTimeout())
}

// keepHighestTwo keeps the highest two, the higher one first.
func keepHighestTwo[T int64 | time.Duration](two *[2]T, v T) {
	if v > two[0] {
		two[0], v = v, two[0]
	}
	two[1] = max(two[1], v)
}

// withoutCluster returns the set without one cluster: no row waits for itself.
func (w *blockerSet) withoutCluster(s *rolloutStep, c string) *blockerSet {
	if _, has := slices.BinarySearch(w.clusters, c); !has {
		return w
	}
	rest := &blockerSet{clusters: w.clusters, excluded: c, latestArrivals: w.latestArrivals, longestTimeouts: w.longestTimeouts}
	if rest.latestArrivals[0] == s.nextSpecs[c].JoinedOrGrownAt() {
		rest.latestArrivals[0] = rest.latestArrivals[1]
	}
	if rest.longestTimeouts[0] == s.Rows[c].readinessTimeout() {
		rest.longestTimeouts[0] = rest.longestTimeouts[1]
	}
	return rest
}

// countClusters returns the size of the set; a nil set is empty.
func (w *blockerSet) countClusters() int {
	switch {
	case w == nil:
		return 0
	case w.excluded != "":
		return len(w.clusters) - 1
	}
	return len(w.clusters)
}

// formatNames returns the first few names, and how many more there are.
func (w *blockerSet) formatNames() string {
	if w == nil {
		return ""
	}
	var first []string
	for _, c := range w.clusters[:min(len(w.clusters), fewNames+1)] {
		if c != w.excluded {
			first = append(first, c)
		}
	}
	return phrase.JoinFirst(first, fewNames, w.countClusters())
}

// fewNames is how many clusters a text names.
const fewNames = 3

// formatFew returns the first few names, and how many more there are.
func formatFew(names []string) string { return phrase.JoinFirst(names, fewNames, len(names)) }

// awaitedOldCopies lists the clusters whose copies end and are waited for: those that replacements wait for, and lost ones,
// which have to return.
func (s *rolloutStep) awaitedOldCopies() []string {
	out := slices.DeleteFunc(s.leavingClusters(), func(c string) bool { return !s.awaitsReturn(c) })
	if len(s.withheld) > 0 {
		out = append(out, s.ending...)
	}
	return out
}

// blockingClusters lists all clusters that rows wait for, those of ending copies and lost ones included. A set that several rows share,
// each without its own cluster, counts as a whole.
func (s *rolloutStep) blockingClusters() []string {
	type seen struct {
		first *string
		but   string
	}
	all, looked := map[string]bool{}, map[seen]bool{}
	whole := map[*string]int{} // by how many different rows a crowd is awaited
	for _, w := range s.blockersByCluster {
		at := seen{&w.clusters[0], w.excluded}
		if looked[at] || whole[at.first] > 1 {
			continue
		}
		looked[at] = true
		whole[at.first]++
		for _, c := range w.clusters {
			if c != w.excluded || whole[at.first] > 1 {
				all[c] = true
			}
		}
	}
	for _, c := range slices.Concat(s.awaitedOldCopies(), s.awaitedCopies()) {
		all[c] = true
	}
	if s.turns.isBounded && s.followsReports() {
		for _, c := range s.turns.awaited {
			all[c] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
