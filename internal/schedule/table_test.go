package schedule

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Every entry of the filter table is complete, and each place of what rows store has one
// filter.
func TestFilterTableIsComplete(t *testing.T) {
	var places []int
	for filter, reason := range reasonByFilter {
		v := Verdict{Outcome: OutcomeOut, Filter: filter}
		if !slices.ContainsFunc(atoll.Reasons, func(r atoll.ReasonInfo) bool { return r.Reason == reason }) || v.ReasonCode() != reason {
			t.Errorf("the reason %q of filter %s is not in the table", reason, filter)
		}
	}
	for i := range filterTable {
		r := &filterTable[i]
		if (r.refuseView == nil) == (r.refuseCluster == nil) || (r.refuseView == nil) != (r.isStated == nil) {
			t.Errorf("%s asks about a cluster and about selectors, or about neither", r.name)
		}
		if (r.fingerprint == nil) != (r.place == 0) || r.isPlacementWide && r.refuseView == nil {
			t.Errorf("%s has a fingerprint without a place, a place without a fingerprint, or no selectors", r.name)
		}
		if r.place != 0 {
			places = append(places, r.place)
		}
	}
	slices.Sort(places)
	if !slices.Equal(places, []int{1, 2, 3, 4, 5, 6, 7}) || lastPlace != 7 {
		t.Errorf("places %v up to %d", places, lastPlace)
	}
}

// Newcomers and clusters that hold the Bundle are asked by the same filters in the same
// order, except for NoExecute taints.
func TestFirstRefusalIsTheFirstOfAll(t *testing.T) {
	p := affinityPlacement(v1alpha1.ClusterAffinity{
		ClusterNames: []string{"b"}, ExcludeClusters: []string{"a"}, LabelSelector: labelSelectorOf("env", "prod"), FieldSelector: inRegion("eu"),
	})
	p.ClusterSets, p.APIs, p.CELSelector = []string{"none"}, []v1alpha1.ServedAPI{{APIVersion: "none/v1"}}, "false"
	f := PlacementTerms{Placement: p, BoundSets: []string{"none"}, Kinds: []string{"none/v1/None"}}.CompilePlacement()
	c := newCluster("a", func(c *Cluster) {
		c.APIs, c.Accepted, c.Deleting, c.Removal = APIsOf(nil), false, true, v1alpha1.ClusterOrphan
		c.Taints = []v1alpha1.Taint{{Key: "t", Effect: corev1.TaintEffectNoSchedule}}
	})
	var names []string
	for _, r := range f.listRefusals(&c) {
		names = append(names, r.filter)
	}
	want := []string{
		FilterAccepted, FilterDeleting, FilterRemoval, FilterBoundSets, FilterSets, FilterExclude, FilterNames, FilterLabels, FilterFields,
		FilterTaints, FilterAPIs, FilterKinds, FilterCEL,
	}
	if !slices.Equal(names, want) {
		t.Errorf("refused by %v, want %v", names, want)
	}
	if r, refused := f.firstRefusal(&c, true); !refused || r.filter != want[0] {
		t.Errorf("first refused by %s", r.filter)
	}
}

// Each score of the API is in the table; an unknown one scores nothing.
func TestScoreTableKnowsEveryScore(t *testing.T) {
	for _, name := range []v1alpha1.ScoreName{
		v1alpha1.ScoreBalance, v1alpha1.ScoreSteady, v1alpha1.ScoreResourceAvailable, v1alpha1.ScoreProperty, v1alpha1.ScoreCluster,
		v1alpha1.ScoreAffinity, v1alpha1.ScoreAntiAffinity, v1alpha1.ScoreClusterAffinity,
	} {
		if k := findScoreKind(name); !slices.ContainsFunc(scoreTable, func(in scoreKind) bool { return in.name == name }) || k.name != name {
			t.Errorf("%s is not in the table", name)
		}
	}
	s := compileScores([]v1alpha1.Score{{Name: "Unknown"}, {Name: v1alpha1.ScoreSteady, Weight: 3}})
	c := newCluster("a")
	if got := s.scoreCluster(&c, clusterFacts{runsBundle: true}); got != fullScore*3/4 || s.needsPodLoad {
		t.Errorf("score %d, needs the pod load: %t", got, s.needsPodLoad)
	}
}

