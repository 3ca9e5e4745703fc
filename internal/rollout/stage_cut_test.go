package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
)

// autoTerms are the terms of automatic stages of these sizes.
func autoTerms(sizes ...string) *Terms {
	r := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged}
	for _, size := range sizes {
		r.AutoStages = append(r.AutoStages, intstr.Parse(size))
	}
	return CompileTerms(r).WithStageCut("shop", "web", nil)
}

// cutClusters returns the terms by a cut over clusters, which have names c0, c1 and so on.
func (t *Terms) cutClusters(clusters int, at time.Time) *Terms {
	var hashes []int64
	for i := range clusters {
		hashes = append(hashes, t.auto.hashOf(fmt.Sprint("c", i)))
	}
	slices.Sort(hashes)
	return t.WithStageCut("shop", "web", t.auto.newCut("r1", at, hashes))
}

// Sizes are how many clusters have changed after a stage, rounded up. A stage without one more cluster than the stage before is empty.
func TestSizesOfAutoStages(t *testing.T) {
	for name, c := range map[string]struct {
		sizes    []string
		clusters int
		want     string
	}{
		"as stated":                 {[]string{"1", "10%", "50%", "100%"}, 100, "[1 9 40 50]"},
		"the last is left out":      {[]string{"1", "10%", "50%"}, 100, "[1 9 40 50]"},
		"rounded up":                {[]string{"1", "10%", "50%"}, 21, "[1 2 8 10]"},
		"a stage is empty":          {[]string{"1", "10%", "50%"}, 5, "[1 0 2 2]"},
		"one cluster":               {[]string{"1", "10%", "50%"}, 1, "[1 0 0 0]"},
		"a number is above a share": {[]string{"30", "10%", "50%"}, 100, "[30 0 20 50]"},
		"more than there are":       {[]string{"5", "500"}, 20, "[5 15 0]"},
		"all at once":               {[]string{"100%"}, 7, "[7]"},
		"no cluster":                {[]string{"1", "50%"}, 0, "[0 0 0]"},
	} {
		t.Run(name, func(t *testing.T) {
			terms := autoTerms(c.sizes...).cutClusters(c.clusters, time.Unix(1000, 0))
			got := make([]int, terms.CountStages())
			for i := range c.clusters {
				got[terms.StageOf(fmt.Sprint("c", i), nil, 999)]++
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("the stages have %v clusters, want %s", got, c.want)
			}
		})
	}
}

// A larger stage has the clusters of a smaller one, in the order of the Bundle. A cluster that was created after the cut is in the
// last stage, and one that was disconnected then is in any.
func TestOrderOfAutoStages(t *testing.T) {
	at := time.Unix(1000, 0)
	few, many := autoTerms("2", "50%").cutClusters(40, at), autoTerms("10").cutClusters(40, at)
	returned := map[int]bool{}
	for i := range 40 {
		c := fmt.Sprint("c", i)
		if few.StageOf(c, nil, 0) == 0 && many.StageOf(c, nil, 0) != 0 {
			t.Errorf("%s is one of 2 clusters, and not one of 10", c)
		}
		if stage := few.StageOf(c, nil, 1001); stage != 2 {
			t.Errorf("%s was created after the cut, and is in stage %d", c, stage)
		}
		returned[few.StageOf(fmt.Sprint("lost", i), nil, 0)] = true
	}
	if !returned[1] || !returned[2] {
		t.Errorf("clusters that return are in stages %v", returned)
	}
	order := func(name string) (in []string) {
		terms := CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, AutoStages: []intstr.IntOrString{intstr.FromInt32(5)}}).WithStageCut("shop", name, nil)
		for i := range 40 {
			in = append(in, fmt.Sprint("c", i))
		}
		slices.SortFunc(in, func(a, b string) int { return int(terms.auto.hashOf(a) - terms.auto.hashOf(b)) })
		return in
	}
	if slices.Equal(order("web"), order("shop")) || !slices.Equal(order("web"), order("web")) {
		t.Error("the order of clusters is not that of the Bundle")
	}
	for _, c := range order("web") {
		if hash := few.auto.hashOf(c); hash < 0 || hash >= 1<<52 {
			t.Errorf("the hash of %s is %d", c, hash)
		}
	}
}

