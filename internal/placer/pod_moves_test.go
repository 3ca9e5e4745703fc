package placer

import (
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// A step moves the pods of new rows, and of active rows that leave for better clusters.
func TestPodMoves(t *testing.T) {
	row := func(phase atoll.RowPhase, pods int64) rollout.Row {
		return rollout.Row{Spec: atoll.RowSpec{Phase: phase, RequestedPods: pods}}
	}
	s := stepInput{podsPerRow: 5}
	s.rollout.Rows = map[string]rollout.Row{
		"holds": row(atoll.RowActive, 9), "better": row(atoll.RowActive, 9), "rebalanced": row(atoll.RowActive, 0), "edited": row(atoll.RowActive, 9), "left": row(atoll.RowLeaving, 9),
	}
	s.rollout.Decision.Verdicts = []schedule.Verdict{
		{Cluster: "new", Outcome: schedule.OutcomePlaced}, {Cluster: "holds", Outcome: schedule.OutcomePlaced}, {Cluster: "out", Outcome: schedule.OutcomeOut},
		{Cluster: "better", Outcome: schedule.OutcomeLeaves, Filter: schedule.FilterRescheduling}, {Cluster: "rebalanced", Outcome: schedule.OutcomeLeaves, Filter: schedule.FilterRebalance},
		{Cluster: "edited", Outcome: schedule.OutcomeLeaves, Filter: schedule.FilterLabels}, {Cluster: "left", Outcome: schedule.OutcomeLeaves, Filter: schedule.FilterRescheduling},
		{Cluster: "gone", Outcome: schedule.OutcomeLeaves, Filter: schedule.FilterRescheduling},
	}
	if got, want := s.podMoves(), map[string]int64{"new": 5, "better": -9, "rebalanced": -1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A new cluster gets the pods of undivided items and its part of the divided replicas, and at least one.
func TestPodsPerNewCluster(t *testing.T) {
	for _, tc := range []struct {
		name     string
		perRow   int64
		replicas int
		clusters int
		want     int64
	}{
		{"nothing", 0, 0, 2, 1}, {"undivided alone", 4, 0, 2, 4}, {"divided", 4, 9, 2, 4 + 4}, {"divided among one", 0, 9, 1, 9},
		{"more clusters than replicas", 0, 1, 3, 1}, {"negative", -5, -7, 2, 1}, {"very many", schedule.MaxWeight, 1, 1, schedule.MaxWeight},
	} {
		workloads, err := schedule.WorkloadsOf(contentAsking("web", tc.replicas))
		if err != nil {
			t.Fatal(err)
		}
		var clusters []schedule.Cluster
		for i := range tc.clusters {
			clusters = append(clusters, schedule.Cluster{ClusterView: atoll.ClusterView{Name: string(rune('a' + i))}, Accepted: true})
		}
		s := stepInput{podsPerRow: tc.perRow}
		s.rollout.Decision = schedule.DecidePlacement(schedule.Input{Placement: dividedPlacement, Workloads: workloads, Clusters: clusters})
		if got := s.podsPerNewCluster(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A row that stays states its pods; one stands for itself.
func TestSetRequestedPods(t *testing.T) {
	for _, tc := range []struct {
		name     string
		perRow   int64
		phase    atoll.RowPhase
		assigned map[string]int64
		want     int64
	}{
		{"undivided", 4, atoll.RowActive, nil, 4}, {"one", 1, atoll.RowActive, nil, 0}, {"two", 2, atoll.RowActive, nil, 2}, {"none", 0, atoll.RowActive, nil, 0},
		{"divided", 4, atoll.RowActive, map[string]int64{"x": 3, "y": 2}, 9}, {"a negative share", 4, atoll.RowActive, map[string]int64{"x": -3}, 4},
		{"very many", 4, atoll.RowActive, map[string]int64{"x": schedule.MaxWeight * 2}, schedule.MaxWeight}, {"it leaves", 4, atoll.RowLeaving, nil, 77},
	} {
		spec := &atoll.RowSpec{Phase: tc.phase, Assigned: tc.assigned, RequestedPods: 77}
		(&stepInput{podsPerRow: tc.perRow}).setRequestedPods(map[string]*atoll.RowSpec{"a": spec, "gone": nil})
		if spec.RequestedPods != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, spec.RequestedPods, tc.want)
		}
	}
}

// The numbers of reservations are kept while a decision is under way.
func TestReservationNumbersEndWithTheLastDecision(t *testing.T) {
	x := newBundleIndex()
	if x.beginDeciding() != 0 {
		t.Error("the first decision begins after a reservation")
	}
	x.beginDeciding()
	x.reservePods(map[string]int64{"a": 2, "b": -1}, 0, false)
	x.endDeciding()
	if x.reserved.lastAdded["a"] != 1 || x.reserved.lastRemoved["b"] != 1 || len(x.reserved.lastAdded)+len(x.reserved.lastRemoved) != 2 {
		t.Errorf("added %v, removed %v", x.reserved.lastAdded, x.reserved.lastRemoved)
	}
	x.endDeciding()
	if len(x.reserved.lastAdded)+len(x.reserved.lastRemoved) != 0 || x.beginDeciding() != 1 {
		t.Errorf("after both: %+v", x.reserved)
	}
	if got := x.copyReservations(); !maps.Equal(got, map[string]int64{"a": 2, "b": -1}) {
		t.Errorf("reserved %v", got)
	}
}

// A reserve of clusters is enough where it filled all places with no more new clusters than it covers.
func TestIsReserveEnough(t *testing.T) {
	for _, tc := range []struct {
		name   string
		placed int
		change func(*schedule.Decision)
		want   bool
	}{
		{"as many as it covers", schedule.ReserveDepth, func(*schedule.Decision) {}, true},
		{"more than it covers", schedule.ReserveDepth + 1, func(*schedule.Decision) {}, false},
		{"more are wanted", 1, func(d *schedule.Decision) { d.WantsMore = true }, false},
		{"none fits", 0, func(d *schedule.Decision) { d.NoFit = true }, false},
	} {
		s := stepInput{}
		s.rollout.Rows = map[string]rollout.Row{"held": {}}
		s.rollout.Decision.Verdicts = []schedule.Verdict{{Cluster: "held", Outcome: schedule.OutcomePlaced}, {Cluster: "kept", Outcome: schedule.OutcomeOut}}
		for i := range tc.placed {
			s.rollout.Decision.Verdicts = append(s.rollout.Decision.Verdicts, schedule.Verdict{Cluster: string(rune('a' + i)), Outcome: schedule.OutcomePlaced})
		}
		if tc.change(&s.rollout.Decision); s.isReserveEnough() != tc.want {
			t.Errorf("%s: %t", tc.name, !tc.want)
		}
	}
}

// A score selects other Bundles of the namespace by name, by the name of their source, or by label. Their active rows
// count.
func TestNearbyBundles(t *testing.T) {
	m := newFakeHub()
	add := func(uid, namespace, source string, labels map[string]string, rows map[string]atoll.RowPhase) {
		m.changeBundle(uid, func(b *state.Bundle) {
			b.Ref.Namespace, b.Spec.Source.Name, b.Meta.Labels = namespace, source, labels
		})
		m.rows[uid] = map[string]state.Row{}
		for c, phase := range rows {
			m.rows[uid][c] = state.Row{Cluster: c, Spec: atoll.RowSpec{Phase: phase}}
		}
	}
	active := func(names ...string) map[string]atoll.RowPhase {
		out := map[string]atoll.RowPhase{}
		for _, n := range names {
			out[n] = atoll.RowActive
		}
		return out
	}
	add("web", "shop", "", map[string]string{"tier": "db"}, active("a"))
	add("db", "shop", "policy", map[string]string{"tier": "db"}, map[string]atoll.RowPhase{"a": atoll.RowActive, "b": atoll.RowLeaving, "unknown": atoll.RowActive})
	add("cache", "shop", "policy", nil, active("b"))
	add("idle", "shop", "policy", map[string]string{"tier": "db"}, nil)
	add("other", "bank", "policy", map[string]string{"tier": "db"}, active("a"))
	r := New(m.reconcilerConfig())
	for _, name := range []string{"a", "b"} {
		r.index.replaceCluster(schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}})
	}
	b, _ := r.Bundles.Get("web")
	for _, tc := range []struct {
		name string
		near *v1alpha1.NearBundles
		want []string // clusters, by Bundle
	}{
		{"by name", &v1alpha1.NearBundles{Names: []string{"db"}}, []string{"a"}},
		{"by source", &v1alpha1.NearBundles{Names: []string{"policy"}}, []string{"a", "b"}},
		{"by label", &v1alpha1.NearBundles{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "db"}}}, []string{"a"}},
		{"itself", &v1alpha1.NearBundles{Names: []string{"web"}}, nil},
		{"a malformed selector", &v1alpha1.NearBundles{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}}, nil},
		{"nothing", &v1alpha1.NearBundles{}, nil},
	} {
		got := r.nearbyBundles(b, []v1alpha1.Score{{}, {Bundles: tc.near}})
		var clusters []string
		for _, views := range got[1] {
			for _, c := range views {
				clusters = append(clusters, c.Name)
			}
		}
		if slices.Sort(clusters); len(got) != 2 || got[0] != nil || !slices.Equal(clusters, tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, got, tc.want)
		}
	}
	if got := r.nearbyBundles(b, []v1alpha1.Score{{}}); got != nil {
		t.Errorf("no score asks for Bundles: %v", got)
	}
}

