package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// setSuspension suspends scheduling, or dispatching to all clusters or to some, or ends the suspension.
func (s *scriptStage) setSuspension(cmd string, args []string) {
	switch {
	case cmd == "end-suspension":
		s.baseInput.Halt.Suspension = nil
	case args[0] == "scheduling":
		s.baseInput.Halt.Suspension = &v1alpha1.Suspension{Scheduling: true}
	case args[0] == "all":
		s.baseInput.Halt.Suspension = &v1alpha1.Suspension{Dispatching: true}
	default:
		s.baseInput.Halt.Suspension = &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: args}}
	}
}

// checkSuspension checks that nothing is dispatched to a suspended cluster but the removal of a copy.
func checkSuspension(t testing.TB, in Input, out Output) {
	t.Helper()
	for c, spec := range out.Changes {
		old, had := in.Rows[c]
		suspended := in.Halt.Suspension.SuspendsDispatching() || in.Halt.Suspension.SuspendsByName(c)
		if spec == nil || in.Deleting || !suspended {
			continue
		}
		was, runs := old.Spec, had && old.Spec.UID == spec.UID && old.Spec.Phase != atoll.RowRemoving && old.Spec.Phase != atoll.RowPending
		switch {
		case !runs && spec.Phase == atoll.RowActive:
			t.Fatalf("%s is suspended and gets a copy: %+v", c, *spec)
		case runs && (was.Revision != spec.Revision || was.Variant != spec.Variant || !maps.Equal(was.Assigned, spec.Assigned) || !maps.Equal(was.ExcludedPending, spec.ExcludedPending) || !slices.Equal(was.Absent, spec.Absent)):
			t.Fatalf("%s is suspended and changes: %+v to %+v", c, was, *spec)
		}
	}
}

// The words of a suspension name the field and the policy. It comes before a freeze, which keeps its end.
func TestWordsOfASuspension(t *testing.T) {
	spec := v1alpha1.BundleSpec{Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "web"}, Suspension: &v1alpha1.Suspension{Dispatching: true}, Pause: &v1alpha1.RolloutPause{By: "alice"}}
	now := newStage(t).now
	if h := NewHalt(&spec, nil, now); h.Reason() != atoll.ReasonDispatchingSuspended || !h.Since().IsZero() || h.Describe() != "an edit of spec.suspension.dispatching of PropagationPolicy web, which suspends changes" {
		t.Errorf("%s since %s: %s", h.Reason(), h.Since(), h.Describe())
	}
	spec.Suspension = &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"a"}}}
	if h := NewHalt(&spec, nil, now); h.Reason() != atoll.ReasonRolloutPaused || !h.HasSuspendedCluster("a") || h.HasSuspendedCluster("b") {
		t.Errorf("%+v", h)
	}
	spec.Pause = nil
	if h := NewHalt(&spec, nil, now); h.IsHalted() || h.Describe() != "an edit of spec.suspension.dispatchingOnClusters of PropagationPolicy web, which suspends changes" {
		t.Errorf("%+v: %s", h, h.Describe())
	}
	spec.Suspension, spec.FreezeExemption = &v1alpha1.Suspension{Dispatching: true}, &v1alpha1.FreezeExemption{}
	if h := NewHalt(&spec, nil, now); !h.IsHalted() {
		t.Error("an exemption from freezes ends a suspension")
	}
	spec.Suspension = &v1alpha1.Suspension{Scheduling: true}
	if h := NewHalt(&spec, nil, now); h.IsHalted() || h.HasSuspendedCluster("a") {
		t.Errorf("a suspension of scheduling holds changes: %+v", h)
	}
}

// suspendRandomly suspends something, or ends the suspension.
func (w *randomWalk) suspendRandomly() {
	switch w.rand.IntN(6) {
	case 0:
		w.playCommand("suspend", "all")
	case 1, 2:
		w.playCommand("suspend", w.randomClusters(1+w.rand.IntN(4))...)
	case 3:
		w.playCommand("suspend", "scheduling")
	default:
		w.playCommand("end-suspension")
	}
}

// After any acts of users, agents and links, nothing is dispatched to a suspended cluster, no healthy copy goes before its replacement is there, and
// all is as requested after the suspension.
func TestSuspensionWalk(t *testing.T) {
	for seed := range uint64(120) {
		calm := seed%2 == 0
		w := &randomWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 23)), isCalm: calm}
		w.playCommand("fleet", "8")
		w.statesNone = seed%4 < 2
		switch seed % 6 {
		case 0, 1:
			w.playCommand("order", "recreate")
		case 2, 3:
			w.playCommand("divide", fmt.Sprintf("Deployment/web=%d", w.rand.IntN(30)), "StatefulSet/db=2")
		}
		for range 100 {
			if w.rand.IntN(6) == 0 {
				w.suspendRandomly()
			}
			may := w.actRandomly()
			before := maps.Clone(w.rows)
			w.playCommand("turn")
			w.checkHealthyKept(before, may || w.totalLowered || !calm || w.baseInput.MoveOrder != ReplacementFirst)
			if w.baseInput.Halt.Suspension == nil && !slices.ContainsFunc(slices.Collect(maps.Values(w.rows)), func(r Row) bool { return r.Spec.MovingSince != 0 }) {
				w.totalLowered = false
			}
		}
		w.playCommand("end-suspension")
		w.checkConvergence()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A pause counts a suspended cluster that waits for its first copy apart all the same.
func TestASuspendedFirstCopyInAPause(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a", "settle", "suspend b", "pause alice later", "cluster b")
	for range 2 {
		if n := AdvanceRows(s.buildInput()).Progress.Stages[0]; n.Suspended != 1 || n.SuspendedWaiting != 1 || n.Waiting != 0 || n.Clusters != 1 {
			t.Errorf("the clusters are counted as %+v", n)
		}
		playLines(s, "step")
	}
}

// Other override rules of the same revision that target a suspended cluster change nothing there, and the row waits for the end of the suspension. In
// another cluster they apply at once.
func TestOverrideRulesOfASuspendedCluster(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a b", "settle", "suspend a")
	in := s.buildInput()
	in.Variants = map[string]string{"a": "special", "b": "special"}
	out := AdvanceRows(in)
	if out.Changes["a"] != nil || out.Changes["b"] == nil || out.Changes["b"].Variant != "special" {
		t.Errorf("the changes are %+v", out.Changes)
	}
	if len(out.Waits) == 0 || out.Waits[0].Cluster != "a" || out.Waits[0].Reason != atoll.ReasonDispatchingSuspended {
		t.Errorf("the waits are %+v", out.Waits)
	}
	// The row waits at an earlier revision, of which other rules target it now.
	playLines(s, "revision r2", "step")
	in = s.buildInput()
	in.CurrentVariants = map[string]string{"a": "special"}
	if out = AdvanceRows(in); out.Changes["a"] != nil {
		t.Errorf("the row becomes %+v", out.Changes["a"])
	}
}
