package rollout

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// otherBundles are the Bundles of other policies in a script.
type otherBundles struct {
	dependsOn []v1alpha1.PolicyDependency
	// states of Bundles that others depend on, by policy and cluster; a policy without an entry places nothing.
	states map[string]map[string]string
	// cycles has the policies that lead back.
	cycles map[string]bool
	// dependents by policy: whether they are removed, and the clusters that have something of them.
	dependents map[string]*otherDependent
	removedAt  time.Time
}

type otherDependent struct {
	isRemoved bool
	in        []string
}

// runOrderCommand runs the commands of scripts that are about Bundles of other policies.
func (s *scriptStage) runOrderCommand(cmd string, args []string) {
	o := &s.others
	switch cmd {
	case "depends": // POLICY [All] [Applied]
		d := v1alpha1.PolicyDependency{Name: args[0]}
		for _, more := range args[1:] {
			if more == "All" {
				d.Scope = v1alpha1.DependencyAll
			} else {
				d.AcceptedStates = append(d.AcceptedStates, v1alpha1.DependencyState(more))
			}
		}
		o.dependsOn = append(o.dependsOn, d)
	case "independent":
		o.dependsOn = nil
	case "other": // POLICY STATE CLUSTER... : Ready | Applied | Progressing | Behind | Pending | Leaving | gone
		if o.states == nil {
			o.states = map[string]map[string]string{}
		}
		if o.states[args[0]] == nil {
			o.states[args[0]] = map[string]string{}
		}
		for _, c := range args[2:] {
			if o.states[args[0]][c] = args[1]; args[1] == "gone" {
				delete(o.states[args[0]], c)
			}
		}
	case "cycle": // POLICY
		o.cycles = map[string]bool{args[0]: true}
	case "dependent": // POLICY stays|removed CLUSTER...
		if o.dependents == nil {
			o.dependents = map[string]*otherDependent{}
		}
		o.dependents[args[0]] = &otherDependent{args[1] == "removed", args[2:]}
	case "remove": // the Bundle has no item any more, or is deleted next
		o.removedAt = s.now
	}
}

// orderInput returns the order of the next step.
func (s *scriptStage) orderInput() (out Order) {
	o := &s.others
	if !o.removedAt.IsZero() {
		out.RemovedAt = o.removedAt
		for name, d := range o.dependents {
			one := Dependent{Policy: policyNamed(name), IsRemoved: d.isRemoved, HasLeft: func(c string) bool { return !slices.Contains(d.in, c) }}
			if !d.isRemoved {
				one.Patience = DependentsGrace
			}
			out.Dependents = append(out.Dependents, one)
		}
		return out
	}
	for _, d := range o.dependsOn {
		one := Dependency{PolicyDependency: d, Policy: policyNamed(d.Name)}
		if rows, exists := o.states[d.Name]; exists {
			find := func(c string) (Row, bool) {
				state, has := rows[c]
				return s.otherRow(c, state), has
			}
			one.Bundles = []DependencyBundle{{Revision: "o-2-r2", FindRow: find, ListRows: func() (all []Row) {
				for c, state := range rows {
					all = append(all, s.otherRow(c, state))
				}
				return all
			}}}
		}
		if o.cycles[d.Name] {
			one.FindCycle = func() []v1alpha1.PolicyRef { return []v1alpha1.PolicyRef{policyNamed(d.Name), policyNamed("web")} }
		}
		out.Dependencies = append(out.Dependencies, one)
	}
	return out
}

func policyNamed(name string) v1alpha1.PolicyRef {
	return v1alpha1.PolicyRef{Kind: v1alpha1.SourcePropagationPolicy, Namespace: "ns", Name: name}
}

