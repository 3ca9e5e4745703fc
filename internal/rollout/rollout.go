package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Input of one step.
type Input struct {
	// BundleUID is hashed into the plan.
	BundleUID string
	// Rows by cluster name.
	Rows     map[string]Row
	Decision schedule.Decision
	// Revision that all rows are to reach; empty: there is none yet, so nothing new comes.
	Revision string
	// MinRevision is the oldest acceptable revision number. Rows at it or at a later one
	// keep their revision while their own variant stays; 0: no row does.
	MinRevision int64
	// Variants of the target revision by cluster name; a missing cluster keeps its own.
	Variants map[string]string
	// CurrentVariants of the revisions that rows are at, by cluster name. They are set for
	// rows from which DeletedItems take something, and for rows that keep their revision and
	// whose cluster may have changed. A missing cluster keeps its own.
	CurrentVariants map[string]string
	RemovalMode     v1alpha1.RemovalMode
	// RemovalHooks is a person's order about the hooks of removals that are underway; empty: there is none.
	RemovalHooks string
	// Terms bound how fast rows take the target revision; nil: all take it at once.
	Terms *Terms
	// Halt of the rollout by a person, and the clusters to which nothing is dispatched. Order of this Bundle and others.
	Halt  Halt
	Order Order
	// ResumedAt is when a person last resumed the rollout; zero: never.
	ResumedAt time.Time
	// Gates are the stored verdicts, and Approvals those that people gave.
	Gates     []GateRecord
	Approvals []v1alpha1.RolloutApproval
	// Rollback is the stored rollback, and Previous what rows and new copies get by it, by cluster name. Previous is set while
	// the rollback is about the target revision.
	Rollback *v1alpha1.RollbackStatus
	Previous map[string]PreviousContent
	// RevisionAt is when the target revision was made.
	RevisionAt time.Time
	// NewClusters that may get their first row, by name. It is set where Terms or Halt are.
	NewClusters map[string]Row
	// NewestClusterAt is when the newest Cluster was created, by the clock of the hub that created it, in Unix seconds.
	NewestClusterAt int64
	// MoveOrder of rows that come in place of rows that leave.
	MoveOrder MoveOrder
	// Budget of voluntary disruptions; nil: none. FreeRevisions are those from which a change to the target takes no copy: they have no object, or the
	// target only deletes some.
	Budget        *v1alpha1.DisruptionBudget
	FreeRevisions map[string]bool
	// ApplicationFailover has the terms by which the old copy of a failed application goes; nil: the defaults.
	ApplicationFailover *v1alpha1.ApplicationFailover
	// RemovalBudget limits removals by edit; nil: 10%.
	RemovalBudget *intstr.IntOrString
	// ConfirmedPlan is the hash of the removal that an administrator confirmed.
	ConfirmedPlan string
	// DriftOrders order members to apply items once, over the drift that they report.
	DriftOrders []atoll.DriftOrder
	// KeptPlan is the hash of the removal whose recalled rows an administrator keeps.
	KeptPlan string
	// PlacementHash is the hash of the Bundle's placement.
	PlacementHash string
	// Recalled are deletions that the target revision holds back, since members recorded them and the
	// restored hub did not. The caller carries out the decision.
	Recalled HeldBackDeletions
	// Unconfirmed are removals of single items that the target revision holds until a person confirms
	// them. The caller carries out the decision.
	Unconfirmed HeldBackDeletions
	// MustConfirmRemovals: no row goes without a confirmation, whatever the budget.
	MustConfirmRemovals bool
	// Deleting: the Bundle is deleted, or the namespace of its templates, or, with ObjectsDeleted, only all of its objects.
	Deleting, ObjectsDeleted bool
	// DeletedItems lists, by the revision that a row is at, the items that users deleted
	// between it and the target revision: "key uid", sorted. Orphaned items are not listed.
	DeletedItems map[string][]string
	// MovedItems lists, by cluster name, the items that the target revision takes out of the
	// row because Bundles outside that cluster hold them now: "key uid", sorted.
	MovedItems map[string][]string
	// ExcludedItems lists, by cluster name, the items that override rules of the target
	// revision exclude, by key.
	ExcludedItems map[string][]ExcludedItem
	// RecentDeletes counts rows of the Bundle's namespace, this Bundle included, that lost
	// something by direct deletes in the last RemovalWindow.
	RecentDeletes int
	// RecentlyRemoved lists clusters that edits took out of this Bundle in the last
	// RemovalWindow.
	RecentlyRemoved []string
	// ExplainWaits requests Output.Waits.
	ExplainWaits bool
	// PausedByRestore: the hub waits after a restore; nothing changes.
	PausedByRestore bool
	// GenerationFloor is below every new generation.
	GenerationFloor int64
	Now             time.Time
}

