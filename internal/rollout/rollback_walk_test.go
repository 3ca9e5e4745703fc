package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// rollbackWalk is a rollout with rollbacks, in which clusters, links, hubs and people act at random.
type rollbackWalk struct {
	*rolloutWalk
	// earlier has the revision that each row held when the present revision came.
	earlier map[string]string
	begun   int
}

func (w *rollbackWalk) actRandomly(revision *int) {
	switch w.rand.IntN(13) {
	case 0:
		*revision++
		w.earlier = map[string]string{}
		for c, row := range w.rows {
			w.earlier[c] = row.Spec.Revision
		}
		w.playLine(fmt.Sprint("revision r", *revision))
	case 1:
		w.playLine("away " + w.randomCluster())
	case 2, 3:
		w.playLine("back " + w.randomCluster())
	case 4:
		w.playLine("report Degraded " + w.changingCluster())
	case 5:
		w.playLine("report Progressing " + w.randomCluster())
	case 6:
		w.playLine(fmt.Sprintf("uncertain %s %dm", w.randomCluster(), w.rand.IntN(4)))
	case 7:
		if w.rand.IntN(4) == 0 {
			w.playLine([]string{"resume", "pause alice later"}[w.rand.IntN(2)])
		}
		w.playLine("restart")
	case 8:
		w.playLine(fmt.Sprintf("after %dm", w.rand.IntN(8)))
	default:
		w.playLine("report Ready " + w.randomCluster())
	}
}

// stepAndCheck makes a step. It checks that rows return only to what they held, by a decision that was stored before, in no pause, within
// maxConcurrency and maxUnavailable, and no stage before the later ones are done.
func (w *rollbackWalk) stepAndCheck(t *testing.T) {
	t.Helper()
	before, stored, terms := maps.Clone(w.rows), w.rollback, CompileTerms(w.rollout)
	w.playLine("step")
	returned, healthy, unavailable, changing := map[int]int{}, 0, 0, map[int]int{}
	for c, is := range w.rows {
		was, stage := w.withLink(c, before[c]), terms.StageOf(c, w.clusters[c].Labels, 0)
		is = w.withLink(c, is)
		if is.Online && was.Spec.Phase == atoll.RowActive && !was.isReady() {
			unavailable++
		}
		if is.Online && is.Spec.Phase == atoll.RowActive && !is.reportsReady() && !terms.judgeDeadline(is, w.now).isFailing() && (w.isWanted(is) || is.Spec.PreviousRevision == w.baseInput.Revision) {
			changing[stage]++
		}
		if was.Spec.Phase != atoll.RowActive || is.Spec.Revision == was.Spec.Revision {
			continue
		}
		isReturn := was.Spec.Revision == w.baseInput.Revision
		switch {
		case isReturn && (stored == nil || stored.Revision != w.baseInput.Revision || w.baseInput.Halt.Pause != nil || !is.Online):
			w.fail(t, c+" returns without a stored decision, in a pause, or while it is disconnected")
		case isReturn && is.Spec.Revision != was.Spec.PreviousRevision:
			w.fail(t, c+" returns to "+is.Spec.Revision+", and held "+was.Spec.PreviousRevision)
		case !isReturn && w.rollback != nil && w.rollback.Revision == w.baseInput.Revision:
			w.fail(t, c+" changes in a rollback")
		}
		if isReturn {
			returned[stage]++
		}
		if was.isReady() {
			healthy++
		}
	}
	if healthy > 0 && healthy+unavailable > 3 {
		w.fail(t, fmt.Sprintf("%d healthy clusters change while %d are unhealthy", healthy, unavailable))
	}
	for stage := range returned {
		if stage == 1 && changing[stage] > 2 {
			w.fail(t, fmt.Sprintf("%d clusters of a stage change at one time", changing[stage]))
		}
		for later := stage + 1; later < 3; later++ {
			if changing[later] > 0 {
				w.fail(t, fmt.Sprintf("stage %d returns before stage %d is done", stage, later))
			}
		}
	}
	if w.rollback != nil && stored == nil {
		w.begun++
	}
	w.checkReasons(t)
}

// checkReasons checks that each row that is not healthy at the latest revision has a reason.
func (w *rollbackWalk) checkReasons(t *testing.T) {
	t.Helper()
	waits := map[string]bool{}
	for _, x := range AdvanceRows(w.buildInput()).Waits {
		waits[x.Cluster] = x.Reason != "" && x.For != ""
	}
	for c, row := range w.rows {
		if done := w.isWanted(row) && row.reportsReady(); !done && !waits[c] {
			w.fail(t, c+" waits for no reason")
		}
	}
}

func (w *rollbackWalk) fail(t *testing.T, why string) {
	t.Helper()
	t.Fatalf("%s\n%s\n%s%s%s", why, strings.Join(w.log, "\n"), w.formatRows(), w.formatStages(), w.formatRollback())
}

// TestRollbackWalk checks the bounds of rollbacks over random failures, deadlines, links, hubs and people, and that a rollback ends
// when all clusters are healthy. Then every row that had changed holds what it held before.
func TestRollbackWalk(t *testing.T) {
	walks, ended, begun := uint64(60), 0, 0
	if testing.Short() {
		walks = 15
	}
	for seed := range walks {
		w := &rollbackWalk{rolloutWalk: &rolloutWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 31))}}
		for _, line := range []string{"fleet 12", "unavailable 3", "stage a c01,c02 deadline=6m onFailure=Rollback", "stage b c03,c04,c05,c06,c07 concurrency=2 failures=1 onFailure=Rollback",
			"settle"} {
			w.playLine(line)
		}
		revision := 1
		for range 100 {
			w.actRandomly(&revision)
			w.stepAndCheck(t)
		}
		w.playLine("resume")
		w.recoverClusters(60, func() { w.stepAndCheck(t) })
		begun += w.begun
		isRolledBack := w.rollback != nil && w.rollback.Revision == w.baseInput.Revision
		if isRolledBack {
			ended++
		}
		for c, row := range w.rows {
			if isBack := row.Spec.Revision != w.baseInput.Revision; isRolledBack != isBack && (!isRolledBack || row.Spec.PreviousRevision != "") || isRolledBack && w.rollback.State != v1alpha1.RolledBack {
				w.fail(t, fmt.Sprintf("seed %d: %s is at %s in the end", seed, c, row.Spec.Revision))
			}
		}
	}
	if begun < 10 || ended < 3 {
		t.Errorf("%d rollbacks began, and %d walks ended with one: too few to prove anything", begun, ended)
	}
}
