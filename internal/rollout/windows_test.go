package rollout

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// isOpenByClock reports whether a cluster may change in a walk: by night between 22 and 2 o'clock where it is in production, and
// never from 23:00 to 23:30.
func isOpenByClock(at time.Time, env string) bool {
	hour, minute := at.UTC().Hour(), at.UTC().Minute()
	return (env != "prod" || hour >= 22 || hour < 2) && (hour != 23 || minute >= 30)
}

// By any events of clusters, links, hubs and clocks, a row takes another revision or its first copy only inside its windows, and by the end each
// row has the latest revision without any event but the time that a step requests.
func TestWindowWalk(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walkWindows(t, rand.New(rand.NewPCG(seed, 21))) })
	}
}

func walkWindows(t *testing.T, r *rand.Rand) {
	s := newStage(t)
	envs := map[string]string{}
	log := []string{}
	play := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		log = append(log, line)
		words := strings.Fields(line)
		s.runCommand(words[0], words[1:])
	}
	play("today 2026-12-01T%02d:00:00Z", r.IntN(24))
	for i := range 6 {
		name := fmt.Sprint("c", i)
		envs[name] = []string{"prod", "test"}[r.IntN(2)]
		play("cluster %s env=%s", name, envs[name])
	}
	play("window Allow 0_22_*_*_* 4h env=prod")
	play("window Deny 0_23_*_*_* 30m")
	if r.IntN(2) == 0 {
		play("unavailable %d", 1+r.IntN(3))
	}
	step := func() {
		before := map[string]atoll.RowSpec{}
		for c, row := range s.rows {
			before[c] = row.Spec
		}
		log = append(log, "step")
		s.advanceOnce()
		for c, row := range s.rows {
			was := before[c]
			starts := row.Spec.Phase == atoll.RowActive && (row.Spec.Revision != was.Revision || was.Phase == atoll.RowPending || was.UID == "")
			if starts && !isOpenByClock(s.now, envs[c]) {
				t.Fatalf("%s starts a change at %s\n%s", c, s.now, strings.Join(log, "\n"))
			}
		}
	}
	for i := range 60 {
		c := fmt.Sprint("c", r.IntN(6))
		switch r.IntN(9) {
		case 0:
			play("revision r%d", i+2)
		case 1:
			play("away %s", c)
		case 2:
			play("back %s", c)
		case 3:
			envs[c] = []string{"prod", "test"}[r.IntN(2)]
			play("relabel %s env=%s", c, envs[c])
		case 4:
			play("clock %s 10m", []string{"ahead", "back"}[r.IntN(2)])
		case 5:
			play("restart")
		case 6:
			play("after %dm", r.IntN(600))
		default:
			play("report %s %s", []string{"Ready", "Ready", "Progressing"}[r.IntN(3)], c)
		}
		step()
	}
	for c := range envs {
		play("back %s", c)
	}
	for range 40 { // only time passes now, by what steps request, and clusters become healthy
		play("report Ready *")
		step()
		if wait := s.requeueAt.Sub(s.now); wait > 0 {
			play("after %s", wait)
		}
	}
	for c, row := range s.rows {
		if row.Spec.Revision != s.baseInput.Revision || row.Spec.Phase != atoll.RowActive {
			t.Fatalf("%s is %s at %s in the end, want %s\n%s", c, row.Spec.Phase, row.Spec.Revision, s.baseInput.Revision, strings.Join(log, "\n"))
		}
	}
}

// Windows cost rows at rest no memory.
func TestWindowsAllocateNothingForRowsAtRest(t *testing.T) {
	allocations := func(windows bool) float64 {
		s := newStage(t)
		s.runCommand("today", []string{"2026-12-01T12:00:00Z"})
		for i := range 10_000 {
			s.joinCluster(fmt.Sprintf("cluster-%05d", i), []string{"env=prod"})
		}
		s.runCommand("unavailable", []string{"1"})
		s.runCommand("all-at-once", nil)
		s.runCommand("step", nil)
		s.runCommand("report", []string{"Ready", "*"})
		s.runCommand("unavailable", []string{"1"})
		if windows {
			s.runCommand("window", []string{"Allow", "0_22_*_*_*", "4h", "env=prod"})
		}
		in := s.buildInput()
		in.ExplainWaits = false
		return testing.AllocsPerRun(3, func() { AdvanceRows(in) })
	}
	without, with := allocations(false), allocations(true)
	t.Logf("%v allocations without windows, %v with them", without, with)
	if with > without+20 {
		t.Errorf("%v allocations with windows, %v without", with, without)
	}
}

// Windows alone keep the default bound, also for a resume. Stages or a stated bound take its place.
func TestTheBoundOfWindows(t *testing.T) {
	windows := []v1alpha1.ChangeWindow{{Type: v1alpha1.ChangeWindowAllow, Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	half := intstr.FromString("50%")
	for name, c := range map[string]struct {
		stated    v1alpha1.Rollout
		few, many int // clusters that may be unhealthy, of 4 and of 8
		isDefault bool
	}{
		"windows alone":   {v1alpha1.Rollout{Windows: windows}, noBound, 2, true},
		"a stated bound":  {v1alpha1.Rollout{Windows: windows, MaxUnavailable: &half}, 2, 4, false},
		"stages":          {v1alpha1.Rollout{Windows: windows, Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary"}}}, noBound, noBound, false},
		"type: All alone": {v1alpha1.Rollout{Type: v1alpha1.RolloutAll}, noBound, noBound, false},
	} {
		terms := CompileTerms(&c.stated)
		if few, many := terms.ForClusters(4).unavailableOf(4), terms.ForClusters(8).unavailableOf(8); few != c.few || many != c.many || terms.HasDefaultBound() != c.isDefault {
			t.Errorf("%s: %d of 4, %d of 8, by default: %t", name, few, many, terms.HasDefaultBound())
		}
		if has := len(c.stated.Windows) > 0; terms.ForClusters(4).HasWindows() != has || terms.ForClusters(8).HasWindows() != has {
			t.Errorf("%s: few clusters have windows: %t", name, terms.ForClusters(4).HasWindows())
		}
	}
}

// No window is looked at again while a person or a gate holds the rows.
func TestWaitsThatFollowWindows(t *testing.T) {
	for _, c := range []struct {
		wait StageWait
		want bool
	}{
		{StageWait{Reason: atoll.ReasonOutsideWindow}, true},
		{StageWait{Reason: atoll.ReasonTooManyUnhealthy}, true},
		{StageWait{Reason: atoll.ReasonWaitsForApproval, gate: &gate{}}, false},
		{StageWait{Reason: atoll.ReasonRolledBack, rollback: &v1alpha1.RollbackStatus{}}, false},
		{StageWait{Reason: atoll.ReasonChangesFrozen}, false},
		{StageWait{Reason: atoll.ReasonStageFailed}, false},
		{StageWait{}, false},
	} {
		if got := c.wait.FollowsWindows(); got != c.want {
			t.Errorf("%q follows windows: %t", c.wait.Reason, got)
		}
	}
}