func TestNumberHeapSorts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		rank := r.Perm(1 + r.IntN(20))
		h := newNumberHeap(len(rank), func(a, b int32) bool { return rank[a] < rank[b] })
		if r.IntN(2) == 0 {
			first := h.pop()
			h.push(first)
		}
		for want := 0; len(h.numbers) > 0; want++ {
			if got := rank[h.pop()]; got != want {
				t.Fatalf("number of rank %d comes as %d of %v", got, want, rank)
			}
		}
	}
}

func TestSumsStopAtTheirLimits(t *testing.T) {
	for _, tc := range []struct{ a, b, want uint64 }{
		{1, 2, 3}, {math.MaxUint64, 0, math.MaxUint64}, {math.MaxUint64 - 1, 1, math.MaxUint64}, {math.MaxUint64, 1, math.MaxUint64},
	} {
		if got := saturatingAdd(tc.a, tc.b); got != tc.want {
			t.Errorf("%d and %d are %d", tc.a, tc.b, got)
		}
	}
	for _, tc := range []struct{ a, b, times, want int64 }{
		{5, 2, 2, 9}, {5, 2, -2, 1}, {5, 2, -3, 0}, {math.MaxInt64, 1, 1, math.MaxInt64}, {1, math.MaxInt64, 2, math.MaxInt64},
	} {
		if got := clampedSum(tc.a, tc.b, tc.times); got != tc.want {
			t.Errorf("%d and %d times %d are %d", tc.a, tc.times, tc.b, got)
		}
	}
}

func TestFormatNamesListsFive(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 5: "a, b, c, d, e", 6: "a, b, c, d, e and 1 more", 7: "a, b, c, d, e and 2 more"} {
		if got := formatNames(strings.Split("abcdefg", "")[:n]); got != want {
			t.Errorf("%d names: %q, want %q", n, got, want)
		}
	}
}

func TestGapsEndAtTheLastOrdinal(t *testing.T) {
	g := ordinalGaps{usedSpans: []ordinalSpan{{lastOrdinal - 19, lastOrdinal - 11}}, base: lastOrdinal - 29, size: 10, start: lastOrdinal - 29}
	for _, want := range []int64{lastOrdinal - 29, lastOrdinal - 9} {
		if start, ok := g.nextGap(); !ok || start != want {
			t.Fatalf("gap at %d (%t), want %d", start, ok, want)
		}
	}
	if start, ok := g.nextGap(); ok {
		t.Errorf("gap at %d, beyond the last ordinal", start)
	}
}

func TestTolerationsCoverTaints(t *testing.T) {
	is := v1alpha1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}
	for _, tc := range []struct {
		tol  corev1.Toleration
		want bool
	}{
		{corev1.Toleration{Key: "k", Value: "v"}, true},
		{corev1.Toleration{Key: "k", Value: "v", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoSchedule}, true},
		{corev1.Toleration{Key: "k", Value: "w"}, false},
		{corev1.Toleration{Key: "l", Value: "v"}, false},
		{corev1.Toleration{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}, false},
		{corev1.Toleration{Value: "v"}, false},
		{corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "l", Operator: corev1.TolerationOpExists}, false},
		{corev1.Toleration{Key: "k", Value: "v", Operator: "Near"}, false},
	} {
		if got := coversTaint(&tc.tol, &is); got != tc.want {
			t.Errorf("%+v covers the taint: %t", tc.tol, got)
		}
	}
}

// The earliest of several NoExecute taints evicts, at the second at which its toleration ends.
func TestTheEarliestTaintEvicts(t *testing.T) {
	added := metav1.NewTime(now.Add(-10 * time.Second))
	p := v1alpha1.PlacementSpec{ClusterTolerations: []corev1.Toleration{
		{Key: "late", Operator: corev1.TolerationOpExists, TolerationSeconds: secondsPointer(60)},
		{Key: "early", Operator: corev1.TolerationOpExists, TolerationSeconds: secondsPointer(10)},
		{Key: "never", Operator: corev1.TolerationOpExists},
	}}
	c := newCluster("a")
	for _, key := range []string{"late", "early", "never"} {
		c.Taints = append(c.Taints, v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
	}
	held := activeRow(c, p)
	f := CompilePlacement(p)
	if e := f.findEviction(&c, now, keptCauses{}); !e.at.Equal(now) || !strings.Contains(e.reason, "early") {
		t.Errorf("evicted at %s: %s", e.at, e.reason)
	}
	for ago, want := range map[time.Duration]Outcome{0: OutcomeLeaves, time.Second: OutcomePlaced} {
		if v := f.JudgeCluster(&c, &held, "", now.Add(-ago)); v.Outcome != want {
			t.Errorf("%s before the end: %s", ago, v)
		}
	}
}
