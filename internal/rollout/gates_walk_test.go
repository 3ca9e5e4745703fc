package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// gateWalk is a rollout with gates on which people, clusters, clocks and the hub act at random. It judges the gates by its
// own record of what happened, in true time.
type gateWalk struct {
	*rolloutWalk
	// doneSince is when the canary became healthy at the revision without a break; -1: it is not. While it is disconnected
	// it breaks nothing, once it was healthy or is lost for ten minutes.
	doneSince time.Duration
	// approvedBy has the users that approved the revision, and when.
	approvedBy map[string]time.Duration
	hadOpened  bool
	// skew of the clock of the hub that leads, in minutes.
	skew int
}

func (w *gateWalk) randomMember() string { return fmt.Sprintf("c%02d", 1+w.rand.IntN(6)) }

func (w *gateWalk) actRandomly(revision *int) {
	switch w.rand.IntN(12) {
	case 0:
		if w.rand.IntN(4) == 0 {
			*revision++
			w.playLine(fmt.Sprint("revision r", *revision))
			w.approvedBy, w.doneSince, w.hadOpened = map[string]time.Duration{}, -1, false
		}
	case 1, 2:
		user := fmt.Sprint("user", w.rand.IntN(3))
		w.playLine("approve next " + user)
		w.approvedBy[user] = w.gates.trueTime
	case 3:
		w.playLine("approve next mallory r0")
	case 4:
		w.playLine("restart")
		skew := w.rand.IntN(11) // the clocks of all hubs are within clockMargin
		w.playLine(fmt.Sprintf("clock ahead %dm", skew))
		w.playLine(fmt.Sprintf("clock back %dm", w.skew))
		w.skew = skew
	case 5:
		w.playLine("report Progressing " + w.randomMember())
	case 6:
		if w.online["c01"] && w.rand.IntN(2) == 0 { // no step sees that the canary breaks
			w.playLine("report Progressing c01")
			w.playLine("after 1m")
			w.playLine("report Ready c01")
			w.doneSince = -1
		}
		w.playLine("resume")
	case 7:
		w.playLine("away " + w.randomMember())
	case 8:
		w.playLine("back " + w.randomMember())
	default:
		w.playLine("report Ready " + w.randomMember())
		w.playLine(fmt.Sprintf("after %dm", w.rand.IntN(9)))
	}
}

// stepAndJudge makes a step, and checks that the second stage begins only when its gates held together.
func (w *gateWalk) stepAndJudge(t *testing.T) {
	t.Helper()
	before := maps.Clone(w.rows)
	canary := w.withLink("c01", w.rows["c01"])
	isDone := !canary.Online && !w.isLostInChange("c01", canary) || canary.Spec.Revision == w.baseInput.Revision && canary.Spec.Phase == atoll.RowActive && canary.isReady()
	switch {
	case !isDone:
		w.doneSince = -1
	case w.doneSince < 0:
		w.doneSince = w.gates.trueTime
	}
	w.playLine("step")
	for c, row := range w.rows {
		if c == "c01" || row.Spec.Phase != atoll.RowActive || row.Spec.Revision == before[c].Spec.Revision && before[c].Spec.Phase == atoll.RowActive || w.hadOpened {
			continue
		}
		waited := w.gates.trueTime - w.doneSince
		if w.doneSince < 0 || waited < 20*time.Minute || len(w.approvedBy) < 2 {
			t.Fatalf("%s changes at %s: the canary is done since %s, approved by %v\n%s\n%s", c, w.gates.trueTime, w.doneSince, w.approvedBy, strings.Join(w.log, "\n"), w.formatGates())
		}
		w.hadOpened = true
	}
}

// TestGateWalk checks that no gate opens by a clock, a restart, an approval of another revision or of one user twice, or
// by absent data, that a break of an earlier stage begins a wait again, that verdicts are written once each, and that a rollout ends when all gates hold.
func TestGateWalk(t *testing.T) {
	opened := 0
	for seed := range uint64(40) {
		w := &gateWalk{rolloutWalk: &rolloutWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 29))}, doneSince: -1, approvedBy: map[string]time.Duration{}}
		for _, line := range []string{"fleet 6", "stage canary c01", "stage next c02,c03 wait=20m approvers=2 cel=earlier.updated==1 failures=9", "step"} {
			w.playLine(line)
		}
		revision := 1
		for range 150 {
			w.actRandomly(&revision)
			w.stepAndJudge(t)
		}
		if w.hadOpened {
			opened++
		}
		w.playLine("resume")
		for c := range w.clusters {
			w.playLine("back " + c)
		}
		writes := 0
		for round := range 60 {
			if round%10 == 0 {
				for _, user := range []string{"user1", "user2"} {
					w.playLine("approve next " + user)
					w.approvedBy[user] = w.gates.trueTime
				}
			}
			w.playLine("report Ready *")
			w.playLine("after 3m")
			w.stepAndJudge(t)
			writes = w.gates.writes
		}
		w.playLine("step")
		for c, row := range w.rows {
			if row.Spec.Revision != w.baseInput.Revision || row.Spec.Phase != atoll.RowActive || w.gates.writes != writes {
				t.Fatalf("seed %d: %s is %s at %s, %d writes of %d\n%s\n%s%s", seed, c, row.Spec.Phase, row.Spec.Revision, writes, w.gates.writes, strings.Join(w.log, "\n"), w.formatWaits(), w.formatGates())
			}
		}
	}
	if opened < 5 {
		t.Errorf("the gates opened in %d walks: too few to prove anything", opened)
	}
}
