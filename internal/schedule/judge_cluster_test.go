package schedule

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// By itself, a cluster is judged by the group that its row came by. A newcomer may come by any group, and a row
// without a group is judged by the first one in which it fits.
func TestJudgeClusterOfGroups(t *testing.T) {
	p := threeGroups(nil)
	f := CompilePlacement(p)
	ownPrint, cloudPrint := f.findGroup("own").placementFingerprint, f.findGroup("cloud").placementFingerprint
	noMemory := activeRow(newCluster("a"), v1alpha1.PlacementSpec{})
	const neither = `in no group: own: labels do not match "at=atHome"; cloud: labels do not match "at=cloud"`
	for _, tc := range []struct {
		name    string
		cluster Cluster
		row     *atoll.RowSpec
		want    Verdict
	}{
		{"a newcomer in a later group", newCluster("a", inCloud), nil, Verdict{Outcome: OutcomePlaced}},
		{"a newcomer in no group", newCluster("a"), nil, Verdict{Outcome: OutcomeOut, Filter: FilterGroups, Reason: neither}},
		{"a newcomer that leaves the fleet", newCluster("a", inCloud, func(c *Cluster) { c.Removal = v1alpha1.ClusterOrphan }), nil,
			Verdict{Outcome: OutcomeOut, Filter: FilterRemoval, Reason: removalReason, Orphan: true}},
		{"a row in its own group", newCluster("a", inCloud), pointerTo(inGroup(p, "cloud", newCluster("a"))), Verdict{Outcome: OutcomePlaced, PlacementFingerprint: cloudPrint}},
		{"a row that fits another group", newCluster("a", atHome), pointerTo(inGroup(p, "cloud", newCluster("a"))),
			Verdict{Outcome: OutcomeKept, RowReason: atoll.ReasonUnfit, Filter: FilterLabels, Reason: `labels do not match "at=cloud"`, PlacementFingerprint: cloudPrint}},
		{"a row without a group, which fits the first", newCluster("a", atHome), &noMemory, Verdict{Outcome: OutcomePlaced, PlacementFingerprint: ownPrint}},
		{"a row without a group, which fits the second", newCluster("a", inCloud), &noMemory, Verdict{Outcome: OutcomePlaced, PlacementFingerprint: cloudPrint}},
		{"a row without a group, which fits none", newCluster("a"), &noMemory,
			Verdict{Outcome: OutcomeLeaves, RowReason: atoll.ReasonPlacementEdited, Filter: FilterLabels, Reason: `labels do not match "at=atHome"`}},
		{"a row of another cluster of that name", newCluster("a", inCloud), &atoll.RowSpec{UID: "other"}, Verdict{Outcome: OutcomePlaced}},
		{"a row that is being removed", newCluster("a", inCloud), &atoll.RowSpec{UID: "uid-a", Phase: atoll.RowRemoving}, Verdict{Outcome: OutcomePlaced}},
		{"a row of a cluster that is being deleted", newCluster("a", inCloud, func(c *Cluster) { c.Deleting = true }), &atoll.RowSpec{UID: "uid-a", Phase: atoll.RowRemoving},
			Verdict{Outcome: OutcomeGone, Filter: FilterDeleting, Reason: "the Cluster is being deleted"}},
	} {
		want := tc.want
		want.Cluster, want.UID = "a", "uid-a"
		if got := f.JudgeCluster(&tc.cluster, tc.row, v1alpha1.UnfitKeep, now); got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, want)
		}
	}
}

// A newcomer that another group would take hears of it, where its cluster does not fit the group in use.
func TestUnusedGroupIsExplained(t *testing.T) {
	f := CompilePlacement(threeGroups(nil))
	for name, tc := range map[string]struct {
		cluster Cluster
		filter  string
		reason  string
	}{
		"it fits in the other":        {newCluster("x", atHome), FilterGroups, "it fits in group own, and group cloud is in use"},
		"it fits in none":             {newCluster("x"), FilterGroups, `in no group: own: labels do not match "at=atHome"; cloud: labels do not match "at=cloud"`},
		"all have the same reason":    {newCluster("x", func(c *Cluster) { c.Deleting = true }), FilterDeleting, "the Cluster is being deleted"},
		"each has a reason of a kind": {newCluster("x", inCloud, full), FilterGroups, `in no group: own: labels do not match "at=atHome"; cloud: taint full:NoSchedule is not tolerated`},
	} {
		v := f.findGroup("cloud").judgeNewcomer(&tc.cluster)
		if v.Outcome != OutcomeOut || v.Filter != tc.filter || v.Reason != tc.reason {
			t.Errorf("%s: %s: %s: %s; want %s: %s", name, v.Outcome, v.Filter, v.Reason, tc.filter, tc.reason)
		}
	}
}

