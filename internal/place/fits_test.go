package place

import (
	"fmt"
	"strings"
	"testing"
)

// Of the clusters that fit those are chosen that have room, beside what was promised to
// others.
func TestChosenClustersHaveRoom(t *testing.T) {
	m := newMemory()
	m.cluster("big", left(13))
	m.cluster("large", left(5))
	for i := range 6 {
		m.cluster(fmt.Sprint("small", i), left(1))
	}
	m.cluster("unknown", nil)
	run(t, m, func(t *testing.T, _ *Reconciler) {
		p := byRoom
		p.MaxClusters = 1
		var went []string
		for i := range 4 { // of 4 replicas each: three fit into the big one, one into the large one
			uid := fmt.Sprint("web", i)
			m.place(uid, p, asking(uid, 4))
			m.settle(uid)
			went = append(went, holders(m, uid)...)
		}
		if n := strings.Count(strings.Join(went, " "), "big"); n < 2 || n > 3 || strings.Contains(strings.Join(went, " "), "small") || strings.Contains(strings.Join(went, " "), "unknown") {
			t.Errorf("went to %s", went)
		}
	})
}
