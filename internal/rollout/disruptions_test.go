package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/schedule"
)

// runDisruptionCommand runs the commands of scripts that are about disruption budgets.
func (s *scriptStage) runDisruptionCommand(cmd string, args []string) {
	switch cmd {
	case "disruptions": // none | min BOUND | max BOUND, and ignore-pods
		if args[0] == "none" {
			s.baseInput.Budget = nil
			return
		}
		bound := intstr.Parse(args[1])
		s.baseInput.Budget = &v1alpha1.DisruptionBudget{MinAvailable: &bound}
		if args[0] == "max" {
			s.baseInput.Budget = &v1alpha1.DisruptionBudget{MaxUnavailable: &bound}
		}
		if len(args) > 2 {
			s.baseInput.Budget.PodDisruptionBudgets = v1alpha1.PodDisruptionBudgetsIgnore
		}
	case "pods": // N CLUSTER... : the PodDisruptionBudget there allows so many disruptions, as the next report states
		if s.podBudgets == nil {
			s.podBudgets = map[string]int64{}
		}
		for _, c := range args[1:] {
			s.podBudgets[c], _ = strconv.ParseInt(args[0], 10, 64)
		}
	case "free": // REVISION : the target only deletes objects of it
		s.baseInput.FreeRevisions = map[string]bool{args[0]: true}
	}
}

// reportPodBudget returns what a cluster reports of its PodDisruptionBudget; nil: it has none.
func (s *scriptStage) reportPodBudget(c string) []atoll.ItemStatus {
	allowed, has := s.podBudgets[c]
	if !has {
		return nil
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"generation": int64(1)},
		"status": map[string]any{"observedGeneration": int64(1), "disruptionsAllowed": allowed, "currentHealthy": int64(2), "desiredHealthy": int64(2), "expectedPods": int64(2)},
	}}
	return []atoll.ItemStatus{{Key: atoll.ItemKey{Group: "policy", Kind: "PodDisruptionBudget", Namespace: "ns", Name: "web"}, Health: atoll.Healthy, ReflectedStatus: kinds.ReflectStatus(obj)}}
}

// checkDisruptions checks that no act of the engine brings the available copies below the budget, by counts of its own.
func checkDisruptions(t testing.TB, in Input, out Output) {
	t.Helper()
	if in.Budget == nil || in.Deleting {
		return
	}
	left, taken, isEdit, holders := 0, 0, false, 0
	for c, row := range in.Rows {
		spec, changes := out.Changes[c]
		v, _ := in.Decision.FindVerdict(c)
		if row.Spec.UID != v.UID {
			continue // its Cluster was replaced or deleted
		}
		isAvailable := row.Online && row.Spec.Phase != atoll.RowRemoving && (row.reportsReady() || row.isSharing() && row.Status.Since > row.Spec.MovedAt)
		if isAvailable {
			left++
		}
		isLoss := changes && spec != nil && (spec.Phase == atoll.RowRemoving && row.Spec.Phase != atoll.RowRemoving || spec.Revision != row.Spec.Revision && row.Spec.Phase != atoll.RowRemoving && row.Spec.Phase != atoll.RowPending)
		if !isLoss || !isAvailable {
			continue
		}
		left--
		switch {
		case spec.Orphan, in.FreeRevisions[row.Spec.Revision]:
		case v.RowReason == atoll.ReasonPlacementEdited && spec.Phase == atoll.RowRemoving:
			isEdit = true
		default:
			taken++
		}
	}
	for _, v := range in.Decision.Verdicts {
		if row, has := in.Rows[v.Cluster]; v.IsHolder() && (row.Online && row.Spec.UID == v.UID || !has && in.NewClusters[v.Cluster].Online) {
			holders++
		}
	}
	need := in.Budget.RequiredOf(holders)
	if isEdit {
		need = min(need, holders)
	}
	if taken > 0 && left < need {
		t.Fatalf("%d available copies are taken, and %d are left of at least %d (%s)\n%s", taken, left, need, in.Budget, formatChanges(out))
	}
}

