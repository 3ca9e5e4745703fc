package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// chosenWithRoom of clusters whose room and CPU are given as "name=room/cpu".
func chosenWithRoom(t *testing.T, text string, replicas int64, clusters ...string) string {
	t.Helper()
	w, rooms := newWorld(), map[string]int64{}
	for _, c := range clusters {
		var name string
		var room, free int64
		if _, err := fmt.Sscanf(strings.NewReplacer("=", " ", "/", " ").Replace(c), "%s %d %d", &name, &room, &free); err != nil {
			t.Fatal(err)
		}
		w.clusters[name], rooms[name] = newCluster(name, locatedIn("", name[:1], ""), withCPUs(100, free)), room
	}
	in := w.buildInput(parsePlacement(t, text))
	in.Placement.ReplicaScheduling = v1alpha1.ReplicaScheduling{
		ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated,
	}
	in.Workloads = []Workload{{Key: web.Key, Replicas: replicas}}
	in.UseFreeCapacity, in.Facts = true, fakeFacts{
		pods:     func(c *Cluster) int64 { return w.load[c.Name] },
		replicas: func(c *Cluster) (int64, bool) { return rooms[c.Name], rooms[c.Name] >= 0 },
	}
	return formatOutcomes(DecidePlacement(in), OutcomePlaced)
}

// Clusters are chosen so that what is divided among them has room, as far as any choice
// has it, and else by their scores.
func TestChoiceHasRoom(t *testing.T) {
	fleet := []string{"a1=2/90", "a2=3/80", "b1=10/20", "b2=6/50", "c1=1/10", "c2=-1/100"}
	for _, tc := range []struct {
		name, placement string
		replicas        int64
		want            string
	}{
		{"the best have room", "{maxClusters: 2" + byCPU + "}", 2, "a1 c2"},
		{"room weighs as much as the scores", "{maxClusters: 2" + byCPU + "}", 6, "a2 b2"},
		{"nearly all is needed", "{maxClusters: 2" + byCPU + "}", 15, "b1 b2"},
		{"nothing has enough", "{maxClusters: 2" + byCPU + "}", 1000, "b1 b2"},
		{"within the spread", "{maxClusters: 2, spreadConstraints: [{spreadByField: zone, minGroups: 2}]" + byCPU + "}", 13, "a2 b1"},
		{"within one group", "{spreadConstraints: [{spreadByField: zone, maxGroups: 1}]" + byCPU + "}", 16, "b1 b2"},
		{"all are chosen anyhow", "{maxClusters: 6" + byCPU + "}", 1000, "a1 a2 b1 b2 c1 c2"},
	} {
		if got := chosenWithRoom(t, tc.placement, tc.replicas, fleet...); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// The room that is had is the most that any choice has, up to what is needed.
func TestChoiceHasAsMuchRoomAsAny(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for range 500 {
		n, most, need := 3+r.IntN(6), 1+r.IntN(3), 1+r.Int64N(30)
		var fleet []string
		var rooms []int64
		for i := range n {
			rooms = append(rooms, r.Int64N(12))
			fleet = append(fleet, fmt.Sprintf("c%d=%d/%d", i, rooms[i], r.Int64N(100)))
		}
		best := int64(0)
		for set := range 1 << n {
			sum, count := int64(0), 0
			for i := range n {
				if set>>i&1 == 1 {
					sum += rooms[i]
					count++
				}
			}
			if count <= most {
				best = max(best, min(sum, need))
			}
		}
		roomOf := func(names string) (sum int64) {
			for _, c := range strings.Fields(names) {
				var i int
				if _, err := fmt.Sscanf(c, "c%d", &i); err != nil {
					t.Fatal(err)
				}
				sum += rooms[i]
			}
			return sum
		}
		text := fmt.Sprintf("{maxClusters: %d%s}", most, byCPU)
		got := chosenWithRoom(t, text, need, fleet...)
		if sum := min(roomOf(got), need); sum != best {
			t.Fatalf("of %v %s have room for %d of %d, and %d can be had", fleet, got, sum, need, best)
		}
		plain := chosenWithRoom(t, text, 0, fleet...)
		if roomOf(plain) >= need && plain != got {
			t.Fatalf("of %v %s were good enough, and %s are chosen", fleet, plain, got)
		}
	}
}