// Each automatic stage has the options, and each but the first has the gates. A stage that the cut leaves empty has none.
func TestOptionsOfAutoStages(t *testing.T) {
	two, one := intstr.FromInt32(2), intstr.FromInt32(1)
	gates := []v1alpha1.RolloutGate{
		{Name: "time", Wait: &metav1.Duration{Duration: time.Hour}}, {Name: "owner", Approval: &v1alpha1.ApprovalGate{Approvers: 2, ValidFor: &metav1.Duration{Duration: time.Hour}}},
		{Name: "counts", CEL: "earlier.failed == 0"},
	}
	terms := CompileTerms(&v1alpha1.Rollout{
		Type: v1alpha1.RolloutStaged, AutoStages: []intstr.IntOrString{one, intstr.FromString("10%"), intstr.FromString("50%")},
		AutoStageOptions: &v1alpha1.AutoStageOptions{
			MaxConcurrency: &two, MaxFailures: &one, MinSuccessTime: &metav1.Duration{Duration: time.Minute}, ProgressDeadline: &metav1.Duration{Duration: time.Hour},
			OnFailure: v1alpha1.FailureRollback, GatesBefore: gates,
		},
	}).WithStageCut("shop", "web", nil)
	cut := terms.cutClusters(5, time.Unix(1000, 0))
	for i, name := range []string{"auto 1", "auto 10%", "auto 50%", "auto 100%"} {
		if terms.StageName(i) != name || terms.concurrencyOf(i, 9) != 2 || terms.failuresOf(i, 9) != 1 || terms.successTimeOf(i) != time.Minute || terms.progressDeadlineOf(i) != time.Hour || !terms.rollsBack(i) {
			t.Errorf("stage %d, %s, is %+v", i, terms.StageName(i), terms.stages[i].RolloutStage)
		}
		if got := len(terms.gatesInto(i)); got != map[bool]int{true: 0, false: 3}[i == 0] {
			t.Errorf("stage %s has %d gates", name, got)
		}
		if got := len(cut.gatesInto(i)); got != map[bool]int{true: 0, false: 3}[i < 2] {
			t.Errorf("of 5 clusters stage %s has %d gates", name, got)
		}
	}
	want := [...]string{"1h to pass after the earlier stages are done", "`atoll rollout approve --stage \"auto 50%\"` by 2 users", "its expression to be true: earlier.failed == 0"}
	for i, text := range cut.DescribeGates(2) {
		if full := "gate " + gates[i].Name + " of stage auto 50%: " + want[i]; text != full {
			t.Errorf("%s, want %s", text, full)
		}
	}
	if g := cut.gatesInto(3)[1]; g.Approval.ValidFor.Duration != time.Hour {
		t.Errorf("an approval counts for %s", g.Approval.ValidFor.Duration)
	}
}

// The first installation goes through automatic stages too. Clusters wait with the name of their stage from the first step, so that the
// next step writes no row but those that change. Until the clusters are divided, their wait names no stage.
func TestFirstInstallationInAutoStages(t *testing.T) {
	s := newStage(t)
	for _, line := range []string{"fleet 10", "auto 1,50%", "pause alice later", "step"} {
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
	expectReasons := func(want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for _, row := range s.rows {
			got[row.Spec.Reason]++
		}
		if !maps.Equal(got, want) {
			t.Fatalf("rows wait for %v, want %v", got, want)
		}
	}
	const turn = "WaitsForStage: its turn in the rollout"
	expectReasons(map[string]int{turn: 10})
	s.runCommand("resume", nil)
	s.advanceOnce()
	expectReasons(map[string]int{turn + ", in stage auto 1": 1, turn + ", in stage auto 50%": 4, turn + ", in stage auto 100%": 5})
	if out := AdvanceRows(s.buildInput()); len(out.Changes) != 1 || out.StageCut != nil {
		t.Errorf("%d rows are written, and the clusters are divided again: %t", len(out.Changes), out.StageCut != nil)
	}
}

// A cut of other sizes, and one with too few thresholds, count as none.
func TestCutsThatDoNotCount(t *testing.T) {
	cut := autoTerms("1", "50%").cutClusters(10, time.Unix(1000, 0)).auto.cut
	short := cut.DeepCopy()
	short.Thresholds = short.Thresholds[:1]
	for name, c := range map[string]struct {
		terms *Terms
		is    bool
	}{
		"no cut":            {autoTerms("1", "50%"), true},
		"of the revision":   {autoTerms("1", "50%").WithStageCut("shop", "web", cut), false},
		"the same sizes":    {autoTerms("1", "50%", "100%").WithStageCut("shop", "web", cut), false},
		"other sizes":       {autoTerms("2", "50%").WithStageCut("shop", "web", cut), true},
		"too short":         {autoTerms("1", "50%").WithStageCut("shop", "web", short), true},
		"stages are stated": {CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "a"}}}).WithStageCut("shop", "web", cut), false},
		"none is stated":    {CompileTerms(nil).WithStageCut("shop", "web", cut), false},
		"no bound":          {(*Terms)(nil).WithStageCut("shop", "web", cut), false},
	} {
		if got := c.terms.isUncut("r1"); got != c.is {
			t.Errorf("%s: the clusters are to be divided: %t", name, got)
		}
		if c.terms.HasAutoStages() && !c.terms.isUncut("r2") {
			t.Errorf("%s: the cut of another revision counts", name)
		}
	}
}