// scopedScores rates a cluster by the namespace that asks.
type scopedScores struct{ noScores }

func (scopedScores) RatingOf(namespace, cluster, _ string, _ time.Time) (int64, bool) {
	n, rated := map[string]int64{"shop a": 7, atoll.SystemNamespace + " a": 3}[namespace+" "+cluster]
	return n, rated
}

// A decision that is not of a Bundle has the ratings of its namespace, and without one those of the hub. It sees the
// pods that steps are about to move.
func TestSetScoreInputs(t *testing.T) {
	m := newFakeHub()
	cfg := m.reconcilerConfig()
	cfg.Scores = scopedScores{}
	r, a := New(cfg), schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a"}
	r.index.reservePods(map[string]int64{"a": 4}, 0, true)
	for namespace, want := range map[string]int64{"shop": 7, "": 3, "bank": 3} {
		in := schedule.Input{Placement: v1alpha1.PlacementSpec{Scores: []v1alpha1.Score{{Bundles: &v1alpha1.NearBundles{}}}}}
		r.SetScoreInputs(&in, namespace)
		if got := in.Facts.RatingOf(&a, "price"); got != want || in.Facts.AssignedPods(&a) != 4 || len(in.NearbyBundles) != 1 {
			t.Errorf("namespace %q: rating %d, %d pods, nearby %v", namespace, got, in.Facts.AssignedPods(&a), in.NearbyBundles)
		}
		if n, known := in.Facts.FreeReplicas(&a); n != 0 || known {
			t.Errorf("namespace %q: %d replicas fit, known %t", namespace, n, known)
		}
		if others, own := in.Facts.UsageOf(&a); others != nil || own != nil {
			t.Errorf("namespace %q: others use %v, own %v", namespace, others, own)
		}
	}
}

// A hub without ClusterScores has no ratings.
func TestNoScores(t *testing.T) {
	var s Scores = noScores{}
	if n, rated := s.RatingOf("shop", "a", "price", time.Now()); n != 0 || rated || !s.NextExpiry("a", time.Now()).IsZero() || s.ClustersWithExpiry() != nil {
		t.Errorf("rating %d, %t", n, rated)
	}
}
