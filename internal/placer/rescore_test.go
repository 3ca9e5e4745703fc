package placer

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// A Bundle whose decision has no thresholds may not move any more.
func TestBundlesWithoutThresholdsMayNotMove(t *testing.T) {
	x, e, filter := indexWith(nil)
	w := stepResult{standing: &schedule.ScoreThresholds{LowestChosen: 7}}
	w.bundle.Ref.Namespace, w.bundle.Spec.Source.Kind = "shop", "PropagationPolicy"
	x.recordScoreThresholds(e, w)
	if g := x.movable.groups[movableKind{filter, "shop", "PropagationPolicy"}]; g == nil || g.standings["web"].LowestChosen != 7 {
		t.Fatalf("%+v", x.movable.groups)
	}
	if x.recordScoreThresholds(e, stepResult{}); x.hasMovable() {
		t.Error("it may still move")
	}
}

// A cluster's new score counts for the Bundles that it fits. It falls for those that run on it.
func TestRescoreCluster(t *testing.T) {
	for _, tc := range []struct {
		name     string
		cluster  string
		holds    bool
		rises    int
		lowest   int64
		touched  bool
		selected []string
	}{
		{"it fits, and is better", "a", false, 1, 100_000, true, []string{"a"}}, {"it does not fit", "a", false, 0, 100_000, false, []string{"b"}},
		{"the Bundle runs on it", "a", true, 1, 100_000, false, []string{"a"}},
	} {
		m := newFakeHub()
		p := withRebalance(atMostClusters(1))
		p.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: tc.selected}
		r := New(m.reconcilerConfig())
		e := r.index.ensureEntry("web")
		e.filter = schedule.CompilePlacement(p)
		r.index.recordScoreThresholds(e, stepResult{standing: &schedule.ScoreThresholds{LowestChosen: tc.lowest, HighestOther: 0}})
		if tc.holds {
			m.rows["web"] = map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive}}, "web")}
		}
		r.rescoreCluster(&schedule.Cluster{ClusterView: atoll.ClusterView{Name: tc.cluster}, UID: "uid-a", Accepted: true})
		g := r.index.movable.groups[r.index.movable.kindOfBundle["web"]]
		if len(g.rises) != tc.rises || g.standings["web"].LowestChosen != tc.lowest || e.hasTouched("a") != tc.touched {
			t.Errorf("%s: %d rises, lowest %d, touched %t", tc.name, len(g.rises), g.standings["web"].LowestChosen, e.hasTouched("a"))
		}
	}
	m := newFakeHub()
	r := New(m.reconcilerConfig())
	e := r.index.ensureEntry("web")
	e.filter = schedule.CompilePlacement(withRebalance(atMostClusters(1)))
	r.index.recordScoreThresholds(e, stepResult{standing: &schedule.ScoreThresholds{LowestChosen: 2_000_000}})
	m.rows["web"] = map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive}}, "web")}
	r.rescoreCluster(&schedule.Cluster{ClusterView: atoll.ClusterView{Name: "a"}, UID: "uid-a", Accepted: true})
	if got := r.index.movable.groups[r.index.movable.kindOfBundle["web"]].standings["web"].LowestChosen; got != 1_000_000 {
		t.Errorf("a cluster that got worse for the Bundle on it: lowest %d, want its score", got)
	}
}