func formatChanges(out Output) (text string) {
	for c, spec := range out.Changes {
		text += fmt.Sprintf("%s: %+v\n", c, spec)
	}
	return text
}

// A budget counts copies: percentages are rounded up, as those of a PodDisruptionBudget. Disconnected clusters are outside, and copies
// that leave without a replacement are expected.
func TestCopiesThatABudgetCounts(t *testing.T) {
	ready, broken := benchRow("a"), benchRow("b")
	ready.Online, ready.Status = true, &atoll.RowStatus{Generation: 1, State: atoll.RowReady}
	broken.Online, broken.Status = true, &atoll.RowStatus{Generation: 1, State: atoll.RowDegraded}
	away := ready
	away.Online = false
	for name, c := range map[string]struct {
		least, most         string
		ready, broken, away int
		// replaced copies leave after others came, and gone ones without a replacement.
		replaced, gone int
		room           int
		reason         atoll.Reason
	}{
		"two of three must stay":            {least: "2", ready: 3, room: 1, reason: atoll.ReasonDisruptionBudget},
		"one is broken":                     {least: "2", ready: 2, broken: 1, room: 0, reason: atoll.ReasonDisruptionBudget},
		"two are broken":                    {least: "2", ready: 1, broken: 2, room: -1, reason: atoll.ReasonDisruptionBudget},
		"one is away":                       {least: "2", ready: 2, away: 1, room: 0, reason: atoll.ReasonDisruptionBudget},
		"all must stay":                     {least: "3", ready: 3, room: 0, reason: atoll.ReasonDisruptionBudgetTooStrict},
		"more than there are":               {least: "5", ready: 3, room: -2, reason: atoll.ReasonDisruptionBudgetTooStrict},
		"a share of all":                    {least: "50%", ready: 5, room: 2, reason: atoll.ReasonDisruptionBudget},
		"a share of the connected ones":     {least: "50%", ready: 2, away: 3, room: 1, reason: atoll.ReasonDisruptionBudget},
		"one may be unavailable":            {most: "1", ready: 3, room: 1, reason: atoll.ReasonDisruptionBudget},
		"one is unavailable":                {most: "1", ready: 2, broken: 1, room: 0, reason: atoll.ReasonDisruptionBudget},
		"one is away, another may be taken": {most: "1", ready: 2, away: 1, room: 1, reason: atoll.ReasonDisruptionBudget},
		"a share may be unavailable":        {most: "30%", ready: 7, room: 3, reason: atoll.ReasonDisruptionBudget},
		"none may be unavailable":           {most: "0", ready: 3, room: 0, reason: atoll.ReasonDisruptionBudgetTooStrict},
		"one leaves, and is replaced":       {most: "0", ready: 3, replaced: 1, room: 1, reason: atoll.ReasonDisruptionBudget},
		"one leaves without a replacement":  {most: "1", ready: 2, gone: 1, room: 1, reason: atoll.ReasonDisruptionBudget},
		"none may leave without one":        {most: "0", ready: 2, gone: 1, room: 0, reason: atoll.ReasonDisruptionBudgetTooStrict},
	} {
		b := &v1alpha1.DisruptionBudget{}
		if bound := intstr.Parse(c.least + c.most); c.least != "" {
			b.MinAvailable = &bound
		} else {
			b.MaxUnavailable = &bound
		}
		tally := NewCopyTally(b)
		tally.AddLeaving(ready, true, c.replaced+c.gone)
		tally.expectLeaving(c.gone)
		tally.AddChosen(ready, true, c.ready, "a")
		tally.AddChosen(broken, true, c.broken, "b")
		tally.AddChosen(away, false, c.away, "c")
		reason := tally.Reason()
		if c.replaced+c.gone > 0 {
			reason = tally.reasonOfLeaving(false)
		}
		if tally.Room() != c.room || reason != c.reason {
			t.Errorf("%s: room %d, %s, want %d, %s", name, tally.Room(), reason, c.room, c.reason)
		}
	}
	if none := NewCopyTally(nil); none.Room() != noBound || none.isSpent() || none.isTooStrict() || none.Describe() != "" {
		t.Error("a Bundle without a budget is bounded")
	}
}