// otherRow returns a row of a Bundle of another policy.
func (s *scriptStage) otherRow(c, state string) Row {
	row := Row{Spec: atoll.RowSpec{Revision: "o-2-r2", Generation: 2, Phase: atoll.RowActive}, Online: s.online[c], UncertainUntil: s.uncertain[c]}
	row.Status = &atoll.RowStatus{Generation: 2, State: atoll.RowProgressing}
	switch state {
	case "Ready":
		row.Status.State, row.Status.Applied = atoll.RowReady, true
	case "Applied":
		row.Status.Applied = true
	case "Behind": // healthy, and not at its latest revision
		row.Spec.Revision, row.Status.State, row.Status.Applied = "o-1-r1", atoll.RowReady, true
	case "Unread": // ordered again since its report
		row.Spec.Generation, row.Status.State, row.Status.Applied = 3, atoll.RowReady, true
	case "Pending":
		row.Spec.Phase, row.Status = atoll.RowPending, nil
	case "Leaving":
		row.Spec.Phase, row.Status.State = atoll.RowLeaving, atoll.RowReady
	}
	return row
}

// checkOrder checks that no row takes another revision, or comes, while another Bundle comes first, and that no row goes for that.
func checkOrder(t testing.TB, in Input, out Output) {
	t.Helper()
	if len(in.Order.Dependencies) == 0 || in.Deleting {
		return
	}
	s := newRolloutStep(in, false)
	for c, spec := range out.Changes {
		old, had := in.Rows[c]
		runs := had && spec != nil && old.Spec.UID == spec.UID && old.Spec.Phase != atoll.RowRemoving && old.Spec.Phase != atoll.RowPending
		if spec == nil || !waitsForDependency(s, c) || endsMove(in, c) {
			continue
		}
		isBack := runs && spec.Revision == old.Spec.PreviousRevision
		if !runs && spec.Phase == atoll.RowActive || runs && spec.Revision != old.Spec.Revision && !isBack {
			t.Fatalf("%s changes before others: %+v to %+v", c, old.Spec, *spec)
		}
	}
}

func waitsForDependency(s *rolloutStep, c string) bool {
	for i := range s.Order.Dependencies {
		if s.findDependencyWait(i, c) != nil {
			return true
		}
	}
	return false
}

// endsMove reports whether a row waits for old copies alone, and no old copy can stay.
func endsMove(in Input, c string) bool {
	for _, row := range in.Rows {
		if row.Spec.Phase == atoll.RowLeaving || row.Spec.Phase == atoll.RowHeld {
			return false
		}
	}
	row := in.Rows[c]
	return row.Spec.Phase == atoll.RowPending && strings.Contains(row.Spec.Reason, "the old copy in ")
}

// A dependency accepts only what a connected cluster reports of the order that stands.
func TestAcceptedStates(t *testing.T) {
	for _, c := range []struct {
		state   string
		accepts []v1alpha1.DependencyState
		want    atoll.Reason
	}{
		{"Ready", nil, ""}, {"Applied", nil, atoll.ReasonWaitsForDependency}, {"Applied", []v1alpha1.DependencyState{"Applied"}, ""},
		{"Ready", []v1alpha1.DependencyState{"Applied"}, ""}, {"Progressing", []v1alpha1.DependencyState{"Ready", "Applied"}, atoll.ReasonWaitsForDependency},
		{"Behind", nil, atoll.ReasonWaitsForDependency}, {"Unread", nil, atoll.ReasonWaitsForDependency}, {"Pending", nil, atoll.ReasonWaitsForDependency},
		{"Leaving", nil, atoll.ReasonDependencyNotPlaced}, {"gone", nil, atoll.ReasonDependencyNotPlaced},
	} {
		for _, scope := range []v1alpha1.DependencyScope{"", v1alpha1.DependencyCluster, v1alpha1.DependencyAll} {
			s := newStage(t)
			playLines(s, "clusters a", "other db "+c.state+" a")
			s.others.dependsOn = []v1alpha1.PolicyDependency{{Name: "db", Scope: scope, AcceptedStates: c.accepts}}
			out := AdvanceRows(s.buildInput())
			got := atoll.ParseRowReason(out.Changes["a"].Reason).Reason
			if got != c.want || (out.Changes["a"].Phase == atoll.RowActive) != (c.want == "") {
				t.Errorf("%s in scope %q, of which %v is accepted: %q, want %q: %+v", c.state, scope, c.accepts, got, c.want, out.Changes["a"])
			}
			if waits := len(out.AwaitsOthers) > 0; waits != (c.want != "") {
				t.Errorf("%s: %v wait for others", c.state, out.AwaitsOthers)
			}
		}
	}
}

