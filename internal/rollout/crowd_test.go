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

// TestACrowdWithoutOneIsTheCrowdOfTheOthers in all that is asked of it.
func TestACrowdWithoutOneIsTheCrowdOfTheOthers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 9))
	for range 500 {
		s := newStep(Input{Rows: map[string]Row{}}, false)
		all := &crowd{}
		for i := range 1 + rnd.IntN(7) {
			c := fmt.Sprint("c", i)
			s.Rows[c] = Row{CheckIn: time.Duration(rnd.IntN(3)) * time.Hour}
			s.next[c] = &atoll.RowSpec{Since: int64(rnd.IntN(4))}
			all.add(s, c)
		}
		for i := range len(all.rows) + 1 {
			c := fmt.Sprint("c", i)
			want, got := &crowd{}, all.without(s, c)
			for _, r := range all.rows {
				if r != c {
					want.add(s, r)
				}
			}
			if got.size() != want.size() || got.names() != want.names() || got.size() > 0 && (got.came[0] != want.came[0] || got.patience[0] != want.patience[0]) {
				t.Fatalf("%v without %s: %d %q %v %v, want %d %q %v %v", all.rows, c, got.size(), got.names(), got.came, got.patience, want.size(), want.names(), want.came, want.patience)
			}
			s.blocked = map[string]*crowd{"x": got}
			if awaited := s.awaited(); got.size() > 0 && !slices.Equal(awaited, want.rows) {
				t.Fatalf("%v without %s: awaited %v", all.rows, c, awaited)
			}
			s.blocked["y"] = all
			if awaited := s.awaited(); !slices.Equal(awaited, all.rows) {
				t.Fatalf("%v, and without %s: awaited %v", all.rows, c, awaited)
			}
		}
	}
}

// held gives a Bundle of so many rows of which all but the first are to go, over the
// budget; or, divided, that all give way to each other.
func held(rows int, divided bool) Input {
	now := time.Unix(1_000_000, 0)
	in := Input{Bundle: "b", Revision: "r1", Rows: map[string]Row{}, Now: now}
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	place := schedule.Input{Bundle: "b", Now: now, Rows: map[string]atoll.RowSpec{}}
	if divided {
		place.Workloads = []schedule.Workload{{Key: key, Replicas: int64(rows)}}
	} else {
		place.Placement = v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: []string{"c000000"}}}
	}
	for i := range rows {
		c := fmt.Sprintf("c%06d", i)
		spec := atoll.RowSpec{UID: "u" + c, Generation: 1, Revision: "r1", Phase: atoll.RowActive, Since: now.Unix() - 1}
		if divided {
			spec.Assigned, spec.Moving = map[string]int64{key.String(): int64(2 * (i % 2) * 2)}, now.Unix()-10
		}
		in.Rows[c] = Row{Spec: spec, Online: true}
		place.Clusters = append(place.Clusters, schedule.Cluster{ClusterView: atoll.ClusterView{Name: c}, UID: "u" + c, Accepted: true})
		place.Rows[c] = spec
	}
	in.Decision = schedule.Schedule(place)
	return in
}

// BenchmarkHeld is one step of a Bundle of which nearly all rows are held, and of one
// in which half of the rows wait for all others.
func BenchmarkHeld(b *testing.B) {
	for _, divided := range []bool{false, true} {
		for _, rows := range []int{100, 10_000, 100_000} {
			b.Run(fmt.Sprintf("divided=%t/%d", divided, rows), func(b *testing.B) {
				in := held(rows, divided)
				b.ReportAllocs()
				for b.Loop() {
					out := Advance(in)
					if !divided && (out.Plan == nil || len(out.Plan.Lines) != rows-1) || divided && len(out.Awaited) == 0 {
						b.Fatalf("plan %v, awaited %d", out.Plan, len(out.Awaited))
					}
				}
			})
		}
	}
}

// BenchmarkLedger is one deletion in a namespace in which many were made lately.
func BenchmarkLedger(b *testing.B) {
	var l Ledger
	now := time.Unix(1_000_000, 0)
	for i := range 10_000 {
		l.Delete("shop", now.Add(time.Duration(i)*time.Millisecond), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Delete("shop", now.Add(10*time.Second), 1)
		if l.Deletes("shop", now.Add(10*time.Second)) < 10_000 {
			b.Fatal("deletes were forgotten")
		}
	}
}
