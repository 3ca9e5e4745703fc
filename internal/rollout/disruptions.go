package rollout

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// disruptions are what the disruption budget decides in a step about copies that are to go. The counts are in turns.Copies, because rollouts and
// removals spend the same budget.
type disruptions struct {
	// replacements counts the clusters that came in the present move, or are to come. comes: one is to come. lastArrival is when the last one came,
	// in Unix seconds.
	replacements int
	comes        bool
	lastArrival  int64
	// held are the clusters whose copies a budget keeps, with the reason.
	held map[string]atoll.Reason
	// awaited clusters have copies whose reports may change the counts. again is the first time at which a disconnected
	// cluster counts otherwise.
	awaited []string
	again   time.Time
}

// copyState is what is known of a copy.
type copyState int

// The states. An uncertain copy may run: the hub cannot decide whether its cluster is disconnected, or the cluster has not answered another share. It is not
// counted as available, and is not taken while fewer copies are available than must stay. A disconnected cluster is outside.
const (
	copyUnavailable copyState = iota
	copyUncertain
	copyAvailable
)

// judgeCopy returns the state of the copy of a row.
func (s *rolloutStep) judgeCopy(row Row) copyState {
	switch {
	case row.wasReady():
		return copyAvailable
	case !row.Online && row.UncertainUntil.After(s.Now), row.Online && row.isSharing():
		return copyUncertain
	}
	return copyUnavailable
}

// wasReady reports whether the copy of a row is available. An order to leave, or another share, which its cluster may not have answered yet,
// changes nothing of a copy that was healthy after its last change.
func (r Row) wasReady() bool {
	return r.isReady() || r.Online && r.isSharing() && r.Status.Since > r.Spec.MovedAt
}

// hasBudget reports whether voluntary disruptions are bounded. The deletion of the Bundle is its owner's act.
func (s *rolloutStep) hasBudget() bool { return s.Budget != nil && !s.Deleting }

// tallyCopies counts the copies for the disruption budget.
func (s *rolloutStep) tallyCopies() {
	if !s.hasBudget() {
		return
	}
	t, d := &s.turns.Copies, &s.disruptions
	*t = NewCopyTally(s.Budget)
	t.isExact = true
	s.countReplacements()
	for _, list := range [...][]string{s.staying, s.suspended} {
		for _, c := range list {
			row := s.arrivalRow(c)
			if _, holds := s.memberRow(c); !holds || row.Spec.Phase == atoll.RowRemoving {
				row.Status = nil // of a Cluster that was replaced, or of a copy that is removed and comes again
			}
			if t.AddChosen(row, s.countsCopy(c, row), 1, c); !row.wasReady() {
				d.awaited = append(d.awaited, c)
			}
		}
	}
	for _, c := range s.withheld {
		t.AddWithheld(s.countsCopy(c, s.arrivalRow(c)), 1)
	}
	s.tallyLeavingCopies()
}

// tallyLeavingCopies counts the copies that voluntary disruptions are to take. As many as have no replacement are expected until they are gone,
// so that many evictions at one time are bounded too.
func (s *rolloutStep) tallyLeavingCopies() {
	t, d := &s.turns.Copies, &s.disruptions
	leaving, connected := 0, 0
	for _, c := range s.leavingClusters() {
		if !s.isVoluntaryRemoval(c) {
			continue
		}
		row := s.Rows[c]
		counts := s.countsCopy(c, row)
		if t.AddLeaving(row, counts, 1); counts {
			connected++
		}
		leaving++
		d.awaited = append(d.awaited, c)
	}
	if leaving == 0 {
		return
	}
	going := s.listRemovingCopies()
	d.awaited = append(d.awaited, going...)
	unreplaced := max(0, leaving+len(going)-d.replacements)
	for _, c := range going {
		if s.Rows[c].Online {
			connected++
		}
	}
	t.expectLeaving(min(unreplaced, connected))
}