// Output is the changes to write, and the time of the next step.
type Output struct {
	// Changes by cluster name: the new spec, or nil to delete the row.
	Changes map[string]*atoll.RowSpec
	// AbandonedRows, by cluster name: their clusters are deleted, and what runs there stays.
	AbandonedRows []AbandonedRow
	// PendingRemoval waits for a confirmation; nil: nothing does.
	PendingRemoval *PendingRemoval
	// RowsIndependent: no row waits for another one, no share is divided, and nothing is
	// held. While the Bundle, its revision and its placement stay, and every changed row
	// stays or is gone for good, unchanged rows need no further step before RequeueAt.
	RowsIndependent bool
	// UnreplacedCopies counts the old copies that may still run and for which no Pending row waits:
	// where the old copy goes first, the next arrival needs a step over all rows.
	UnreplacedCopies int
	// BlockingClusters have rows that must become healthy before others may leave or shrink.
	// Sorted.
	BlockingClusters []string
	// Waits describes, for every row that is not done, the reason of its wait, by cluster
	// name. Only set with ExplainWaits.
	Waits []RowWait
	// RequeueAt is when time alone changes something; zero: never.
	RequeueAt time.Time
	// DirectDeletes counts rows that lose something by direct deletes in this step.
	// RemovedByEdit lists the clusters that an edit takes out in it. Confirmed removals are
	// in neither.
	DirectDeletes int
	RemovedByEdit []string
	// AwaitsOthers lists the clusters whose rows wait for other Bundles, by Input.Order. Sorted.
	AwaitsOthers []string
	// Shortages lists workloads of which not all replicas have a place.
	Shortages []schedule.Shortage
	// CapacityBlocked names clusters whose stated capacity kept back a row or its share.
	// Sorted.
	CapacityBlocked []string
	// Progress of the rollout after this step; without stages where nothing bounds the rollout.
	Progress Progress
	// StageWait is for what its rows wait.
	StageWait StageWait
	// Gates are the verdicts to store, where they differ from the stored ones. A stage begins in a step that
	// reads them.
	Gates        []v1alpha1.GateStatus
	GatesChanged bool
	// Rollback is the rollback to store, where it differs from the stored one. Rows return in a step that reads it.
	Rollback        *v1alpha1.RollbackStatus
	RollbackChanged bool
	// StageCut is the division into automatic stages to store; nil: none. Rows change in a step that reads it.
	StageCut *v1alpha1.StageCut
}

// HeldBackDeletions are deletions that the target revision holds back, and the hash by which they
// are confirmed or kept; zero: there are none.
type HeldBackDeletions struct {
	PlanHash, Text string
}

// AbandonedRow is a row whose cluster is deleted, so that no agent acts on it any more.
type AbandonedRow struct {
	Cluster  string         `json:"cluster"`
	UID      string         `json:"uid"`
	Revision string         `json:"revision"`
	Phase    atoll.RowPhase `json:"phase"`
}

// AdvanceRows computes one step. It is pure: it changes no argument, and is safe for
// concurrent use.
func AdvanceRows(in Input) Output {
	if in.PausedByRestore {
		return buildPausedOutput(in)
	}
	s := newRolloutStep(in, false)
	s.computeSpecs()
	if p := s.pendingRemoval.buildPendingRemoval(in.BundleUID); p != nil && (p.Hash == in.ConfirmedPlan || p.Hash == in.KeptPlan) {
		s = newRolloutStep(in, p.Hash == in.ConfirmedPlan)
		s.restoreRecalled = !s.confirmed
		s.computeSpecs()
	}
	return s.buildOutput()
}