// The words of a wait have the counts and the budget as it is stated.
func TestWordsOfADisruptionBudget(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a b c", "settle", "after 1h", "disruptions min 2", "report Degraded c", "taint a t NoExecute", "step")
	waits := s.formatWaits()
	if want := "a waits for c to become available: 2 of 3 copies are, and disruptionBudget states minAvailable 2, so that 2 must stay (the application's owner)"; !strings.Contains(waits, want) {
		t.Errorf("%s, want %s", waits, want)
	}
	if reason := atoll.ParseRowReason(s.rows["a"].Spec.Reason); reason.Reason != atoll.ReasonDisruptionBudget || reason.Cause().Reason != atoll.ReasonEvicted || !strings.Contains(reason.Cause().Text, "taint t:NoExecute") {
		t.Errorf("the row has the reason %+v", reason)
	}
}

// disruptRandomly states another budget, drains clusters, or lets a cluster be broken.
func (w *randomWalk) disruptRandomly() {
	switch w.rand.IntN(9) {
	case 0:
		w.playCommand("disruptions", "min", strconv.Itoa(1+w.rand.IntN(4)))
	case 1:
		w.playCommand("disruptions", "max", strconv.Itoa(w.rand.IntN(3)))
	case 2:
		w.playCommand("disruptions", []string{"min", "max"}[w.rand.IntN(2)], []string{"25%", "50%"}[w.rand.IntN(2)])
	case 3, 4:
		for _, c := range w.randomClusters(1 + w.rand.IntN(4)) {
			if w.clusters[c] != nil {
				w.playCommand("taint", c, []string{"t", v1alpha1.TaintDrain}[w.rand.IntN(2)], "NoExecute")
			}
		}
	case 5:
		w.playCommand("pods", strconv.Itoa(w.rand.IntN(2)), w.randomCluster())
	case 6:
		if name := w.randomCluster(); w.clusters[name] != nil {
			w.playCommand("uncertain", name, "90s")
		}
	default:
		w.playCommand("report", "Degraded", w.randomCluster())
	}
}

// After any acts of users, agents and links, no act of the engine brings the available copies below the budget (checkDisruptions), and all is as requested
// once a budget that can be satisfied has enough available copies.
func TestDisruptionWalk(t *testing.T) {
	n := uint64(150)
	if testing.Short() {
		n = 40
	}
	held := 0
	for seed := range n {
		w := &randomWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 29))}
		w.playCommand("fleet", "8")
		w.statesNone = seed%4 < 2
		w.playCommand("disruptions", "min", "2")
		switch seed % 6 {
		case 0:
			w.playCommand("order", "recreate")
		case 1:
			w.playCommand("divide", fmt.Sprintf("Deployment/web=%d", w.rand.IntN(30)), "StatefulSet/db=2")
		case 2, 3:
			w.placement.MaxClusters = 4
		case 4:
			w.playCommand("unavailable", "2")
		}
		for range 120 {
			if w.rand.IntN(3) == 0 {
				w.disruptRandomly()
			} else {
				w.actRandomly()
			}
			w.playCommand("after", "1s") // times have seconds
			w.playCommand("turn")
			w.playCommand("after", "1s")
			for _, row := range w.rows {
				if atoll.IsBudgetReason(atoll.ParseRowReason(row.Spec.Reason).Reason) {
					held++
				}
			}
		}
		w.playCommand("disruptions", "max", "1", "ignore-pods")
		for c := range w.clusters {
			w.playCommand("cluster", c, "x=0")
			w.playCommand("back", c)
		}
		w.playCommand("place", "all")
		w.playCommand("after", "20m")
		for range 5 {
			w.playCommand("settle")
		}
		w.checkConvergence()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if held == 0 {
		t.Error("no budget ever kept a copy: the walk proves nothing")
	}
}