// listRemovingCopies lists the clusters that have been ordered to remove a copy and have not confirmed it, sorted.
func (s *rolloutStep) listRemovingCopies() (out []string) {
	for c := range s.Rows {
		if s.isRemovingCopy(c) && !slices.Contains(s.staying, c) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// countReplacements counts the clusters that came in the present move, or are to come.
func (s *rolloutStep) countReplacements() {
	d := &s.disruptions
	d.replacements = len(s.withheld) + len(s.suspended)
	for _, c := range s.staying {
		switch row := s.Rows[c].Spec; {
		case !s.runsCopy(c):
			d.replacements++
			d.comes = true
		case row.Phase == atoll.RowActive:
			if d.lastArrival = max(d.lastArrival, row.Since); row.Since >= s.moveStart {
				d.replacements++
			}
		}
	}
	d.comes = d.comes || len(s.withheld)+len(s.suspended) > 0
}

// isMoved reports whether another cluster came for a leaving row, or is to come.
func (s *rolloutStep) isMoved(c string) bool {
	began := s.Rows[c].Spec.MovingSince
	if began == 0 {
		began = s.moveStart
	}
	return s.disruptions.comes || s.disruptions.lastArrival >= began
}

// countsCopy reports whether the budget counts a cluster: it is connected, or the hub cannot decide that it is not. A cluster that was lost before its change
// was healthy counts for a time, as in a rollout.
func (s *rolloutStep) countsCopy(c string, row Row) bool {
	if row.Online {
		return true
	}
	end := row.UncertainUntil
	if row.Spec.Revision != "" && !s.wantsTurn(c, row) {
		if at := s.Terms.CountsUntil(row, s.Now); at.After(end) {
			end = at
		}
	}
	if !end.After(s.Now) {
		return false
	}
	if d := &s.disruptions; d.again.IsZero() || end.Before(d.again) {
		d.again = end
	}
	return true
}

// isVoluntaryRemoval reports whether a removal is a voluntary disruption. An edit of the placement that only takes clusters out is none: its
// author states fewer copies. A copy that is released runs on.
func (s *rolloutStep) isVoluntaryRemoval(c string) bool {
	v, _ := s.Decision.FindVerdict(c)
	switch {
	case v.Orphan || s.isOrphanRemoval():
		return false
	case v.RowReason == atoll.ReasonPlacementEdited:
		return s.isMoved(c)
	}
	return true
}

// takeCopy takes a copy for a change of its row, if the budget allows it.
func (s *rolloutStep) takeCopy(c string, row Row) bool {
	t := &s.turns.Copies
	if t.budget == nil || s.FreeRevisions[row.Spec.Revision] {
		return true
	}
	switch s.judgeCopy(row) {
	case copyAvailable:
		if t.Room() < 1 {
			return false
		}
		t.takeCopy(c)
	case copyUncertain:
		return t.Room() >= 0
	}
	return true
}

// takeLeavingCopy counts an available copy that goes.
func (s *rolloutStep) takeLeavingCopy(c string) {
	if s.hasBudget() && s.isVoluntaryRemoval(c) && s.judgeLeavingCopy(c) == copyAvailable {
		s.turns.Copies.available--
	}
}

// keepsForBudget keeps a leaving copy that no budget lets go now, with the reason.
func (s *rolloutStep) keepsForBudget(c string, spec *atoll.RowSpec) bool {
	if !s.hasBudget() || !s.isVoluntaryRemoval(c) {
		return false
	}
	reason := s.findBudgetHold(c)
	if reason == "" {
		return false
	}
	d := &s.disruptions
	if d.held == nil {
		d.held = map[string]atoll.Reason{}
	}
	if d.held[c] = reason; !d.again.IsZero() {
		s.requeueNoLater(d.again)
	}
	spec.Reason = atoll.RowReason{Reason: reason, Text: spec.Reason}.String()
	return true
}

// findBudgetHold returns why a leaving copy may not be taken now; empty: it may. A copy that is unavailable costs nothing.
func (s *rolloutStep) findBudgetHold(c string) atoll.Reason {
	t := &s.turns.Copies
	v, _ := s.Decision.FindVerdict(c)
	room, isEdit := t.Room(), v.RowReason == atoll.ReasonPlacementEdited
	if isEdit {
		room = t.roomOfEdit()
	}
	state := s.judgeLeavingCopy(c)
	switch {
	case state == copyAvailable && room < 1, state == copyUncertain && room < 0:
		return t.reasonOfLeaving(isEdit)
	case state != copyUnavailable && s.Budget.HonorsPodDisruptionBudgets() && allowsNoPodDisruption(s.Rows[c]):
		return atoll.ReasonPodDisruptionBudget
	}
	return ""
}

// judgeLeavingCopy returns the state of a copy that is to go. A change of its row in this step has taken it.
func (s *rolloutStep) judgeLeavingCopy(c string) copyState {
	if s.turns.allowed[c] || s.turns.returns[c] {
		return copyUnavailable
	}
	return s.judgeCopy(s.Rows[c])
}

// allowsNoPodDisruption reports whether a PodDisruptionBudget of the Bundle reports in a connected cluster that it allows no disruption.
func allowsNoPodDisruption(row Row) bool {
	return row.Online && row.Status != nil && slices.ContainsFunc(row.Status.Items, func(it atoll.ItemStatus) bool {
		return kinds.AllowsNoDisruption(schema.GroupKind{Group: it.Key.Group, Kind: it.Key.Kind}, it.ReflectedStatus)
	})
}

// leavingInTurn lists the clusters that are to go. With a budget, the longest wait comes first.
func (s *rolloutStep) leavingInTurn() []string {
	out := s.leavingClusters()
	if s.hasBudget() {
		slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(s.nextSpecs[a].Since, s.nextSpecs[b].Since) })
	}
	return out
}

// awaitedCopies lists the clusters whose reports may let a copy go, or a row change, that the budget keeps.
func (s *rolloutStep) awaitedCopies() []string {
	if d := &s.disruptions; len(d.held) > 0 || s.turns.isBounded && s.turns.Copies.isSpent() && s.turns.countWaiting() > 0 {
		return d.awaited
	}
	return nil
}