// rolloutStep is the work on one Input.
type rolloutStep struct {
	Input
	// confirmed: an administrator confirmed the pending removal.
	confirmed bool
	// restoreRecalled: recalled rows come back.
	restoreRecalled bool
	nowUnix         int64
	nextSpecs       map[string]*atoll.RowSpec
	// staying clusters are to be Active. The others are to go, listed by their phase.
	staying, newlyLeaving, heldClusters, leaving []string
	// suspended clusters are to be Active once the suspension of dispatching ends, or other Bundles come first. Sorted.
	suspended []string
	judge     orderJudge
	// withheld clusters are to be Active once as many of the ending copies have ended. Both are empty where
	// replacements come first. unreplaced counts old copies without a withheld cluster.
	withheld, ending []string
	unreplaced       int
	// recallWaiting clusters are chosen by the placement, and their members recorded a removal from
	// before the restore.
	recallWaiting []string
	// moveStart is when the move began that this step continues or begins, in Unix seconds.
	// Rows that must leave or shrink during a move wait for its replacements too.
	moveStart int64
	// moveResumed: the move is from an earlier step.
	moveResumed bool
	// arriving rows come or grow in this step.
	arriving map[string]bool
	// blockersByCluster are the rows for which a leaving row, or a share that is to shrink,
	// is kept.
	blockersByCluster map[string]*blockerSet
	// pendingExclusions are the excluded items that stay in a cluster until their removal is
	// confirmed, as keys by cluster.
	pendingExclusions map[string][]string
	pendingRemoval    pendingRemovalBuilder
	abandonedRows     []AbandonedRow
	requeueAt         time.Time
	// assignment is the target of all shares.
	assignment schedule.ReplicaAssignment
	// directDeletes and removedByEdit go without a confirmation.
	directDeletes int
	removedByEdit []string
	// turns of rows in a rollout.
	turns turns
	// disruptions is what the disruption budget decides.
	disruptions disruptions
	// areRowsIndependent is hasOnlyIndependentRows. scratch is the spec that is being computed.
	areRowsIndependent bool
	scratch            atoll.RowSpec
}

func newRolloutStep(in Input, released bool) *rolloutStep {
	return &rolloutStep{
		Input: in, confirmed: released, nowUnix: in.Now.Unix(), moveStart: in.Now.Unix(),
		nextSpecs: map[string]*atoll.RowSpec{}, arriving: map[string]bool{}, blockersByCluster: map[string]*blockerSet{},
	}
}

func (s *rolloutStep) computeSpecs() {
	s.classifyClusters()
	s.withholdSuspendedCopies()
	s.withholdReplacements()
	for _, row := range s.Rows {
		if since := row.Spec.MovingSince; since != 0 {
			s.moveStart, s.moveResumed = min(s.moveStart, since), true
		}
	}
	s.tallyCopies()
	s.planTurns()
	s.areRowsIndependent = s.hasOnlyIndependentRows()
	holds := s.holdOverBudget()
	s.deferExclusions(holds)
	s.assignment = s.Decision.KeepCurrentShares(s.pendingExclusions).KeepSharesOf(s.suspendedSharesOf()).AssignReplicas(s.omitLostClusters(holds))
	for _, c := range s.staying {
		s.setActiveSpec(c, s.assignment.ShareOf(c))
	}
	for _, c := range s.withheld {
		s.setPendingSpec(c)
	}
	for _, c := range s.turns.withheld {
		s.setPendingUntilTurn(c)
	}
	for _, c := range s.suspended {
		s.setPendingUntilDispatch(c)
	}
	for _, c := range s.leavingClusters() {
		s.setLeavingSpec(c, holds[c])
	}
	for _, c := range s.recallWaiting {
		s.holdRowRemovedBeforeRestore(c)
	}
	s.applySafeShareReductions()
	s.removeReplacedRows()
	s.holdRowsLosingDeletedItems()
	s.holdRowsLosingMovedItems()
	s.addExclusionsToPendingRemoval()
	s.admitRemovals()
	s.requestConfirmation()
	s.explainPendingRows()
	s.assignGenerations()
}

func (s *rolloutStep) leavingClusters() []string {
	return slices.Concat(s.newlyLeaving, s.heldClusters, s.leaving)
}