// A Bundle without a budget costs what it did: nothing is counted for one.
func TestABudgetThatIsNotStatedCostsNothing(t *testing.T) {
	in := benchInput(t, 500, true)
	without := testing.AllocsPerRun(5, func() { AdvanceRows(in) })
	s, spec := newRolloutStep(in, false), &atoll.RowSpec{}
	s.classifyClusters()
	if n := testing.AllocsPerRun(5, func() {
		s.tallyCopies()
		if s.keepsForBudget("c01", spec) || len(s.awaitedCopies()) > 0 || !s.takeCopy("c01", in.Rows["c01"]) {
			t.Fatal("a budget that is not stated keeps a copy")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a budget that is not stated", n)
	}
	stated := in
	stated.Budget = &v1alpha1.DisruptionBudget{MinAvailable: &intstr.IntOrString{IntVal: 1}}
	if with := testing.AllocsPerRun(5, func() { AdvanceRows(stated) }); with-without > 20 {
		t.Errorf("a budget costs %v allocations over 500 rows at rest, and %v without it", with, without)
	}
}

// A revision that only deletes objects is not kept by a budget, since the objects' owner deleted them. Any other change is.
func TestADeletionIsKeptByNoBudget(t *testing.T) {
	for free, want := range map[string]int{"r1": 3, "r0": 0} {
		s := newStage(t)
		playLines(s, "clusters a b c", "settle", "disruptions min 3", "revision r2", "free "+free, "step")
		changed := 0
		for _, row := range s.rows {
			if row.Spec.Revision == "r2" {
				changed++
			}
		}
		if changed != want {
			t.Errorf("the target only deletes from %s: %d rows change, want %d", free, changed, want)
		}
	}
}

// An orphaned copy runs on, and so does a Bundle's copy in a cluster that leaves the fleet with it.
func TestAReleasedCopyIsKeptByNoBudget(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a b c", "settle", "disruptions min 3", "removal Orphan", "taint a t NoExecute", "step")
	if row := s.rows["a"].Spec; row.Phase != atoll.RowRemoving || !row.Orphan {
		t.Errorf("the row is %+v", row)
	}
}

// The verdict that a copy leaves survives the reason by which a budget keeps it, also where the choice of clusters is stored by it alone.
func TestTheCauseOfALeavingCopyIsKept(t *testing.T) {
	s := newStage(t)
	s.placement.MaxClusters = 2
	playLines(s, "clusters a b c", "settle", "after 1h", "disruptions min 2")
	holders := slices.Sorted(maps.Keys(s.rows))
	holder := holders[0]
	playLines(s, "taint "+holder+" "+v1alpha1.TaintDrain+" NoExecute", "step", "report Ready *", "report Degraded "+holders[1], "step", "report Ready "+holder, "step")
	row := s.rows[holder].Spec
	if reason := atoll.ParseRowReason(row.Reason); row.Phase != atoll.RowLeaving || reason.Reason != atoll.ReasonDisruptionBudget {
		t.Fatalf("the row is %+v", row)
	}
	if v, _ := s.buildInput().Decision.FindVerdict(holder); v.Outcome != schedule.OutcomeLeaves || v.RowReason != atoll.ReasonEvicted || !v.LeavesDrained {
		t.Errorf("the verdict is %+v", v)
	}
	before := maps.Clone(s.rows)
	playLines(s, "disruptions none", "step")
	if is := s.rows[holder].Spec; is.Phase != atoll.RowRemoving || !strings.HasPrefix(is.Reason, string(atoll.ReasonEvicted)) {
		t.Errorf("without the budget the row is %+v, before %+v", is, before[holder].Spec)
	}
}
