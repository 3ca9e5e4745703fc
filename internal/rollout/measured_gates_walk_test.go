package rollout

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// A gate never passes before three measurements in a row succeeded, and not after it failed, unless a person
// resumed.
func TestMeasuredGateWalk(t *testing.T) {
	opened, failed := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 31))
		s, log := newStage(t), []string{}
		play := func(line string) {
			log = append(log, line)
			words := strings.Fields(line)
			s.runCommand(words[0], words[1:])
		}
		for _, line := range []string{"fleet 3", "settle", "stage canary c01", "stage next c02 prometheus=3,2", "revision r2", "step", "report Ready c01", "step"} {
			play(line)
		}
		row, failures, isFailed, last := 0, 0, false, s.now
		reset := func() { row, failures, isFailed = 0, 0, false }
		isFresh := func() bool { return s.now.Sub(last) < 3*time.Minute }
		for range 40 {
			isMeasured := len(ListMeasuredGates(s.rollout, s.gates.stored, "r2")) > 0
			switch kind := []string{"success", "success", "success", "success", "failure", "nodata", "restart", "after", "resume", "step"}[r.IntN(10)]; {
			case kind == "restart":
				play(kind)
				if row = 0; !isFailed {
					failures = 0
				}
			case kind == "resume" && isFailed:
				play("after 1m")
				play(kind)
				play("step")
				reset()
			case kind == "after":
				play("after 5m")
			case kind == "step":
				play(kind)
			case !isMeasured || kind == "resume":
				continue
			default:
				play("after 1m")
				if !isFresh() {
					row = 0
				}
				play("measure errors " + kind + " 1")
				last = s.now
				if row++; kind != "success" {
					row = 0
				}
				if kind == "failure" {
					failures++
				}
				if isFailed = failures > 2; isFailed {
					play("step")
				}
			}
			if is := s.gates.stored; len(is) > 0 && is[0].State == v1alpha1.GatePassed {
				if opened++; row < 3 || isFailed || !isFresh() {
					t.Fatalf("seed %d: the gate passes after %d successes in a row, failed: %t\n%s\n%s", seed, row, isFailed, strings.Join(log, "\n"), s.formatGates())
				}
				break
			}
			if s.rows["c02"].Spec.Revision == "r2" {
				t.Fatalf("seed %d: the stage begins without its gate\n%s", seed, strings.Join(log, "\n"))
			}
			if got := fmt.Sprint(s.gates.stored); isFailed && s.gates.stored[0].State != v1alpha1.GateFailed {
				t.Fatalf("seed %d: the gate is not failed: %s\n%s", seed, got, strings.Join(log, "\n"))
			}
			if isFailed {
				failed++
			}
		}
	}
	if opened < 50 || failed < 100 {
		t.Errorf("%d gates passed, and %d steps were after a failure: the walk shows little", opened, failed)
	}
}
