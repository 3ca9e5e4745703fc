package schedule

import (
	"slices"
	"testing"
)

// Equal clusters come in the order of their ranks, whatever order they are given in, and Bundles rank
// them differently.
func TestEqualClustersAreOrderedByRank(t *testing.T) {
	orderFor := func(seed string, clusters ...int32) []int32 {
		s := &shareAssigner{Decision: Decision{tieSeed: seed}}
		s.assignment.clusters = []string{"lima", "oslo", "tokyo", "paris"}
		s.sortByRank(clusters)
		return clusters
	}
	differ := false
	for _, seed := range []string{"a", "b", "c", "d", "e"} {
		all := orderFor(seed, 0, 1, 2, 3)
		if again := orderFor(seed, 3, 1, 0, 2); !slices.Equal(again, all) {
			t.Errorf("seed %s: %v and %v", seed, all, again)
		}
		for i := range 4 {
			for j := range i {
				want := slices.DeleteFunc(slices.Clone(all), func(c int32) bool { return c != int32(i) && c != int32(j) })
				if got := orderFor(seed, int32(i), int32(j)); !slices.Equal(got, want) {
					t.Errorf("seed %s: two of %v come as %v", seed, all, got)
				}
				if got := orderFor(seed, int32(j), int32(i)); !slices.Equal(got, want) {
					t.Errorf("seed %s: two of %v come as %v", seed, all, got)
				}
			}
		}
		differ = differ || !slices.Equal(all, orderFor("a", 0, 1, 2, 3))
	}
	if !differ {
		t.Error("all Bundles rank clusters alike")
	}
}