// classifyClusters sorts the clusters by what is to become of their rows.
func (s *rolloutStep) classifyClusters() {
	for _, v := range s.Decision.Verdicts {
		c := v.Cluster
		row, has := s.Rows[c]
		if has && belongsToDeletedCluster(&v, row) {
			s.abandonRow(c, row)
			has = false
		}
		switch wanted := !s.Deleting && v.IsHolder(); {
		case !has && wanted && v.Outcome == schedule.OutcomePlaced && s.Revision != "":
			s.staying = append(s.staying, c)
		case has && wanted:
			s.keepUnlessRemovedBeforeRestore(c, row)
		case has:
			s.classifyUnwanted(c, row)
		}
	}
}

// abandonRow gives a row up. A Pending row has nothing in its cluster that stays there.
func (s *rolloutStep) abandonRow(c string, row Row) {
	if row.Spec.Phase != atoll.RowPending {
		s.abandonedRows = append(s.abandonedRows, AbandonedRow{Cluster: c, UID: row.Spec.UID, Revision: row.Spec.Revision, Phase: row.Spec.Phase})
	}
	s.nextSpecs[c] = nil
}

// belongsToDeletedCluster reports whether the Cluster of the row is deleted.
func belongsToDeletedCluster(v *schedule.Verdict, row Row) bool {
	return v.Outcome == schedule.OutcomeGone || v.UID != row.Spec.UID
}

func (s *rolloutStep) keepUnlessRemovedBeforeRestore(c string, row Row) {
	if s.mustStayRemoved(row.Spec) {
		s.recallWaiting = append(s.recallWaiting, c)
	} else {
		s.staying = append(s.staying, c)
	}
}

func (s *rolloutStep) classifyUnwanted(c string, row Row) {
	switch row.Spec.Phase {
	case atoll.RowRemoving:
		s.applyRemovalModeToRow(c, row)
	case atoll.RowLeaving:
		if s.leftWithCluster(c, row) {
			s.newlyLeaving = append(s.newlyLeaving, c)
			return
		}
		s.leaving = append(s.leaving, c)
	case atoll.RowPending:
		s.nextSpecs[c] = nil
	case atoll.RowHeld:
		s.heldClusters = append(s.heldClusters, c)
	default:
		s.newlyLeaving = append(s.newlyLeaving, c)
	}
}

// leftWithCluster reports whether the row was to leave with its cluster, and leaves for another reason now, so
// that the bounds of removals apply to it again.
func (s *rolloutStep) leftWithCluster(c string, row Row) bool {
	return atoll.ParseRowReason(row.Spec.Reason).Cause().Reason == atoll.ReasonClusterRemoved && s.leaveReason(c).Reason != atoll.ReasonClusterRemoved
}

// applyRemovalModeToRow orphans what is not removed yet when the mode, or the mode of the
// cluster's own removal, changed to Orphan. An orphaned row stays orphaned. A recalled row that is
// not ordered any more is removed like any other.
func (s *rolloutStep) applyRemovalModeToRow(c string, row Row) {
	spec := row.Spec
	if spec.Recall != nil {
		spec.Recall, spec.Reason = nil, s.leaveReason(c).String()
	}
	v, _ := s.Decision.FindVerdict(c)
	spared := v.Orphan && atoll.ParseRowReason(spec.Reason).Reason == atoll.ReasonClusterRemoved
	spec.Orphan = spec.Orphan || spared || s.RemovalMode == v1alpha1.RemoveOrphan
	s.orderRemovalHooks(&spec)
	if spec.Orphan != row.Spec.Orphan || spec.RemovalHooks != row.Spec.RemovalHooks || !spec.Recall.Equal(row.Spec.Recall) {
		s.nextSpecs[c] = &spec
	}
}