// Clusters that come back to a stage of a size do not make it larger: it changes as many as its size, and then the clusters are divided
// again.
func TestClustersThatComeBackToAutoStages(t *testing.T) {
	s := newStage(t)
	for _, line := range []string{"fleet 200", "settle", "auto 1,10%,50%"} {
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
	var order []string // of the clusters by their hashes
	for c := range s.clusters {
		order = append(order, c)
	}
	terms := s.compileTerms()
	slices.SortFunc(order, func(a, b string) int { return int(terms.auto.hashOf(a) - terms.auto.hashOf(b)) })
	alone := order[120]
	for _, c := range order {
		if c != alone {
			s.runCommand("away", []string{c})
		}
	}
	s.baseInput.Revision = "r2"
	s.advanceOnce()
	first := s.cut
	s.advanceOnce()
	for _, c := range order {
		s.runCommand("back", []string{c})
	}
	changed := func() (n int) {
		for _, row := range s.rows {
			if row.Spec.Revision == "r2" {
				n++
			}
		}
		return n
	}
	s.advanceOnce()
	if n := changed(); n != 1 || s.cut != first || s.stageWait.Stage != 0 {
		t.Fatalf("%d clusters change with the one that was connected, divided again: %t", n, s.cut != first)
	}
	var seen []int
	for range 5 {
		s.reportState("Ready", []string{"*"})
		s.advanceOnce()
		s.advanceOnce()
		seen = append(seen, changed())
	}
	// The one that changed first is in the last stage by the second division.
	if want := "[2 21 101 200 200]"; fmt.Sprint(seen) != want {
		t.Errorf("%v clusters have changed, want %s", seen, want)
	}
}

// A cluster that failed and was lost has a place in a stage, and is in no division. It keeps no other cluster of the stage waiting.
func TestALostClusterInAnAutoStage(t *testing.T) {
	s := newStage(t)
	play := func(lines ...string) {
		for _, line := range lines {
			words := strings.Fields(line)
			s.runCommand(words[0], words[1:])
		}
	}
	play("clusters a b", "settle", "auto 1")
	first, second := "a", "b"
	if terms := s.compileTerms(); terms.auto.hashOf("b") < terms.auto.hashOf("a") {
		first, second = "b", "a"
	}
	play("away "+second, "revision r2", "turn", "turn", "report Degraded "+first, "turn", "after 1m", "resume", "away "+first, "back "+second, "auto 1,50%", "turn")
	if s.compileTerms().StageOf(second, nil, 0) != 0 || s.compileTerms().StageOf(first, nil, 0) != 0 {
		t.Fatalf("the clusters are not in one stage: %s", s.formatStages())
	}
	cut := s.cut
	if s.advanceOnce(); s.rows[second].Spec.Revision != "r2" || s.cut != cut {
		t.Errorf("the connected cluster waits: %s%s", s.formatStages(), s.formatWaits())
	}
}

// BenchmarkAutoStages is a step over rows that wait behind the first of the automatic stages, with the stage of each row.
func BenchmarkAutoStages(b *testing.B) {
	s := newStage(b)
	s.runCommand("fleet", []string{"10000"})
	s.runCommand("auto", []string{"1,10%,50%"})
	for c := range s.clusters {
		s.rows[c] = benchRow(c)
	}
	s.reportState("Ready", []string{"*"})
	s.baseInput.Revision = "r2"
	s.advanceOnce()
	s.advanceOnce()
	in := s.buildInput()
	in.ExplainWaits, in.NewClusters = false, nil
	b.Run("rest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if out := AdvanceRows(in); len(out.Changes) > 0 || out.Progress.Stages[0].Changing != 1 {
				b.Fatalf("%d rows change", len(out.Changes))
			}
		}
	})
	b.Run("stages", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for c := range in.Rows {
				_ = in.Terms.StageOf(c, nil, 0)
			}
		}
	})
	s.cut = nil
	uncut := s.buildInput()
	uncut.ExplainWaits, uncut.NewClusters = false, nil
	b.Run("cut", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if out := AdvanceRows(uncut); out.StageCut == nil {
				b.Fatal("nothing is decided")
			}
		}
	})
}
