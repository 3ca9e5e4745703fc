package schedule

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// divided by room among what a placement chooses.
func dividedByFreeCapacity(p v1alpha1.PlacementSpec) v1alpha1.PlacementSpec {
	p.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated}
	return p
}

// A group without room for all replicas is passed over by what comes new, where replicas
// are divided by room; what runs stays in its group, and an earlier group is only used
// again once it has the room.
func TestGroupsGoByRoom(t *testing.T) {
	clusters := []Cluster{newCluster("a", atHome), newCluster("b", atHome), newCluster("c", inCloud)}
	p := dividedByFreeCapacity(threeGroups(failbackAfter(5 * time.Minute)))
	weighted := threeGroups(nil)
	weighted.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}
	one := dividedByFreeCapacity(threeGroups(nil))
	one.MaxClusters = 1
	later := now.Add(-time.Hour)
	for _, tc := range []struct {
		name      string
		placement v1alpha1.PlacementSpec
		room      map[string]int64 // of clusters that report it
		runs      string           // in cloud
		better    PendingFailback
		group     string
		noBetter  bool
		full      bool
	}{
		{"the first has room", p, map[string]int64{"a": 6, "b": 4, "c": 100}, "", PendingFailback{}, "own", true, false},
		{"the first has not", p, map[string]int64{"a": 6, "b": 3, "c": 100}, "", PendingFailback{}, "cloud", true, true},
		{"one of the first does not say", p, map[string]int64{"a": 1, "c": 100}, "", PendingFailback{}, "own", true, false},
		{"none has", p, map[string]int64{"a": 6, "b": 3, "c": 9}, "", PendingFailback{}, "own", true, false},
		{"the second does not say", p, map[string]int64{"a": 6, "b": 3}, "", PendingFailback{}, "cloud", true, true},
		{"one cluster has not, and one is wanted", one, map[string]int64{"a": 9, "b": 9, "c": 10}, "", PendingFailback{}, "cloud", true, false},
		{"by weight room does not matter", weighted, map[string]int64{"a": 0, "b": 0, "c": 100}, "", PendingFailback{}, "own", true, false},
		{"what runs stays where it has no room", p, map[string]int64{"a": 6, "b": 3, "c": 2}, "c", PendingFailback{}, "cloud", true, true},
		{"there is room again", p, map[string]int64{"a": 6, "b": 4, "c": 100}, "c", PendingFailback{}, "cloud", false, false},
		{"there was room for long enough", p, map[string]int64{"a": 6, "b": 4, "c": 100}, "c", PendingFailback{"own", later}, "own", false, false},
		{"there was, and is no more", p, map[string]int64{"a": 5, "b": 4, "c": 100}, "c", PendingFailback{"own", later}, "cloud", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{
				BundleUID: "b", Placement: tc.placement, Clusters: clusters, Now: now, PendingFailback: tc.better, SkipExplanations: true,
				Workloads: []Workload{{Key: web.Key, Replicas: 10}}, Rows: map[string]atoll.RowSpec{},
				UseFreeCapacity: true, Facts: fakeFacts{replicas: func(c *Cluster) (int64, bool) { n, ok := tc.room[c.Name]; return n, ok }},
			}
			if tc.runs != "" {
				in.Rows["c"] = inGroup(tc.placement, "cloud", clusters[2])
			}
			d := DecidePlacement(in)
			if d.Group != tc.group || d.PendingFailback.Group == "" != tc.noBetter || d.EarlierGroupFull != tc.full {
				t.Errorf("in %s, better %q, full %t; want %s, none %t, %t", d.Group, d.PendingFailback.Group, d.EarlierGroupFull, tc.group, tc.noBetter, tc.full)
			}
			if d.AwaitsFailback != (tc.placement.Failback != nil && tc.group == "cloud") {
				t.Errorf("fails back: %t", d.AwaitsFailback)
			}
			if d.Group == "cloud" && d.PendingFailback.Group == "" && !d.RecheckAt.IsZero() {
				t.Errorf("looks again at %s, where time alone changes nothing", d.RecheckAt)
			}
		})
	}
}

