package rollout

import (
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// DependentsGrace is how long a Bundle that is removed stays for Bundles that depend on it and are not removed: the deletion of
// several applications by one command takes a moment. DependentsLimit is how long one of a cluster policy stays for those of a
// namespace that are removed. Users of the namespace could hold it for ever otherwise.
const (
	DependentsGrace = 10 * time.Second
	DependentsLimit = 10 * time.Minute
)

// Order is for which Bundles of other policies the rows of a Bundle wait. The zero value is none.
type Order struct {
	// Dependencies come first: no row takes a new revision before they are in an accepted state.
	Dependencies []Dependency
	// Dependents leave first. They are set while the Bundle is removed: it is deleted, or has no item any more.
	Dependents []Dependent
	// RemovedAt is when the removal of the Bundle began.
	RemovedAt time.Time
}

// Dependency is a policy on which the Bundle depends.
type Dependency struct {
	v1alpha1.PolicyDependency
	Policy v1alpha1.PolicyRef
	// Bundles that the policy places and that are not removed.
	Bundles []DependencyBundle
	// FindCycle returns the policies by which the dependency leads back to the Bundle's own policy; nil: it does not.
	FindCycle func() []v1alpha1.PolicyRef
}

// DependencyBundle is a Bundle of a policy on which others depend.
type DependencyBundle struct {
	// Revision that its rows are to hold, and MinRevision as in Input. Revision is empty before the first.
	Revision    string
	MinRevision int64
	// IsOfOthers is true for a Bundle of another namespace. It counts where it is placed alone: one that fits no cluster holds nothing.
	IsOfOthers bool
	// FindRow returns its row in a cluster, and ListRows all of them.
	FindRow  func(cluster string) (Row, bool)
	ListRows func() []Row
}

// Dependent is a Bundle that depends on the Bundle of the step.
type Dependent struct {
	Policy v1alpha1.PolicyRef
	// IsRemoved: it is removed, too.
	IsRemoved bool
	// Patience is how long the removal waits for it; 0: until it has left.
	Patience time.Duration
	// HasLeft reports whether a cluster has nothing of it.
	HasLeft func(cluster string) bool
}

// orderJudge finds for which other Bundles rows wait, each once in a step.
type orderJudge struct {
	byCluster map[string]*atoll.RowReason
	// ofAll has the waits for dependencies in all clusters, by their index.
	ofAll map[int]*atoll.RowReason
}

// hasOrder reports whether rows of the Bundle may have to wait for other Bundles.
func (s *rolloutStep) hasOrder() bool { return len(s.Order.Dependencies)+len(s.Order.Dependents) > 0 }

// isHeldBack reports whether a cluster keeps what it has: its policy is suspended, or another Bundle comes first.
func (s *rolloutStep) isHeldBack(c string) bool { return s.isSuspended(c) || s.orderWaitOf(c) != nil }

// orderWaitOf returns for which other Bundle a change of the cluster waits; nil: for none.
func (s *rolloutStep) orderWaitOf(c string) *atoll.RowReason {
	if !s.hasOrder() {
		return nil
	}
	w, isKnown := s.judge.byCluster[c]
	if !isKnown {
		if s.judge.byCluster == nil {
			s.judge.byCluster = map[string]*atoll.RowReason{}
		}
		w = s.findOrderWait(c)
		s.judge.byCluster[c] = w
	}
	return w
}

func (s *rolloutStep) findOrderWait(c string) *atoll.RowReason {
	if s.replacesRemovedCopy(c) {
		return s.findDependentsWait(c)
	}
	for i := range s.Order.Dependencies {
		if w := s.findDependencyWait(i, c); w != nil {
			return w
		}
	}
	return s.findDependentsWait(c)
}

// replacesRemovedCopy reports whether a cluster is to get the copy of a move whose old copies are all being removed or gone. The dependencies
// were in an accepted state when the removal began. A change of a dependency since then would leave the application without a copy.
func (s *rolloutStep) replacesRemovedCopy(c string) bool {
	spec := s.Rows[c].Spec
	if v, _ := s.Decision.FindVerdict(c); spec.Phase != atoll.RowPending || spec.UID != v.UID || len(s.leavingClusters()) > 0 {
		return false
	}
	reason := atoll.ParseRowReason(spec.Reason).Reason
	return reason == atoll.ReasonWaitsForOldCopy || reason == atoll.ReasonWaitsForDisconnectedCopy
}

// findDependencyWait returns the wait of a cluster for a dependency. One in a circle says so, since it may have no other end.
func (s *rolloutStep) findDependencyWait(i int, c string) *atoll.RowReason {
	d := &s.Order.Dependencies[i]
	if !d.IsOfAllClusters() {
		return d.withCycle(s.judgeInCluster(d, c))
	}
	w, isKnown := s.judge.ofAll[i]
	if !isKnown {
		if s.judge.ofAll == nil {
			s.judge.ofAll = map[int]*atoll.RowReason{}
		}
		w = d.withCycle(s.judgeInAllClusters(d))
		s.judge.ofAll[i] = w
	}
	return w
}

// withCycle returns the wait, or that the policies depend on each other.
func (d *Dependency) withCycle(w *atoll.RowReason) *atoll.RowReason {
	if w == nil || d.FindCycle == nil {
		return w
	}
	cycle := d.FindCycle()
	if len(cycle) == 0 {
		return w
	}
	return &atoll.RowReason{Reason: atoll.ReasonDependencyCycle, Text: "an edit of dependsOn of " + formatPolicies(cycle) + ", which depend on each other"}
}

// judgeInCluster returns the wait for the Bundles of a policy in one cluster; nil: they are there. A Bundle without a row anywhere may
// come to the cluster, and one with rows elsewhere is not placed there. A Bundle of another namespace counts
// where it has a row.
func (s *rolloutStep) judgeInCluster(d *Dependency, c string) *atoll.RowReason {
	isPlaced, isAccepted := false, true
	for i := range d.Bundles {
		b := &d.Bundles[i]
		row, has := b.FindRow(c)
		switch {
		case has && row.Spec.Phase.IsChosen():
			isPlaced, isAccepted = true, s.acceptsRow(d, b, row) && isAccepted
		case isAccepted && !b.IsOfOthers && len(b.ListRows()) == 0:
			isAccepted = false
		}
	}
	return d.describeWait(isPlaced, isPlaced, isAccepted)
}

// judgeInAllClusters returns the wait for the Bundles of a policy in all connected clusters; nil: they are there.
func (s *rolloutStep) judgeInAllClusters(d *Dependency) *atoll.RowReason {
	isPlaced, isConnected, isAccepted := false, false, true
	for i := range d.Bundles {
		b := &d.Bundles[i]
		rows := b.ListRows()
		if len(rows) == 0 && !b.IsOfOthers {
			isAccepted = false
		}
		for _, row := range rows {
			if !row.Spec.Phase.IsChosen() {
				continue
			}
			isPlaced = true
			if accepts := s.acceptsRow(d, b, row); row.Online || row.UncertainUntil.After(s.Now) {
				isConnected, isAccepted = true, isAccepted && accepts
			}
		}
	}
	return d.describeWait(isPlaced, isConnected, isAccepted)
}

// acceptsRow reports whether a row has the latest revision of its Bundle in an accepted state, by a report of a connected cluster. While the hub
// cannot decide whether the cluster is connected, it has not.
func (s *rolloutStep) acceptsRow(d *Dependency, b *DependencyBundle, row Row) bool {
	if !row.Online && row.UncertainUntil.After(s.Now) {
		s.requeueNoLater(row.UncertainUntil)
	}
	st := row.Status
	if !row.Online || b.Revision == "" || !atoll.IsAcceptableRevision(row.Spec.Revision, b.Revision, b.MinRevision) || st == nil || st.Generation != row.Spec.Generation {
		return false
	}
	return st.State == atoll.RowReady || d.AcceptsUnhealthy() && st.Applied
}

// describeWait returns for what of a dependency rows wait; nil: for nothing. It has no cluster's name, so that many rows have one text.
func (d *Dependency) describeWait(isPlaced, isConnected, isAccepted bool) *atoll.RowReason {
	name, where, state := d.Policy.String(), "in the same cluster", "ready"
	if d.IsOfAllClusters() {
		where = "in all its connected clusters"
	}
	if d.AcceptsUnhealthy() {
		state = "applied"
	}
	switch {
	case len(d.Bundles) == 0:
		return &atoll.RowReason{Reason: atoll.ReasonDependencyMissing, Text: name + ", which places nothing, or an edit of dependsOn"}
	case !isPlaced && d.IsOfAllClusters():
		return &atoll.RowReason{Reason: atoll.ReasonDependencyNotPlaced, Text: name + " to be placed in a cluster, or an edit of dependsOn"}
	case !isPlaced:
		return &atoll.RowReason{Reason: atoll.ReasonDependencyNotPlaced, Text: name + " to be placed in the same cluster, or an edit of dependsOn"}
	case !isConnected:
		return &atoll.RowReason{Reason: atoll.ReasonDependencyDisconnected, Text: "a cluster of " + name + " to come back: all of them are disconnected"}
	case !isAccepted:
		return &atoll.RowReason{Reason: atoll.ReasonWaitsForDependency, Text: name + " to be " + state + " " + where}
	}
	return nil
}

// findDependentsWait returns the wait of a cluster that is to lose the Bundle for those that depend on it.
func (s *rolloutStep) findDependentsWait(c string) *atoll.RowReason {
	var removed, staying []v1alpha1.PolicyRef
	var end time.Time
	for i := range s.Order.Dependents {
		d := &s.Order.Dependents[i]
		if !s.isAwaitedDependent(d) || d.HasLeft(c) {
			continue
		}
		if d.Patience > 0 {
			end = s.Order.RemovedAt.Add(d.Patience)
			s.requeueNoLater(end)
		}
		if d.IsRemoved {
			removed = append(removed, d.Policy)
		} else {
			staying = append(staying, d.Policy)
		}
	}
	switch {
	case len(removed) > 0:
		return &atoll.RowReason{Reason: atoll.ReasonWaitsForDependents, Text: formatPolicies(removed) + " to leave the cluster first"}
	case len(staying) > 0:
		return &atoll.RowReason{Reason: atoll.ReasonWaitsForDependents, Text: phrase.FormatTime(end) + ", or " + formatPolicies(staying) + " to be deleted as well and to leave the cluster first"}
	}
	return nil
}

// isAwaitedDependent reports whether the removal waits for a dependent still. The clock of the hub that began it may be ahead, and one that
// is further ahead delays nothing.
func (s *rolloutStep) isAwaitedDependent(d *Dependent) bool {
	at := s.Order.RemovedAt
	return d.Patience == 0 || !at.After(s.Now.Add(clockMargin)) && at.Add(d.Patience).After(s.Now)
}

// formatPolicies names the first few policies.
func formatPolicies(policies []v1alpha1.PolicyRef) string {
	var names []string
	for _, p := range policies {
		if name := p.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return formatFew(names)
}

// explainOrder stores in a row of the current stage for which other Bundle it waits. Readers of rows count by that. Another reason
// of the row stays.
func (s *rolloutStep) explainOrder(c string, spec *atoll.RowSpec) {
	w := s.orderWaitOf(c)
	if w == nil || spec.Reason != "" || s.Halt.IsHalted() || s.arrivalRow(c).Stage != s.turns.wait.Stage {
		return
	}
	spec.Reason = w.String()
}

// newOrderWait returns the wait of a row of the current stage for other Bundles; For is empty for others.
func (s *rolloutStep) newOrderWait(c string, row Row, since time.Time) RowWait {
	w, t := s.orderWaitOf(c), &s.turns
	if w == nil || row.Stage != t.wait.Stage || t.wait.Reason == atoll.ReasonStageFailed {
		return RowWait{}
	}
	return newRowWait(w.Reason, w.Text, since)
}

// AddOrdered counts waiting rows that wait for Bundles of other policies. AddRows has counted them.
func (t *StageTally) AddOrdered(w atoll.RowReason, n int) {
	if t.Ordered == 0 || w.Text < t.order.Text {
		t.order = w
	}
	t.Ordered += n
}

// tallyWaiting counts a row that waits, by what holds it.
func (s *rolloutStep) tallyWaiting(c string, row Row) {
	n := &s.turns.Stages[row.Stage]
	if w := s.orderWaitOf(c); w != nil {
		n.AddOrdered(*w, 1)
		return
	}
	n.AddOutsideWindow(&s.turns.windows, row.Windows, 1)
}

// leavesInOrder reports whether a leaving row was counted among the removals, and only waits for Bundles that depend on it.
func (s *rolloutStep) leavesInOrder(c string) bool {
	row, has := s.Rows[c]
	return has && row.Spec.Phase == atoll.RowLeaving && atoll.ParseRowReason(row.Spec.Reason).Reason == atoll.ReasonWaitsForDependents
}

// uncountedLeaving lists the clusters that leave by the deletion of the Bundle and that no earlier step counted.
func (s *rolloutStep) uncountedLeaving() []string {
	return slices.DeleteFunc(s.leavingClusters(), s.leavesInOrder)
}

// keepsForDependents keeps the row of a deleted Bundle until those that depend on it have left the cluster, with the reason.
func (s *rolloutStep) keepsForDependents(c string, spec *atoll.RowSpec) bool {
	if !s.Deleting {
		return false
	}
	w := s.orderWaitOf(c)
	if w == nil {
		return false
	}
	spec.Reason = w.String()
	return true
}

// orderedClusters lists the clusters whose rows wait for other Bundles.
func (s *rolloutStep) orderedClusters() (out []string) {
	for _, c := range slices.Sorted(maps.Keys(s.judge.byCluster)) {
		if s.judge.byCluster[c] != nil {
			out = append(out, c)
		}
	}
	return out
}

// listOrderedArrivals returns the clusters that wait for their first copy, since other Bundles come first. No share of replicas shrinks before.
func (s *rolloutStep) listOrderedArrivals() *blockerSet {
	out := &blockerSet{}
	for _, c := range s.suspended {
		if !s.isSuspended(c) {
			out.addCluster(s, c)
		}
	}
	return out
}

// findOrderOf returns for which other Bundle the first of some clusters waits that is not suspended; nil: none does.
func (s *rolloutStep) findOrderOf(blockers *blockerSet) *atoll.RowReason {
	for _, c := range blockers.clusters {
		if w := s.orderWaitOf(c); w != nil && !s.isSuspended(c) {
			return w
		}
	}
	return nil
}
