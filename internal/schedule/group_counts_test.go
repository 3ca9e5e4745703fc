package schedule

import (
	"fmt"
	"strings"
	"testing"
)

// A placement chooses so many clusters of one value of a label and so many of another: maxClusters is the sum, maxSkew the
// difference, and a score prefers the value that has more.
func TestSoManyClustersOfEachGroup(t *testing.T) {
	fleet := func(gold, spot int) *simulatedFleet {
		w := newWorld()
		for tier, n := range map[string]int{"gold": gold, "spot": spot} {
			for i := range n {
				name := fmt.Sprint(tier, i)
				w.clusters[name] = newCluster(name, withLabel("tier", tier), withCPUs(100, int64(10*i)))
			}
		}
		w.clusters["other"] = newCluster("other", withCPUs(100, 100))
		return w
	}
	placement := func(most, skew int) string {
		return fmt.Sprintf(`{maxClusters: %d, spreadConstraints: [{spreadByLabel: tier, minGroups: 2, maxSkew: %d}], scores: [
			{name: ClusterAffinity, weight: 10, clusterAffinity: {labelSelector: {matchLabels: {tier: gold}}}}, {name: ResourceAvailable, resource: cpu}]}`, most, skew)
	}
	for _, tc := range []struct {
		gold, spot, most, skew int
		want                   string
	}{
		{6, 6, 3, 1, "gold4 gold5 spot5"},
		{6, 6, 4, 2, "gold3 gold4 gold5 spot5"},
		{6, 6, 4, 1, "gold4 gold5 spot4 spot5"},
		{6, 6, 7, 3, "gold1 gold2 gold3 gold4 gold5 spot4 spot5"},
		{6, 1, 4, 1, "gold4 gold5 spot0"}, // the spread keeps to maxSkew by choosing fewer
		{1, 6, 4, 1, "gold0 spot4 spot5"},
		{6, 0, 3, 1, ""}, // no group may be missing
	} {
		w := fleet(tc.gold, tc.spot)
		if got := formatOutcomes(w.decideAndApply(parsePlacement(t, placement(tc.most, tc.skew))), OutcomePlaced); got != tc.want {
			t.Errorf("%d gold, %d spot, maxClusters %d, maxSkew %d: %s, want %s", tc.gold, tc.spot, tc.most, tc.skew, got, tc.want)
		}
	}

	// A chosen cluster stays while a better one comes, and one that is gone is replaced by one of its group.
	w := fleet(3, 3)
	p := parsePlacement(t, placement(3, 1))
	first := formatOutcomes(w.decideAndApply(p), OutcomePlaced)
	w.clusters["gold9"] = newCluster("gold9", withLabel("tier", "gold"), withCPUs(100, 100))
	if got := formatOutcomes(w.decideAndApply(p), OutcomePlaced); got != first || first != "gold1 gold2 spot2" {
		t.Errorf("at first %s, with a better cluster %s", first, got)
	}
	delete(w.clusters, "spot2")
	delete(w.rows, "spot2")
	if got := formatOutcomes(w.decideAndApply(p), OutcomePlaced); got != strings.Replace(first, "spot2", "spot1", 1) {
		t.Errorf("after a loss: %s", got)
	}
}
