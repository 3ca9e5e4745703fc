package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// rolloutWalk is a rollout on which clusters, links and people act at random. It counts from the rows alone.
type rolloutWalk struct {
	*scriptStage
	rand *rand.Rand
	log  []string
	// isFailed: a stage failed, and since then no person resumed, and the revision is the same.
	isFailed bool
}

func (w *rolloutWalk) playLine(line string) {
	w.log = append(w.log, line)
	words := strings.Fields(line)
	if words[0] == "resume" || words[0] == "revision" {
		w.isFailed = false
	}
	w.runCommand(words[0], words[1:])
}

func (w *rolloutWalk) randomCluster() string {
	return slices.Sorted(maps.Keys(w.clusters))[w.rand.IntN(len(w.clusters))]
}

// changingCluster returns the first cluster that changes, or any.
func (w *rolloutWalk) changingCluster() string {
	for _, c := range slices.Sorted(maps.Keys(w.rows)) {
		if row := w.withLink(c, w.rows[c]); row.Online && w.isWanted(row) && !row.isReady() && !row.isFailing() {
			return c
		}
	}
	return w.randomCluster()
}

// actRandomly lets a cluster, a link or a person do something. After the walk only clusters become healthy.
func (w *rolloutWalk) actRandomly(revision int) {
	switch w.rand.IntN(14) {
	case 0:
		w.playLine(fmt.Sprint("revision r", revision))
	case 1:
		w.playLine("away " + w.randomCluster())
	case 2, 3:
		w.playLine("back " + w.randomCluster())
	case 4:
		w.playLine("report Degraded " + w.randomCluster())
		if w.rand.IntN(3) == 0 { // what changes at a resume fails later
			w.playLine("resume")
			w.playLine("after 1m")
			w.playLine("report Degraded " + w.changingCluster())
		}
	case 5:
		w.playLine("report Progressing " + w.randomCluster())
	case 6:
		w.playLine(fmt.Sprintf("relabel %s ring=%d", w.randomCluster(), w.rand.IntN(3)))
	case 7:
		w.playLine("resume")
	case 8:
		w.playLine(fmt.Sprintf("after %dm", w.rand.IntN(8)))
	case 9:
		if w.baseInput.Pause == nil && w.rand.IntN(3) == 0 {
			w.playLine("pause alice later")
		}
	default:
		w.playLine("report Ready " + w.randomCluster())
	}
}

// stepAndCheck makes a step, and checks its bounds against the rows before and after it.
func (w *rolloutWalk) stepAndCheck(t *testing.T) {
	t.Helper()
	before, terms := maps.Clone(w.rows), CompileTerms(w.rollout)
	w.log = append(w.log, "step")
	w.advanceOnce()
	moved, changing, waiting, soaking, broken := map[int]int{}, map[int]int{}, map[int]bool{}, map[int]bool{}, 0
	unavailable, connected := 0, 0
	for c, row := range w.rows {
		stage, row, was := terms.StageOf(c, w.clusters[c].Labels), w.withLink(c, row), w.withLink(c, before[c])
		isMove := row.Spec.Revision != was.Spec.Revision || row.Spec.Phase == atoll.RowActive && was.Spec.Phase == atoll.RowPending
		if isMove && row.Spec.Phase == atoll.RowActive {
			moved[stage]++
			if !row.Online || w.baseInput.Pause != nil {
				t.Fatalf("%s changes, online %t, paused %t\n%s", c, row.Online, w.baseInput.Pause != nil, strings.Join(w.log, "\n"))
			}
			if was.Spec.Phase == atoll.RowPending || was.isReady() {
				broken++
			}
		}
		if w.isSoaking(row, stage) {
			soaking[stage] = true
		}
		if row.Online || w.isLostInChange(c, row) {
			connected++
			if was.Spec.Phase == atoll.RowActive && !was.isReady() {
				unavailable++
			}
			waiting[stage] = waiting[stage] || !w.isWanted(row)
			if w.isWanted(row) && !row.isReady() && !row.isFailing() {
				changing[stage]++
			}
		}
	}
	if w.isFailed && len(moved) > 0 {
		t.Fatalf("clusters change after a stage failed\n%s", strings.Join(w.log, "\n"))
	}
	w.isFailed = w.isFailed || w.stageWait.Reason == atoll.ReasonStageFailed
	if stage := w.findBrokenStage(terms); stage >= 0 && len(moved) > 0 {
		t.Fatalf("clusters change although stage %d failed after the last resume\n%s", stage, strings.Join(w.log, "\n"))
	}
	if broken > 0 && broken+unavailable > 3 {
		t.Fatalf("%d healthy clusters change while %d are unhealthy\n%s", broken, unavailable, strings.Join(w.log, "\n"))
	}
	for stage, n := range moved {
		if stage == 1 && changing[stage] > 2 {
			t.Fatalf("%d clusters of a stage change at one time\n%s", changing[stage], strings.Join(w.log, "\n"))
		}
		for earlier := range stage {
			if n > 0 && (waiting[earlier] || soaking[earlier] || changing[earlier] > 0) {
				t.Fatalf("stage %d changes before stage %d is done\n%s", stage, earlier, strings.Join(w.log, "\n"))
			}
		}
	}
}