// After any acts of users, agents and links, no row changes before its dependency, and no healthy copy goes before its replacement is there. All is as
// requested without the dependency.
func TestDependencyWalk(t *testing.T) {
	for seed := range uint64(80) {
		calm := seed%2 == 0
		w := &randomWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 29)), isCalm: calm}
		w.playCommand("fleet", "8")
		w.statesNone = seed%4 < 2
		if seed%3 == 0 {
			w.playCommand("order", "recreate")
		}
		w.playCommand("depends", "db")
		if seed%5 == 0 {
			w.playCommand("depends", "db", "All", "Applied")
		}
		states := []string{"Ready", "Ready", "Applied", "Progressing", "Behind", "Pending", "Leaving", "gone"}
		for range 100 {
			if w.rand.IntN(3) == 0 {
				w.playCommand("other", append([]string{"db", states[w.rand.IntN(len(states))]}, w.randomClusters(1+w.rand.IntN(4))...)...)
			}
			may := w.actRandomly()
			before := maps.Clone(w.rows)
			w.playCommand("turn")
			w.checkHealthyKept(before, may || w.totalLowered || !calm || w.baseInput.MoveOrder != ReplacementFirst)
		}
		w.playCommand("independent")
		w.checkConvergence()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The rows of a deleted Bundle count once among the direct deletes, before the first of them goes.
func TestRemovalsInOrderCountOnce(t *testing.T) {
	s := newStage(t)
	playLines(s, "clusters a b", "settle", "dependent web removed a b", "remove", "delete")
	for i, want := range []int{2, 0, 0} {
		in := s.buildInput()
		out := AdvanceRows(in)
		if s.applyOutput(in, out); out.DirectDeletes != want {
			t.Errorf("step %d counts %d removals, want %d", i, out.DirectDeletes, want)
		}
	}
	s.others.dependents["web"].in = nil
	out := AdvanceRows(s.buildInput())
	if out.DirectDeletes != 0 || out.Changes["a"] == nil || out.Changes["a"].Phase != atoll.RowRemoving || atoll.ParseRowReason(out.Changes["a"].Reason).Reason != atoll.ReasonBundleDeleted {
		t.Errorf("%d removals, and a is %+v", out.DirectDeletes, out.Changes["a"])
	}
}

// A clock that is ahead delays a removal by no more than its margin.
func TestDependentsOfALaterClock(t *testing.T) {
	for ahead, want := range map[time.Duration]atoll.RowPhase{0: atoll.RowLeaving, time.Minute: atoll.RowLeaving, clockMargin + time.Minute: atoll.RowRemoving, -DependentsGrace: atoll.RowRemoving} {
		s := newStage(t)
		playLines(s, "clusters a", "settle", "dependent web stays a", "remove", "delete")
		s.others.removedAt = s.now.Add(ahead)
		out := AdvanceRows(s.buildInput())
		if got := out.Changes["a"].Phase; got != want {
			t.Errorf("%s ahead: a is %s, want %s", ahead, got, want)
		}
		if end := s.others.removedAt.Add(DependentsGrace); want == atoll.RowLeaving && !out.RequeueAt.Equal(end) {
			t.Errorf("%s ahead: the next step is at %s, want %s", ahead, out.RequeueAt, end)
		}
	}
}
