package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// TestBlockerSetWithoutOneHoldsTheOthers in all that is asked of it.
func TestBlockerSetWithoutOneHoldsTheOthers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	for range 500 {
		s := newRolloutStep(Input{Rows: map[string]Row{}}, false)
		all := &blockerSet{}
		for i := range 1 + rnd.IntN(7) {
			c := fmt.Sprint("c", i)
			s.Rows[c] = Row{CheckIn: time.Duration(rnd.IntN(3)) * time.Hour}
			s.nextSpecs[c] = &atoll.RowSpec{Since: int64(rnd.IntN(4))}
			all.addCluster(s, c)
		}
		for i := range len(all.clusters) + 1 {
			c := fmt.Sprint("c", i)
			want, got := &blockerSet{}, all.withoutCluster(s, c)
			for _, r := range all.clusters {
				if r != c {
					want.addCluster(s, r)
				}
			}
			if got.countClusters() != want.countClusters() || got.formatNames() != want.formatNames() || got.countClusters() > 0 && (got.latestArrivals[0] != want.latestArrivals[0] || got.longestTimeouts[0] != want.longestTimeouts[0]) {
				t.Fatalf("%v without %s: %d %q %v %v, want %d %q %v %v", all.clusters, c, got.countClusters(), got.formatNames(), got.latestArrivals, got.longestTimeouts, want.countClusters(), want.formatNames(), want.latestArrivals, want.longestTimeouts)
			}
			s.blockersByCluster = map[string]*blockerSet{"x": got}
			if awaited := s.blockingClusters(); got.countClusters() > 0 && !slices.Equal(awaited, want.clusters) {
				t.Fatalf("%v without %s: awaited %v", all.clusters, c, awaited)
			}
			s.blockersByCluster["y"] = all
			if awaited := s.blockingClusters(); !slices.Equal(awaited, all.clusters) {
				t.Fatalf("%v, and without %s: awaited %v", all.clusters, c, awaited)
			}
		}
	}
}

// heldInput returns a Bundle of so many rows of which all but the first are to go, over the
// budget; or, divided, that all give way to each other.
func heldInput(rows int, divided bool) Input {
	now := time.Unix(1_000_000, 0)
	in := Input{BundleUID: "b", Revision: "r1", Rows: map[string]Row{}, Now: now}
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	place := schedule.Input{BundleUID: "b", Now: now, Rows: map[string]atoll.RowSpec{}}
	if divided {
		place.Workloads = []schedule.Workload{{Key: key, Replicas: int64(rows)}}
	} else {
		place.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"c000000"}}}
	}
	for i := range rows {
		c := fmt.Sprintf("c%06d", i)
		spec := atoll.RowSpec{UID: "u" + c, Generation: 1, Revision: "r1", Phase: atoll.RowActive, Since: now.Unix() - 1}
		if divided {
			spec.Assigned, spec.MovingSince = map[string]int64{key.String(): int64(2 * (i % 2) * 2)}, now.Unix()-10
		}
		in.Rows[c] = Row{Spec: spec, Online: true}
		place.Clusters = append(place.Clusters, schedule.Cluster{ClusterView: atoll.ClusterView{Name: c}, UID: "u" + c, Accepted: true})
		place.Rows[c] = spec
	}
	in.Decision = schedule.DecidePlacement(place)
	return in
}

// BenchmarkHeldRemoval is one step of a Bundle of which nearly all rows are held, and of one
// in which half of the rows wait for all others.
func BenchmarkHeldRemoval(b *testing.B) {
	for _, divided := range []bool{false, true} {
		for _, rows := range []int{100, 10_000, 100_000} {
			b.Run(fmt.Sprintf("divided=%t/%d", divided, rows), func(b *testing.B) {
				in := heldInput(rows, divided)
				b.ReportAllocs()
				for b.Loop() {
					out := AdvanceRows(in)
					if !divided && (out.PendingRemoval == nil || len(out.PendingRemoval.Lines) != rows-1) || divided && len(out.BlockingClusters) == 0 {
						b.Fatalf("plan %v, awaited %d", out.PendingRemoval, len(out.BlockingClusters))
					}
				}
			})
		}
	}
}

// BenchmarkLedger is one deletion in a namespace in which many were made lately.
func BenchmarkLedger(b *testing.B) {
	var l RemovalLedger
	now := time.Unix(1_000_000, 0)
	for i := range 10_000 {
		l.RecordDeletes("shop", now.Add(time.Duration(i)*time.Millisecond), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.RecordDeletes("shop", now.Add(10*time.Second), 1)
		if l.CountDeletes("shop", now.Add(10*time.Second)) < 10_000 {
			b.Fatal("deletes were forgotten")
		}
	}
}