// setActiveSpec sets the spec of a row that is to be Active.
func (s *rolloutStep) setActiveSpec(c string, share schedule.ClusterShare) {
	v, _ := s.Decision.FindVerdict(c)
	row, has := s.Rows[c]
	spec := &s.scratch
	if *spec = row.Spec; spec.UID != v.UID {
		*spec = atoll.RowSpec{UID: v.UID, Generation: spec.Generation}
	}
	if spec.Phase == atoll.RowRemoving || spec.Phase == atoll.RowPending {
		spec.Assigned, spec.ShrinkTo = nil, nil
	}
	if spec.Phase != atoll.RowActive {
		s.arriving[c] = true
		spec.Phase, spec.Since, spec.Orphan, spec.RemovalHooks, spec.GrownAt, spec.MovingSince = atoll.RowActive, s.nowUnix, false, "", 0, 0
		if !s.awaitsTurn(c, spec) {
			s.beginTurn(c, spec)
		}
	}
	spec.PlacementFingerprint, spec.Reason, spec.Recall = v.PlacementFingerprint, stayReason(&v), nil
	s.moveToTargetRevision(c, spec)
	s.growShares(c, spec, share)
	if s.keepTurn(c, spec); s.awaitsTurn(c, spec) {
		s.keepRevisionUntilTurn(c, spec)
		s.explainOrder(c, spec)
	}
	if s.keepsSuspendedCopy(c) {
		s.keepDispatchedWork(c, spec)
	}
	spec.Approvals = s.approvalsOf(c, spec)
	if s.isBlockedByCapacity(c, v) {
		spec.Reason = capacityReason(&v)
		keepItemShares(row.Spec, spec)
	}
	if !s.areRowsIndependent || !has || !isUnchanged(row.Spec, spec) {
		stored := *spec
		s.nextSpecs[c] = &stored
	}
}

// hasOnlyIndependentRows reports whether nothing in this step looks at the next spec of another row, so that the specs
// of rows that do not change need not be kept.
func (s *rolloutStep) hasOnlyIndependentRows() bool {
	return len(s.leavingClusters())+len(s.recallWaiting)+len(s.withheld)+len(s.Decision.DividedWorkloads()) == 0 && s.Recalled.PlanHash+s.Unconfirmed.PlanHash == "" &&
		len(s.DeletedItems)+len(s.MovedItems)+len(s.ExcludedItems) == 0
}

// moveToTargetRevision moves the spec to the target revision.
func (s *rolloutStep) moveToTargetRevision(c string, spec *atoll.RowSpec) {
	if s.turns.returns[c] {
		s.returnToPrevious(c, spec)
		return
	}
	if s.Revision == "" || s.keepsSuspendedCopy(c) || s.staysAtRevision(c, spec) || s.awaitsTurn(c, spec) {
		return
	}
	if v, _ := s.Decision.FindVerdict(c); s.isBlockedByCapacity(c, v) {
		return
	}
	if spec.Revision != s.Revision {
		s.beginTurn(c, spec)
	}
	if s.takesPreviousRevision(c) {
		spec.PreviousRevision = s.turns.rollback.PreviousRevision
		s.returnToPrevious(c, spec)
		return
	}
	spec.Revision = s.Revision
	if v, ok := s.Variants[c]; ok {
		spec.Variant = v
	}
	spec.Absent, spec.ExcludedPending = s.splitConfirmedExclusions(c)
}

// staysAtRevision reports whether the row keeps its revision, since only overrides that wait
// for the next change differ from the target. Other rules of its own revision that target
// the cluster now are a change.
func (s *rolloutStep) staysAtRevision(c string, spec *atoll.RowSpec) bool {
	row, has := s.Rows[c]
	if !has || row.Spec.UID != spec.UID || row.Spec.Phase == atoll.RowRemoving || row.Spec.Phase == atoll.RowPending || !atoll.IsAcceptableRevision(row.Spec.Revision, s.Revision, s.MinRevision) {
		return false
	}
	own, known := s.CurrentVariants[c]
	return row.Spec.Revision != s.Revision && len(row.Spec.ExcludedPending) == 0 && (!known || own == row.Spec.Variant)
}

// isBlockedByCapacity reports whether the row stays at its revision since its cluster's
// stated capacity has no place for the newer one.
func (s *rolloutStep) isBlockedByCapacity(c string, v schedule.Verdict) bool {
	row, has := s.Rows[c]
	return v.Notes().CapacityReason != "" && has && row.Spec.UID == v.UID && row.Spec.Phase != atoll.RowRemoving && row.Spec.Phase != atoll.RowPending && row.Spec.Revision != s.Revision
}

