package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// rangedPlacement placement by equal weights, ranges of that size.
func rangedPlacement(size int32) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
		ReplicaSchedulingType: v1alpha1.Divided, Ordinals: &v1alpha1.OrdinalRanges{Size: size},
	}}
}

// rangedRow a range of the StatefulSet: n replicas from start on.
func rangedRow(c Cluster, n, start int64) atoll.RowSpec {
	r := runningRow(c, db, n)
	r.OrdinalStarts = map[string]int64{db.Key.String(): start}
	return r
}

// formatOrdinals of the StatefulSet by cluster: "a=0+3" are three from 0 on; "a=0" is none.
func formatOrdinals(a ReplicaAssignment) string {
	var out []string
	for share := range a.Shares() {
		text := fmt.Sprintf("%s=%d", share.Cluster, share.AssignedReplicas()[db.Key.String()])
		if start, has := share.OrdinalStarts()[db.Key.String()]; has {
			text = fmt.Sprintf("%s@%d", text, start)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestOrdinals(t *testing.T) {
	a, b, c := newCluster("a"), newCluster("b"), newCluster("c")
	tainted := newCluster("c", withTaint("t", "", "NoSchedule", 0))
	removing := rangedRow(c, 2, 10)
	removing.Phase = atoll.RowRemoving
	leavingWhole := runningRow(c, db, 2)
	leavingWhole.Phase = atoll.RowRemoving
	heavy := rangedPlacement(10)
	heavy.ReplicaScheduling.WeightPreference = &v1alpha1.ClusterPreferences{StaticWeightList: []v1alpha1.StaticClusterWeight{staticWeight(3, "a"), staticWeight(1, "b")}}
	for _, tc := range []struct {
		name     string
		p        v1alpha1.PlacementSpec
		clusters []Cluster
		rows     map[string]atoll.RowSpec
		replicas int64
		start    int64
		want     string
		unplaced int64
	}{
		{name: "by weight, ranges of their own", p: heavy, clusters: []Cluster{a, b}, replicas: 8, want: "a=6@0 b=2@10"},
		{name: "from where the template begins", p: heavy, clusters: []Cluster{a, b}, replicas: 8, start: 5, want: "a=6@5 b=2@15"},
		{name: "a larger number stays where it is", p: heavy, clusters: []Cluster{a, b}, replicas: 12, want: "a=9@0 b=3@20",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 6, 0), "b": rangedRow(b, 2, 20)}},
		{name: "no more than the range has", p: rangedPlacement(4), clusters: []Cluster{a, b}, replicas: 10, want: "a=4@0 b=4@4", unplaced: 2},
		{name: "a cluster without replicas keeps its range", p: rangedPlacement(10), clusters: []Cluster{a, b}, replicas: 0, want: "a=0@0 b=0@10",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 2, 0), "b": rangedRow(b, 2, 10)}},
		{name: "one that never had any has none", p: rangedPlacement(10), clusters: []Cluster{a, b}, replicas: 1, want: "a=1@0 b=0"},
		{name: "a newcomer gets what is free", p: rangedPlacement(10), clusters: []Cluster{a, b, c}, replicas: 6, want: "a=2@0 b=2@10 c=2@20",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 3, 0), "c": rangedRow(c, 3, 20)}},
		{name: "not a range of a leaving row", p: rangedPlacement(10), clusters: []Cluster{a, b}, replicas: 4, want: "a=2@0 b=2@20",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 2, 0), "c": removing}},
		{name: "not the ordinals of a leaving row without a range", p: rangedPlacement(10), clusters: []Cluster{a, b}, replicas: 4, start: 20, want: "a=2@30 b=2@40",
			rows: map[string]atoll.RowSpec{"c": leavingWhole}},
		{name: "a kept cluster keeps its range", p: rangedPlacement(10), clusters: []Cluster{a, tainted}, replicas: 5, want: "a=3@10 c=2@0",
			rows: map[string]atoll.RowSpec{"c": rangedRow(c, 2, 0)}},
		{name: "whole before: home stays where it is", p: rangedPlacement(10), clusters: []Cluster{a, b}, replicas: 4, want: "a=2@0 b=2@10",
			rows: map[string]atoll.RowSpec{"a": homeRow(a, 4)}},
		{name: "a larger size moves no range", p: rangedPlacement(100), clusters: []Cluster{a, b, c}, replicas: 30, want: "a=10@0 b=10@10 c=10@200",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 5, 0), "b": rangedRow(b, 5, 10)}},
		{name: "nor does a smaller one", p: rangedPlacement(2), clusters: []Cluster{a, b}, replicas: 12, want: "a=6@0 b=6@10",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 6, 0), "b": rangedRow(b, 6, 10)}},
		{name: "no more ordinals", p: rangedPlacement(1_000_000), clusters: []Cluster{a}, replicas: 2, start: 2_147_000_000, want: "a=0", unplaced: 2},
		{name: "whole again: pods keep their names", p: v1alpha1.PlacementSpec{}, clusters: []Cluster{a, b}, replicas: 4, want: "a=0 b=4@10",
			rows: map[string]atoll.RowSpec{"a": rangedRow(a, 2, 0), "b": func() atoll.RowSpec {
				r := homeRow(b, 2)
				r.OrdinalStarts = map[string]int64{db.Key.String(): 10}
				return r
			}()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := DecidePlacement(Input{BundleUID: "bundle", Placement: tc.p, Clusters: tc.clusters, Rows: tc.rows, Now: now,
				Workloads: []Workload{{Key: db.Key, Replicas: tc.replicas, Start: tc.start}}})
			got := d.AssignReplicas(nil)
			var unplaced int64
			for _, s := range got.Shortages {
				unplaced += s.Unplaced
			}
			if text := formatOrdinals(got); text != tc.want || unplaced != tc.unplaced {
				t.Errorf("%s, %d unplaced; want %s, %d", text, unplaced, tc.want, tc.unplaced)
			}
		})
	}
}