// isWanted reports whether a row holds the latest revision.
func (w *rolloutWalk) isWanted(row Row) bool {
	return row.Spec.Revision == w.baseInput.Revision && row.Spec.Phase == atoll.RowActive
}

// isLostInChange reports whether the cluster was lost less than ten minutes ago, before it reported to be healthy at the latest
// revision.
func (w *rolloutWalk) isLostInChange(c string, row Row) bool {
	lost := max(w.lostAt[c].Unix(), row.Spec.MovedAt)
	return !row.Online && w.isWanted(row) && !row.reportsReady() && w.now.Unix() < lost+600
}

// isSoaking reports whether a cluster of the first stage, connected or not, has been healthy for less than its three minutes.
func (w *rolloutWalk) isSoaking(row Row, stage int) bool {
	return stage == 0 && w.isWanted(row) && row.reportsReady() && !row.isFailing() && max(row.Spec.MovedAt, row.Status.Since)+180 > w.now.Unix()
}

// findBrokenStage returns a stage in which more connected clusters than it may have reported a failure after the last resume;
// -1: none.
func (w *rolloutWalk) findBrokenStage(terms *Terms) int {
	failed := [3]int{}
	for c, row := range w.rows {
		st := row.Status
		if w.online[c] && w.isWanted(row) && st != nil && st.Generation == row.Spec.Generation && st.State == atoll.RowDegraded && st.Since > w.baseInput.ResumedAt.Unix() {
			failed[terms.StageOf(c, w.clusters[c].Labels)]++
		}
	}
	for stage, most := range [...]int{0, 1, 0} {
		if failed[stage] > most {
			return stage
		}
	}
	return -1
}

func (w *rolloutWalk) withLink(c string, row Row) Row {
	row.Online = w.online[c]
	return row
}

// TestRolloutWalk checks the bounds of rollouts over random reports, links, labels and people, and that a rollout ends
// when all clusters are healthy. A cluster that is lost in its change, or in minSuccessTime, lets no other change.
func TestRolloutWalk(t *testing.T) {
	walks := 100
	if testing.Short() {
		walks = 20
	}
	for seed := range uint64(walks) {
		w := &rolloutWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 17))}
		for _, line := range []string{"fleet 20", "unavailable 3", "stage a label:ring=1 success=3m", "stage b label:ring=2 concurrency=2 failures=1", "step"} {
			w.playLine(line)
		}
		for i := range 120 {
			w.actRandomly(2 + i/10)
			w.stepAndCheck(t)
		}
		w.playLine("after 1m")
		w.playLine("resume")
		w.recoverClusters(80, func() { w.stepAndCheck(t) })
		for _, c := range slices.Sorted(maps.Keys(w.rows)) {
			if row := w.rows[c].Spec; row.Revision != w.baseInput.Revision || row.Phase != atoll.RowActive {
				t.Fatalf("seed %d: %s is %s at %s, want %s\n%s\n%s%s", seed, c, row.Phase, row.Revision, w.baseInput.Revision, strings.Join(w.log, "\n"), w.formatStages(), w.formatWaits())
			}
		}
	}
}

// recoverClusters connects all clusters, and lets all report that they are ready, for so many minutes of a step each.
func (w *rolloutWalk) recoverClusters(minutes int, step func()) {
	for c := range w.clusters {
		w.playLine("back " + c)
	}
	for range minutes {
		for c, row := range w.rows {
			if row = w.withLink(c, row); !row.isReady() {
				w.playLine("report Ready " + c)
			}
		}
		w.playLine("after 1m")
		step()
	}
}