// An earlier group is one before the named group. Each group that comes before an unknown name is earlier.
func TestFitsEarlierGroup(t *testing.T) {
	f := CompilePlacement(threeGroups(nil))
	for _, tc := range []struct {
		group   string
		cluster Cluster
		want    bool
	}{
		{"cloud", newCluster("a", atHome), true}, {"cloud", newCluster("c", inCloud), false}, {"own", newCluster("a", atHome), false},
		{"gone", newCluster("c", inCloud), true}, {"gone", newCluster("x"), false},
	} {
		if got := f.FitsEarlierGroup(tc.group, &tc.cluster); got != tc.want {
			t.Errorf("%s fits earlier than %s: %t, want %t", tc.cluster.Name, tc.group, got, tc.want)
		}
	}
}

// A placement of groups names clusters only where each group does.
func TestGroupsNameClustersWhereEachDoes(t *testing.T) {
	p := parsePlacement(t, "{clusterAffinities: [{affinityName: x, clusterNames: [b]}, {affinityName: y}]}")
	if got := CompilePlacement(p).NamedClusters(); got != nil {
		t.Errorf("names %q, although the group y takes any", got)
	}
	if got := CompilePlacement(v1alpha1.PlacementSpec{}).NamedClusters(); got != nil {
		t.Errorf("a placement without names has %q", got)
	}
}

// No failback has no text, and no text is no failback.
func TestNoPendingFailback(t *testing.T) {
	if got := (PendingFailback{Since: now}).String(); got != "" {
		t.Errorf("%q", got)
	}
	if got := ParsePendingFailback("group own could be used since " + now.Format(time.RFC3339) + "; again soon"); got.Group != "own" || !got.Since.Equal(now) {
		t.Errorf("%v", got)
	}
}

// A decision group with a malformed selector has no clusters.
func TestMalformedDecisionGroupIsEmpty(t *testing.T) {
	p := parsePlacement(t, "{decisionGroups: [{groupName: broken, labelSelector: {matchExpressions: [{key: env, operator: Near}]}}, {groupName: rest, labelSelector: {}}]}")
	d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{newCluster("a", withLabel("env", "prod"))}, Now: now})
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomePlaced || v.Group != "rest" {
		t.Errorf("%s in group %q", v, v.Group)
	}
}

// A refusal that an agent reported takes no row away, whatever the placement states for unfit rows. One that the hub
// knows does.
func TestUnfitRowsGoByWhatTheHubKnows(t *testing.T) {
	serves := func(c *Cluster) { c.APIs = &ServedAPIs{} }
	tainted := withTaint("full", "", corev1.TaintEffectNoSchedule, 0)
	p := v1alpha1.PlacementSpec{APIs: []v1alpha1.ServedAPI{{APIVersion: "x.io/v1", Kind: "Thing"}}}
	f := CompilePlacement(p)
	row := activeRow(newCluster("a"), p)
	const noThing, taint = "does not serve x.io/v1/Thing, which the placement requires", "taint full:NoSchedule is not tolerated"
	for _, tc := range []struct {
		name    string
		cluster Cluster
		unfit   v1alpha1.WhenUnfit
		outcome Outcome
		reason  atoll.Reason
		filter  string
		text    string
	}{
		{"reported", newCluster("a", serves), v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit, FilterAPIs, noThing},
		{"known", newCluster("a", tainted), v1alpha1.UnfitRemove, OutcomeLeaves, atoll.ReasonUnfit, FilterTaints, taint},
		{"known, and kept", newCluster("a", tainted), v1alpha1.UnfitKeep, OutcomeKept, atoll.ReasonUnfit, FilterTaints, taint},
		{"both, and kept", newCluster("a", tainted, serves), v1alpha1.UnfitKeep, OutcomeKept, atoll.ReasonUnfit, FilterTaints, taint},
		{"not accepted", newCluster("a", func(c *Cluster) { c.Accepted = false }, tainted), v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit, FilterAccepted, "not accepted: `atoll accept a` is missing"},
	} {
		v := f.JudgeCluster(&tc.cluster, &row, tc.unfit, now)
		if v.Outcome != tc.outcome || v.RowReason != tc.reason || v.Filter != tc.filter || v.Reason != tc.text {
			t.Errorf("%s: %+v", tc.name, v)
		}
	}
}