// A hub that has just started goes back no earlier than it says.
func TestNotBackBefore(t *testing.T) {
	p, c := threeGroups(failbackAfter(time.Minute)), newCluster("c", inCloud)
	in := Input{
		Placement: p, Clusters: []Cluster{newCluster("a", atHome), c}, Rows: map[string]atoll.RowSpec{"c": inGroup(p, "cloud", c)}, Now: now,
		PendingFailback: PendingFailback{"own", now.Add(-time.Hour)}, FailbackNotBefore: now.Add(time.Minute),
	}
	if d := DecidePlacement(in); d.Group != "cloud" || !d.RecheckAt.Equal(in.FailbackNotBefore) || d.PendingFailback != in.PendingFailback {
		t.Errorf("in %s, looks again at %s, better %v", d.Group, d.RecheckAt, d.PendingFailback)
	}
	in.Now = in.FailbackNotBefore
	if d := DecidePlacement(in); d.Group != "own" {
		t.Errorf("then in %s", d.Group)
	}
}

// The condition of a better group can be read again, to the moment.
func TestBetterIsRead(t *testing.T) {
	is := PendingFailback{"on-prem", now.Add(1234567).UTC()}
	if got := ParsePendingFailback(is.String() + "; it is used again from then on"); got.Group != is.Group || !got.Since.Equal(is.Since) {
		t.Errorf("%v, want %v", got, is)
	}
	for _, text := range []string{"", "group x is in use", "group x could be used since yesterday"} {
		if got := ParsePendingFailback(text); got != (PendingFailback{}) {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// Each group says why it is in use or not.
func TestGroupsSayWhy(t *testing.T) {
	a, b, c, x := newCluster("a", atHome), newCluster("b", atHome, full), newCluster("c", inCloud), newCluster("x")
	healthyBut := func(name string) FleetFacts {
		return fakeFacts{connected: func(c *Cluster) bool { return c.Name != name }}
	}
	for _, tc := range []struct {
		name      string
		placement v1alpha1.PlacementSpec
		change    func(*Input)
		want      []string
	}{
		{"nothing runs", threeGroups(nil), nil, []string{"own in use: fit 1, healthy 1, labelSelector 2, taints 1", "cloud: it comes after own: fit 1, healthy 1, labelSelector 3"}},
		{"no cluster fits in the first", threeGroups(nil), func(in *Input) { in.Clusters = []Cluster{b, c} },
			[]string{"own: no cluster fits in it: fit 0, healthy 0, labelSelector 1, taints 1", "cloud in use: fit 1, healthy 1, labelSelector 1"}},
		{"never back", threeGroups(nil), func(in *Input) { in.Rows = map[string]atoll.RowSpec{"c": inGroup(in.Placement, "cloud", c)} },
			[]string{"own: it could be used, and what runs stays in cloud: failback.policy is Never: fit 1,", "cloud in use:"}},
		{"out of touch", threeGroups(failbackAfter(time.Minute)), func(in *Input) {
			in.Rows, in.Facts = map[string]atoll.RowSpec{"c": inGroup(in.Placement, "cloud", c)}, healthyBut("a")
		}, []string{"own: none of its clusters that fit is in touch: fit 1, healthy 0,", "cloud in use:"}},
		{"it holds", threeGroups(failbackAfter(time.Minute)), func(in *Input) {
			in.Rows = map[string]atoll.RowSpec{"c": inGroup(in.Placement, "cloud", c)}
		}, []string{"own: it is used again once it could be for 1m0s without a break: fit 1, healthy 1, labelSelector 2, taints 1, again 1m0s", "cloud in use:"}},
		{"no room", dividedByFreeCapacity(threeGroups(nil)), func(in *Input) {
			in.Workloads = []Workload{{Key: web.Key, Replicas: 10}}
			in.UseFreeCapacity = true
			in.Facts = fakeFacts{replicas: func(c *Cluster) (int64, bool) { return map[string]int64{"a": 4, "c": 50}[c.Name], true }}
		}, []string{"own: it has room for 4 of 10 replicas: fit 1,", "cloud in use:"}},
		{"no room anywhere", dividedByFreeCapacity(threeGroups(nil)), func(in *Input) {
			in.Workloads = []Workload{{Key: web.Key, Replicas: 10}}
			in.UseFreeCapacity = true
			in.Facts = fakeFacts{replicas: func(*Cluster) (int64, bool) { return 4, true }}
		}, []string{"own in use:", "cloud: it comes after own, and has room for 4 of 10 replicas only:"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{BundleUID: "b", Placement: tc.placement, Clusters: []Cluster{a, b, c, x}, Now: now}
			if tc.change != nil {
				tc.change(&in)
			}
			groups := DecidePlacement(in).Groups
			if len(groups) != len(tc.want) {
				t.Fatalf("%d groups", len(groups))
			}
			for i, g := range groups {
				if got := groupText(g); !strings.HasPrefix(got, tc.want[i]) {
					t.Errorf("%q, want %q", got, tc.want[i])
				}
			}
		})
	}
}