// TestLateFailuresHoldNoCluster checks that a rollout that ended never holds a cluster that joins, whatever fails later, and
// that a failure while clusters wait holds the next stage.
func TestLateFailuresHoldNoCluster(t *testing.T) {
	for seed := range uint64(200) {
		w := &rolloutWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 23))}
		for _, line := range []string{"fleet 20", "stage a label:ring=1", "stage b label:ring=2"} {
			w.playLine(line)
		}
		for c := range w.clusters {
			w.playLine(fmt.Sprintf("relabel %s ring=%d", c, w.rand.IntN(3)))
		}
		w.playLine("settle")
		for range w.rand.IntN(3) {
			w.playLine("after 1m")
			w.playLine(fmt.Sprint("revision r", 2+w.rand.IntN(5)))
			w.playLine("away " + w.randomCluster()) // it keeps its revision
			w.playLine("settle")
		}
		w.playLine(fmt.Sprintf("after %dm", 1+w.rand.IntN(9)))
		for range 1 + w.rand.IntN(20) {
			w.playLine("report Degraded " + w.randomCluster())
			if w.rand.IntN(2) == 0 {
				w.playLine("step")
			}
		}
		w.playLine("cluster joiner ring=" + fmt.Sprint(w.rand.IntN(3)))
		if w.playLine("step"); w.rows["joiner"].Spec.Phase != atoll.RowActive {
			t.Fatalf("seed %d: a failure of an ended rollout holds a cluster that joins:\n%s\n%s", seed, strings.Join(w.log, "\n"), w.formatWaits())
		}
		w.playLine("report Ready *")
		w.playLine("revision next")
		w.playLine("step")
		w.expectFailureToHold(t)
	}
}

// expectFailureToHold lets clusters of the stages that have begun fail at random, and checks that no other stage begins.
func (w *rolloutWalk) expectFailureToHold(t *testing.T) {
	begun, failed := map[string]bool{}, false
	for c, row := range w.rows {
		begun[c] = row.Spec.Revision == "next"
	}
	if len(begun) == 0 || !slices.Contains(slices.Collect(maps.Values(begun)), false) {
		return
	}
	for _, c := range slices.Sorted(maps.Keys(begun)) {
		if state := "Ready"; begun[c] {
			if !failed || w.rand.IntN(3) == 0 {
				state, failed = "Degraded", true
			}
			w.playLine("report " + state + " " + c)
		}
	}
	for range 3 {
		w.playLine("cluster late" + fmt.Sprint(w.rand.IntN(3)))
		w.playLine("after 1m")
		w.playLine("step")
	}
	for c, row := range w.rows {
		if row.Spec.Phase == atoll.RowActive && row.Spec.Revision == "next" && !begun[c] && w.clusters[c].Labels["ring"] != "1" {
			t.Fatalf("%s changes although a stage failed:\n%s", c, strings.Join(w.log, "\n"))
		}
	}
}

// benchInput is a Bundle of so many rows that wait for their turn behind a first stage.
func benchInput(tb testing.TB, rows int, terms bool) Input {
	s := newStage(tb)
	s.runCommand("fleet", []string{fmt.Sprint(rows)})
	for c := range s.clusters {
		s.rows[c] = Row{Spec: atoll.RowSpec{UID: "uid-" + c, Generation: 1, Revision: "r1", Phase: atoll.RowActive, Since: 1}}
	}
	s.reportState(atoll.RowReady, []string{"*"})
	if terms {
		s.runRolloutCommand("stage", []string{"canary", "c01"})
		s.baseInput.Revision = "r2"
		s.advanceOnce()
	} else {
		s.baseInput.Revision = "r1"
	}
	in := s.buildInput()
	in.ExplainWaits, in.NewClusters = false, nil
	return in
}

// BenchmarkStepAtRest is a step over rows that do not change: all of them wait, or nothing bounds them.
func BenchmarkStepAtRest(b *testing.B) {
	for name, terms := range map[string]bool{"stages": true, "plain": false} {
		b.Run(name, func(b *testing.B) {
			in := benchInput(b, 10_000, terms)
			b.ReportAllocs()
			for b.Loop() {
				if out := AdvanceRows(in); len(out.Changes) > 0 {
					b.Fatalf("%d rows change", len(out.Changes))
				}
			}
		})
	}
}

// BenchmarkPlanTurns is the part of such a step that is about turns.
func BenchmarkPlanTurns(b *testing.B) {
	in := benchInput(b, 10_000, true)
	b.ReportAllocs()
	for b.Loop() {
		s := newRolloutStep(in, false)
		s.classifyClusters()
		b.StartTimer()
		if s.planTurns(); len(s.turns.allowed) > 0 {
			b.Fatal("rows change")
		}
	}
}