// Ranges never overlap, and an existing one never moves, after any changes.
func TestOrdinalsNeverOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for range 60 {
		rows := map[string]atoll.RowSpec{}
		fleet := map[string]Cluster{}
		for i := range 8 {
			fleet[fmt.Sprint("c", i)] = newCluster(fmt.Sprint("c", i))
		}
		for range 60 {
			var cs []Cluster
			var names []string
			for _, name := range slices.Sorted(maps.Keys(fleet)) {
				if cs = append(cs, fleet[name]); r.IntN(4) > 0 {
					names = append(names, name)
				}
			}
			p := rangedPlacement(1 + r.Int32N(6))
			p.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: append(names, "c0")}
			if r.IntN(3) == 0 {
				p.ReplicaScheduling.ReplicaDivisionPreference = v1alpha1.DivideAggregated
			}
			total := r.Int64N(30)
			in := Input{BundleUID: "b", Placement: p, Clusters: cs, Rows: rows, Now: now, Workloads: []Workload{{Key: db.Key, Replicas: total}}}
			got := DecidePlacement(in).AssignReplicas(nil)
			next := map[string]atoll.RowSpec{}
			for name, row := range rows { // a leaving row keeps what it has, or goes
				switch stays := len(got.ShareOf(name).Items) > 0; {
				case stays, r.IntN(3) == 0:
				default:
					row.Phase = []atoll.RowPhase{atoll.RowLeaving, atoll.RowRemoving}[r.IntN(2)]
					next[name] = row
				}
			}
			var sum int64
			for share := range got.Shares() {
				name := share.Cluster
				row := activeRow(fleet[name], p)
				row.Assigned, row.OrdinalStarts, row.HomeItems = share.AssignedReplicas(), share.OrdinalStarts(), share.Home
				if old, had := rows[name].OrdinalStarts[db.Key.String()]; had && row.OrdinalStarts[db.Key.String()] != old {
					t.Fatalf("the range of %s moves from %d: %s", name, old, formatOrdinals(got))
				}
				next[name] = row
				sum += row.Assigned[db.Key.String()]
			}
			for _, s := range got.Shortages {
				sum += s.Unplaced
			}
			if sum != total {
				t.Fatalf("%s is not %d", formatOrdinals(got), total)
			}
			used := map[int64]string{}
			for name, row := range next {
				start, has := row.OrdinalStarts[db.Key.String()]
				n := row.Assigned[db.Key.String()]
				if !has && n > 0 {
					t.Fatalf("%s runs %d without a range", name, n)
				}
				for i := start; i < start+n; i++ {
					if used[i] != "" {
						t.Fatalf("%s and %s both run %d: %s", used[i], name, i, formatOrdinals(got))
					}
					used[i] = name
				}
			}
			rows = next
		}
	}
}