// setLeavingSpec sets the spec of a row that is to go. The row keeps its share until then,
// and follows the Bundle's revisions like any other.
func (s *rolloutStep) setLeavingSpec(c string, hold bool) {
	spec := s.Rows[c].Spec
	spec.ShrinkTo, spec.Approvals = nil, nil
	phase := atoll.RowLeaving
	if hold {
		phase = atoll.RowHeld
	}
	v, _ := s.Decision.FindVerdict(c)
	if spec.Phase != phase {
		if spec.Phase, spec.Since = phase, s.nowUnix; !v.LeavesLost {
			spec.MovingSince = 0
		}
	}
	if !hold {
		spec.HomeItems = nil
	}
	if spec.MovingSince == 0 && (!hold || v.LeavesLost) { // the replacements of a lost cluster start before the confirmation
		spec.MovingSince = s.moveStart
	}
	spec.Reason = s.leaveReason(c).String()
	if !s.Deleting {
		s.moveToTargetRevision(c, &spec)
		if s.awaitsTurn(c, &spec) {
			s.keepRevisionUntilTurn(c, &spec)
		} else if !s.isBlockedByCapacity(c, v) {
			spec.Assigned = s.keepDividedShares(spec.Assigned)
		}
		spec.OrdinalStarts = pruneUnassignedOrdinalStarts(spec.OrdinalStarts, spec.Assigned)
		s.keepLeavingWork(c, &spec)
	}
	s.nextSpecs[c] = &spec
}

// leaveReason returns why a row leaves.
func (s *rolloutStep) leaveReason(c string) atoll.RowReason {
	switch {
	case s.ObjectsDeleted:
		return atoll.RowReason{Reason: atoll.ReasonObjectsDeleted}
	case s.Deleting:
		return atoll.RowReason{Reason: atoll.ReasonBundleDeleted}
	}
	v, _ := s.Decision.FindVerdict(c)
	return atoll.RowReason{Reason: v.RowReason, Text: v.Reason}
}

// assignGenerations sets generations, and drops specs that did not change.
func (s *rolloutStep) assignGenerations() {
	for c, spec := range s.nextSpecs {
		if spec == nil {
			continue
		}
		row, has := s.Rows[c]
		old := row.Spec
		switch {
		case !has || old.UID != spec.UID:
			// In milliseconds: a row that was deleted and comes again at once is above its
			// old generation.
			spec.Generation = max(old.Generation, s.GenerationFloor, s.Now.UnixMilli()) + 1
		case !isSameWork(old, *spec):
			spec.Generation = max(old.Generation, s.GenerationFloor) + 1
		case isSameBookkeeping(old, *spec):
			delete(s.nextSpecs, c)
		}
	}
}

func (s *rolloutStep) buildOutput() Output {
	if at := s.Decision.EvictAt; !at.IsZero() && !s.Deleting {
		s.requeueNoLater(at)
	}
	out := Output{
		Changes: s.nextSpecs, AbandonedRows: s.abandonedRows, PendingRemoval: s.pendingRemoval.buildPendingRemoval(s.BundleUID), UnreplacedCopies: s.unreplaced, BlockingClusters: s.blockingClusters(),
		RequeueAt: s.requeueAt, DirectDeletes: s.directDeletes, RemovedByEdit: s.removedByEdit, RowsIndependent: s.hasIndependentRows(), Shortages: s.assignment.Shortages, CapacityBlocked: s.assignment.CapacityBlocked,
		Progress: s.turns.Progress, StageWait: s.turns.wait, StageCut: s.turns.cut, AwaitsOthers: s.orderedClusters(),
	}
	out.Gates, out.GatesChanged = s.gateChanges()
	out.Rollback, out.RollbackChanged = s.rollbackChanges()
	if s.ExplainWaits {
		out.Waits = s.listWaits()
	}
	return out
}

func (s *rolloutStep) hasIndependentRows() bool {
	return !s.Deleting && s.Revision != "" && !s.isTurnUnderway() && s.Recalled.PlanHash+s.Unconfirmed.PlanHash == "" && !s.Decision.NoFit && len(s.Decision.DividedWorkloads()) == 0 &&
		len(s.newlyLeaving)+len(s.heldClusters)+len(s.leaving)+len(s.recallWaiting)+len(s.blockersByCluster)+len(s.pendingRemoval.entries) == 0
}

// requeueNoLater requests a step at that time.
func (s *rolloutStep) requeueNoLater(at time.Time) {
	if s.requeueAt.IsZero() || at.Before(s.requeueAt) {
		s.requeueAt = at
	}
}
