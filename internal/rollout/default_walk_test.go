package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// stepWithinDefault makes a step, and checks the default bound against the rows before and after it.
func (w *rolloutWalk) stepWithinDefault(t *testing.T) {
	t.Helper()
	before, isBounded := maps.Clone(w.rows), len(w.rows) > v1alpha1.DefaultFreeClusters
	w.log = append(w.log, "step")
	w.advanceOnce()
	broken, unavailable, connected := 0, 0, 0
	for c, was := range before {
		row, was := w.withLink(c, w.rows[c]), w.withLink(c, was)
		moves := row.Spec.Revision != was.Spec.Revision && was.Spec.Phase == atoll.RowActive
		if moves && (!row.Online && isBounded || w.baseInput.Halt.Pause != nil) {
			t.Fatalf("%s changes, online %t, paused %t\n%s", c, row.Online, w.baseInput.Halt.Pause != nil, strings.Join(w.log, "\n"))
		}
		if was.Spec.Phase != atoll.RowActive || !was.Online && !w.isLostInChange(c, was) {
			continue
		}
		connected++
		switch {
		case moves && was.isReady():
			broken++
		case !was.isReady() && !(w.isWanted(was) && w.isExcused(was)):
			unavailable++
		}
	}
	if most := max(1, connected/4); broken > 0 && broken+unavailable > most && isBounded {
		t.Fatalf("%d healthy clusters change while %d of %d are unhealthy, want at most %d\n%s", broken, unavailable, connected, most, strings.Join(w.log, "\n"))
	}
}

// isExcused reports whether the cluster changed before the last resume, and since then reported no other state, or none.
func (w *rolloutWalk) isExcused(row Row) bool {
	resumed := w.baseInput.ResumedAt.Unix()
	since := row.Spec.Since
	if row.Status != nil {
		since = row.Status.Since
	}
	return !w.baseInput.ResumedAt.IsZero() && row.Spec.MovedAt < resumed && since <= resumed
}

// TestDefaultWalk checks the default bound over random reports, links and people: a change of what runs breaks at most a
// quarter of the clusters, first copies wait for nothing, and the change ends when all clusters are healthy.
func TestDefaultWalk(t *testing.T) {
	walks := 40
	if testing.Short() {
		walks = 15
	}
	for seed := range uint64(walks) {
		w := &rolloutWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 29))}
		for _, line := range []string{"unstated", fmt.Sprint("fleet ", 3+w.rand.IntN(18)), "settle", "after 1m", "revision r2"} {
			w.playLine(line)
		}
		for i := range 120 {
			if w.actRandomly(3 + i/10); w.rand.IntN(20) == 0 {
				w.playLine(fmt.Sprint("cluster d", i))
			}
			w.stepWithinDefault(t)
			for c := range w.clusters {
				if row := w.rows[c]; row.Spec.Phase != atoll.RowActive && w.baseInput.Halt.Pause == nil {
					t.Fatalf("seed %d: %s waits for its first copy\n%s", seed, c, strings.Join(w.log, "\n"))
				}
			}
		}
		w.playLine("after 1m")
		w.playLine("resume")
		for _, c := range slices.Sorted(maps.Keys(w.clusters)) {
			w.playLine("back " + c)
		}
		for range 40 {
			w.playLine("report Ready *")
			w.playLine("after 1m")
			w.stepWithinDefault(t)
		}
		for c, row := range w.rows {
			if row.Spec.Revision != w.baseInput.Revision || row.Spec.Phase != atoll.RowActive {
				t.Fatalf("seed %d: %s is %s at %s, want %s\n%s\n%s", seed, c, row.Spec.Phase, row.Spec.Revision, w.baseInput.Revision, strings.Join(w.log, "\n"), w.formatWaits())
			}
		}
	}
}
