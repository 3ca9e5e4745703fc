package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Percentages are of the connected clusters. maxConcurrency is rounded up, and the other bounds are rounded down.
func TestBoundsOfRollouts(t *testing.T) {
	for name, c := range map[string]struct {
		bound                                string
		clusters                             int
		concurrency, failures, maxUnavailble int
	}{
		"a number":                       {"3", 7, 3, 3, 3},
		"half of an odd number":          {"50%", 7, 4, 3, 3},
		"a tenth of few":                 {"10%", 4, 1, 0, 1},
		"all":                            {"100%", 7, 7, 7, 7},
		"of no cluster":                  {"50%", 0, 1, 0, 1},
		"what admission does not let in": {"many", 7, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := intstr.Parse(c.bound)
			terms := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, MaxUnavailable: &b, Stages: []v1alpha1.RolloutStage{{Name: "a", MaxConcurrency: &b, MaxFailures: &b}}})
			if got := terms.concurrencyOf(0, c.clusters); got != c.concurrency {
				t.Errorf("maxConcurrency is %d, want %d", got, c.concurrency)
			}
			if got := terms.failuresOf(0, c.clusters); got != c.failures {
				t.Errorf("maxFailures is %d, want %d", got, c.failures)
			}
			if got := terms.unavailableOf(c.clusters); got != c.maxUnavailble {
				t.Errorf("maxUnavailable is %d, want %d", got, c.maxUnavailble)
			}
		})
	}
}

// Without a bound all clusters of a stage change, none of them may fail, and any number may be unhealthy. Without
// stages failures hold nothing.
func TestBoundsThatAreNotStated(t *testing.T) {
	staged := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "a"}}})
	if staged.concurrencyOf(0, 9) != noBound || staged.failuresOf(1, 9) != 0 || staged.unavailableOf(9) != noBound || staged.successTimeOf(0) != 0 {
		t.Error("a stage without bounds has some")
	}
	one := intstr.FromInt32(1)
	if all := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutAll, MaxUnavailable: &one}); all.failuresOf(0, 9) != noBound || all.CountStages() != 1 || all.HasStages() {
		t.Error("a rollout without stages has a stage that fails")
	}
	if all := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutAll}); all != nil || all.IsDefault() {
		t.Error("a rollout that bounds nothing has terms")
	}
}

// Without a rollout, a quarter of the clusters may be unhealthy once there are more than four. Nothing fails.
func TestDefaultTerms(t *testing.T) {
	terms := CompileTerms(nil)
	if !terms.IsDefault() || terms.HasStages() || terms.CountStages() != 1 || terms.StageName(0) != v1alpha1.RestStage || terms.failuresOf(0, 9) != noBound {
		t.Errorf("the default is %+v", terms)
	}
	for clusters, want := range map[int]int{5: 1, 8: 2, 11: 2, 12: 3, 1000: 250} {
		if is := terms.ForClusters(clusters); is != terms || is.unavailableOf(clusters) != want {
			t.Errorf("of %d clusters %d may be unhealthy, want %d", clusters, is.unavailableOf(clusters), want)
		}
	}
	for _, clusters := range []int{0, 1, 4} {
		if terms.ForClusters(clusters) != nil {
			t.Errorf("%d clusters are bounded", clusters)
		}
	}
	one := intstr.FromInt32(1)
	if stated := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutAll, MaxUnavailable: &one}); stated.IsDefault() || stated.ForClusters(1) != stated {
		t.Error("a stated bound does not hold for few clusters")
	}
}

// A cluster is in the first stage that names it or selects its labels, or else in the rest.
func TestStageOfACluster(t *testing.T) {
	terms := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
		{Name: "named", Clusters: v1alpha1.StageClusters{Names: []string{"oslo"}}},
		{Name: "labelled", Clusters: v1alpha1.StageClusters{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "test"}}}},
	}})
	for cluster, want := range map[string]string{"oslo": "named", "lima": "labelled", "rome": "rest"} {
		env := map[string]string{"env": map[string]string{"oslo": "test", "lima": "test", "rome": "prod"}[cluster]}
		if got := terms.StageName(terms.StageOf(cluster, env, 0)); got != want {
			t.Errorf("%s is in stage %s, want %s", cluster, got, want)
		}
	}
	if i := (*Terms)(nil).StageOf("oslo", nil, 0); i != 0 || (*Terms)(nil).StageName(i) != "rest" {
		t.Error("without a rollout there is another stage than the rest")
	}
}

// Times in the future, of a clock that was set back or of a member's clock, lengthen no wait.
func TestHealthySince(t *testing.T) {
	for name, c := range map[string]struct{ movedAt, since, want int64 }{
		"healthy after the change":        {100, 150, 150},
		"healthy before the change":       {100, 50, 100},
		"the hub's clock was set back":    {1500, 1400, 1000},
		"the member's clock is ahead":     {100, 1500, 100},
		"both times are in the future":    {2000, 1500, 1000},
		"healthy before stages were used": {0, 50, 50},
	} {
		row := Row{Spec: atoll.RowSpec{MovedAt: c.movedAt}, Status: &atoll.RowStatus{Since: c.since}}
		if got := row.healthySince(1000); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Readers without the times of rows count a stage as soaking while the next one has not begun.
func TestMarkSoaking(t *testing.T) {
	minute := &metav1.Duration{Duration: time.Minute}
	terms := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "a", MinSuccessTime: minute}, {Name: "b", MinSuccessTime: minute}}})
	for name, c := range map[string]struct {
		stages [3]StageTally
		want   [3]int
		reason atoll.Reason
	}{
		"the first is done":        {[3]StageTally{{Clusters: 2, Updated: 2}, {Clusters: 1, Waiting: 1}}, [3]int{2, 0, 0}, atoll.ReasonWaitsForSuccessTime},
		"the second has none":      {[3]StageTally{{Clusters: 2, Updated: 2}, {}, {Clusters: 1, Waiting: 1}}, [3]int{2, 0, 0}, atoll.ReasonWaitsForSuccessTime},
		"the first is not healthy": {[3]StageTally{{Clusters: 2, Updated: 1, Changing: 1}, {Clusters: 1, Waiting: 1}}, [3]int{}, atoll.ReasonWaitsForStage},
		"the second has begun":     {[3]StageTally{{Clusters: 2, Updated: 2}, {Clusters: 2, Updated: 1, Waiting: 1}}, [3]int{}, atoll.ReasonWaitsForStage},
		"no cluster waits":         {[3]StageTally{{Clusters: 2, Updated: 2}, {Clusters: 2, Updated: 2}}, [3]int{}, ""},
	} {
		p := Progress{Stages: c.stages[:]}
		p.MarkSoaking(terms, GateStates{})
		if got := [3]int{p.Stages[0].Soaking, p.Stages[1].Soaking, p.Stages[2].Soaking}; got != c.want {
			t.Errorf("%s: %v soak, want %v", name, got, c.want)
		}
		if got := terms.FindStageWait(p, Halt{}, GateStates{}).Reason; got != c.reason {
			t.Errorf("%s: the reason is %q, want %q", name, got, c.reason)
		}
	}
}
