package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
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
		if w.baseInput.Halt.Pause == nil && w.rand.IntN(3) == 0 {
			w.playLine("pause alice later")
		}
	default:
		w.playLine("report Ready " + w.randomCluster())
	}
}

// stepAndCheck makes a step, and checks its bounds against the rows before and after it.
func (w *rolloutWalk) stepAndCheck(t *testing.T) {
	t.Helper()
	before, terms := maps.Clone(w.rows), w.compileTerms()
	w.log = append(w.log, "step")
	w.advanceOnce()
	moved, changing, waiting, soaking, broken := map[int]int{}, map[int]int{}, map[int]bool{}, map[int]bool{}, 0
	unavailable, connected := 0, 0
	for c, row := range w.rows {
		stage, row, was := terms.StageOf(c, w.clusters[c].Labels, w.clusters[c].CreatedAt), w.withLink(c, row), w.withLink(c, before[c])
		isMove := row.Spec.Revision != was.Spec.Revision || row.Spec.Phase == atoll.RowActive && was.Spec.Phase == atoll.RowPending
		if isMove && row.Spec.Phase == atoll.RowActive {
			moved[stage]++
			if !row.Online || w.baseInput.Halt.Pause != nil {
				t.Fatalf("%s changes, online %t, paused %t\n%s", c, row.Online, w.baseInput.Halt.Pause != nil, strings.Join(w.log, "\n"))
			}
			if was.Spec.Phase == atoll.RowPending || was.isReady() {
				broken++
			}
		}
		if w.isSoaking(row, terms.successTimeOf(stage)) {
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
		if most := terms.stages[stage].MaxConcurrency; most != nil && changing[stage] > most.IntValue() {
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

// isSoaking reports whether a cluster, connected or not, has been healthy for less than the time that its stage states.
func (w *rolloutWalk) isSoaking(row Row, success time.Duration) bool {
	return w.isWanted(row) && row.reportsReady() && !row.isFailing() && max(row.Spec.MovedAt, row.Status.Since)+int64(success.Seconds()) > w.now.Unix()
}

// findBrokenStage returns a stage in which more connected clusters than it may have reported a failure after the last resume;
// -1: none.
func (w *rolloutWalk) findBrokenStage(terms *Terms) int {
	failed := map[int]int{}
	for c, row := range w.rows {
		st := row.Status
		if w.online[c] && w.isWanted(row) && st != nil && st.Generation == row.Spec.Generation && st.State == atoll.RowDegraded && st.Since > w.baseInput.ResumedAt.Unix() {
			failed[terms.StageOf(c, w.clusters[c].Labels, w.clusters[c].CreatedAt)]++
		}
	}
	for stage := range terms.CountStages() {
		most := 0
		if stated := terms.stages[stage].MaxFailures; stated != nil {
			most = stated.IntValue()
		}
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

// autoWalk is a rollout in automatic stages, which clusters join too. It counts the clusters of stages by its own record.
type autoWalk struct {
	*rolloutWalk
	joined int
}

// stepAndCheckCut makes a step, and checks that nothing moves before the division of the revision is stored, that it is made once for
// each revision and has the stated sizes, and that each cluster is in one stage.
func (w *autoWalk) stepAndCheckCut(t *testing.T) {
	t.Helper()
	was, before := w.cut, maps.Clone(w.rows)
	w.stepAndCheck(t)
	isCut := was != nil && was.Revision == w.baseInput.Revision
	for c, row := range w.rows {
		if old := before[c].Spec; !isCut && row.Spec.Phase == atoll.RowActive && (row.Spec.Revision != old.Revision || old.Phase != atoll.RowActive) {
			t.Fatalf("%s changes before its stages are stored\n%s", c, strings.Join(w.log, "\n"))
		}
	}
	if w.cut == was {
		return
	}
	if isCut && !w.isCrowded(was) {
		t.Fatalf("the stages of %s are divided again\n%s", w.baseInput.Revision, strings.Join(w.log, "\n"))
	}
	terms, connected, of := w.compileTerms(), 0, map[int]int{}
	for c, is := range w.online {
		if is {
			of[terms.StageOf(c, nil, w.clusters[c].CreatedAt)]++
			connected++
		}
	}
	tenth, half := (connected+9)/10, (connected+1)/2
	want := map[int]int{0: min(1, connected), 1: max(1, tenth) - 1, 2: half - max(1, tenth), 3: connected - half}
	for stage, n := range want {
		if of[stage] != max(0, n) {
			t.Fatalf("%d of %d clusters are in stage %d, want %d\n%s", of[stage], connected, stage, n, strings.Join(w.log, "\n"))
		}
	}
}

// isCrowded reports whether a stage has more clusters than its size by a division.
func (w *autoWalk) isCrowded(cut *v1alpha1.StageCut) bool {
	terms, of := CompileTerms(w.rollout).WithStageCut("ns", "bundle", cut), [4]int{}
	for c := range w.clusters {
		of[terms.StageOf(c, nil, w.clusters[c].CreatedAt)]++
	}
	all := len(w.clusters)
	return of[0] > 1 || of[0]+of[1] > max(1, (all+9)/10) || of[0]+of[1]+of[2] > (all+1)/2
}

// TestAutoStagesWalk checks the bounds of automatic stages over random reports, links, people and clusters that join. Each step
// compiles its terms from what is stored, as a hub does that restarts.
func TestAutoStagesWalk(t *testing.T) {
	walks := 60
	if testing.Short() {
		walks = 12
	}
	cuts := 0
	for seed := range uint64(walks) {
		w := &autoWalk{rolloutWalk: &rolloutWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 31))}}
		for _, line := range []string{"fleet 20", "unavailable 3", "auto 1,10%,50% concurrency=2 failures=1 success=3m"} {
			w.playLine(line)
		}
		w.stepAndCheckCut(t)
		for i := range 120 {
			if w.actRandomly(2 + i/10); w.rand.IntN(12) == 0 {
				w.joined++
				w.playLine(fmt.Sprint("cluster joined", w.joined))
			}
			was := w.cut
			if w.stepAndCheckCut(t); w.cut != was {
				cuts++
			}
		}
		w.playLine("after 1m")
		w.playLine("resume")
		for c := range w.clusters {
			w.playLine("back " + c)
		}
		for range 120 {
			for c, row := range w.rows {
				if row = w.withLink(c, row); !row.isReady() {
					w.playLine("report Ready " + c)
				}
			}
			w.playLine("after 1m")
			w.stepAndCheckCut(t)
		}
		for _, c := range slices.Sorted(maps.Keys(w.rows)) {
			if row := w.rows[c].Spec; row.Revision != w.baseInput.Revision || row.Phase != atoll.RowActive {
				t.Fatalf("seed %d: %s is %s at %s, want %s\n%s\n%s%s", seed, c, row.Phase, row.Revision, w.baseInput.Revision, strings.Join(w.log, "\n"), w.formatStages(), w.formatWaits())
			}
		}
	}
	if cuts < walks {
		t.Errorf("%d cuts in %d walks: too few to prove anything", cuts, walks)
	}
}

// benchRow is a row at revision r1.
func benchRow(c string) Row {
	return Row{Spec: atoll.RowSpec{UID: "uid-" + c, Generation: 1, Revision: "r1", Phase: atoll.RowActive, Since: 1}}
}

// benchInput is a Bundle of so many rows that wait for their turn behind a first stage.
func benchInput(tb testing.TB, rows int, terms bool) Input {
	s := newStage(tb)
	s.runCommand("fleet", []string{fmt.Sprint(rows)})
	for c := range s.clusters {
		s.rows[c] = benchRow(c)
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
