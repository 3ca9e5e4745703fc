package schedule

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Each verdict has an enumerated reason: the row's, then that of overflow, then that of its filter.
func TestReasonCodes(t *testing.T) {
	for _, tc := range []struct {
		v    Verdict
		want atoll.Reason
	}{
		{Verdict{}, atoll.ReasonFits}, {Verdict{OverflowStep: 1}, atoll.ReasonTakesOverflow}, {Verdict{RowReason: atoll.ReasonUnfit, Filter: FilterTaints, OverflowStep: 1}, atoll.ReasonUnfit},
		{Verdict{Filter: FilterTaints}, atoll.ReasonTaintNotTolerated}, {Verdict{Filter: FilterGroups}, atoll.ReasonNoGroupFits}, {Verdict{Filter: FilterMost}, atoll.ReasonNotChosen},
		{Verdict{Filter: FilterCapacity}, atoll.ReasonNoCapacity}, {Verdict{Filter: FilterConnection}, atoll.ReasonClusterDisconnected}, {Verdict{Filter: FilterRebalance}, atoll.ReasonRebalanced},
		{Verdict{Filter: FilterSuspension}, atoll.ReasonSchedulingSuspended}, {Verdict{Filter: FilterApart}, atoll.ReasonKeptApart}, {Verdict{Filter: FilterTogether}, atoll.ReasonGroupElsewhere},
		{Verdict{Filter: FilterFailover}, atoll.ReasonApplicationFailed},
	} {
		if got := tc.v.ReasonCode(); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.v, got, tc.want)
		}
	}
}

// A placement needs the load of all clusters where it limits them by a score of loads, and has no groups.
func TestPlacementsNeedLoadsOfLimitedChoices(t *testing.T) {
	for text, want := range map[string][2]bool{ // limits clusters, needs their loads
		"{}": {false, false}, "{maxClusters: 1}": {true, true}, "{maxClusters: 1, scores: [{name: Steady}]}": {true, false},
		"{maxClusters: 1, clusterAffinities: [{affinityName: a}]}": {true, false}, "{spreadConstraints: [{spreadByField: zone}]}": {true, true},
	} {
		f := CompilePlacement(parsePlacement(t, text))
		if limits, needs := f.LimitsClusters(), f.NeedsPodLoad(); limits != want[0] || needs != want[1] {
			t.Errorf("%s: limits %t, needs loads %t; want %v", text, limits, needs, want)
		}
	}
	c := newCluster("a")
	if !CompileTarget(nil).MatchesCluster(&c.ClusterView) || CompileTarget(&v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}}).MatchesCluster(&c.ClusterView) {
		t.Error("no target selects all clusters, and a target its own")
	}
}

// Loads that the caller lists take the place of the facts.
func TestListedLoadsReplaceFacts(t *testing.T) {
	in := Input{
		BundleUID: "b", Placement: parsePlacement(t, "{maxClusters: 1}"), Clusters: []Cluster{newCluster("a"), newCluster("b")}, Now: now, PodLoads: []int64{500, 10},
		Facts: fakeFacts{pods: func(c *Cluster) int64 { return map[string]int64{"b": 500}[c.Name] }},
	}
	if got := formatOutcomes(DecidePlacement(in), OutcomePlaced); got != "b" {
		t.Errorf("by the listed loads %s is chosen, want b", got)
	}
	if in.PodLoads = nil; formatOutcomes(DecidePlacement(in), OutcomePlaced) != "a" {
		t.Error("by the facts a is not chosen")
	}
}

// An override keeps a share only where it set one. Other clusters stay as they are.
func TestKeptSharesOfOverrides(t *testing.T) {
	w := web
	w.Replicas = 9
	key, a := w.Key.String(), newCluster("a")
	d := DecidePlacement(Input{
		BundleUID: "b", Placement: parsePlacement(t, dividedPlacement), Clusters: []Cluster{a, newCluster("b")}, Rows: map[string]atoll.RowSpec{"a": runningRow(a, w, 4)}, Workloads: []Workload{w}, Now: now,
		OverriddenShares: map[string]map[string]int64{"a": {key: 7}, "b": {key: 1}},
	})
	if got := formatShares(d, w); got != "a=7 b=1" || len(d.DividedWorkloads()) != 1 {
		t.Errorf("by overrides: %s", got)
	}
	for name, tc := range map[string]struct {
		items map[string][]string
		want  string
	}{
		"nothing": {nil, "a=7 b=1"}, "the share that a has": {map[string][]string{"a": {key}}, "a=4 b=1"}, "b has none yet": {map[string][]string{"b": {key}}, "a=7 b=0"},
		"another item": {map[string][]string{"a": {"other"}}, "a=7 b=1"}, "an unknown cluster": {map[string][]string{"c": {key}}, "a=7 b=1"},
	} {
		if got := formatShares(d.KeepCurrentShares(tc.items), w); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
