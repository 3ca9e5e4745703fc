package placer

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// turnTerms are the terms by which the rows of a Bundle take a new revision in turns.
type turnTerms struct {
	stated *v1alpha1.Rollout
	cut    *v1alpha1.StageCut
	*rollout.Terms
	isCompiled bool
	halt       rollout.Halt
	// mayWait: rows may have to wait for Bundles of other policies. hasBudget: voluntary disruptions are bounded.
	mayWait, hasBudget bool
}

// isBounded reports whether some of so many rows may keep their revision until their turn.
func (t turnTerms) isBounded(rows int) bool {
	return t.ForClusters(rows) != nil || t.halt.HoldsChanges() || t.mayWait || t.hasBudget
}

// countsFirstCopies reports whether a step has to know of clusters without a copy: they may have to wait for their first one, or count for
// the disruption budget.
func (t turnTerms) countsFirstCopies() bool {
	return !t.IsDefault() || t.halt.HoldsChanges() || t.mayWait || t.hasBudget
}

// changesStage reports whether a cluster is in another stage than it was, or other change windows concern it.
func (t turnTerms) changesStage(was, is *schedule.Cluster) bool {
	return t.HasWindows() && t.WindowsOf(was.Labels, was.TimeZone) != t.WindowsOf(is.Labels, is.TimeZone) || t.HasStages() && t.StageOf(was.Name, was.Labels, was.CreatedAt) != t.StageOf(is.Name, is.Labels, is.CreatedAt)
}

// turnTermsOf returns the terms of a Bundle. They are compiled when they change.
func (x *bundleIndex) turnTermsOf(b state.Bundle) turnTerms {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.ensureEntry(b.Ref.UID)
	cut := b.Status.Rollout.GetStageCut()
	if !e.turns.isCompiled || !equality.Semantic.DeepEqual(e.turns.stated, b.Spec.Rollout) || !equality.Semantic.DeepEqual(e.turns.cut, cut) {
		terms := rollout.CompileTerms(b.Spec.Rollout).WithStageCut(b.Ref.Namespace, b.Ref.Name, cut)
		e.turns = turnTerms{stated: b.Spec.Rollout, cut: cut, Terms: terms, isCompiled: true}
	}
	return e.turns
}

// turnTermsOf returns the terms of a Bundle, and what stops its rollout now.
func (r *PlacementReconciler) turnTermsOf(b state.Bundle) turnTerms {
	out := r.index.turnTermsOf(b)
	out.halt = rollout.NewHalt(&b.Spec, r.currentFreeze(), time.Now())
	out.mayWait, out.hasBudget = r.mayWaitForOthers(b), b.Spec.DisruptionBudget != nil
	return out
}

// currentFreeze returns the freeze of all changes; nil: there is none.
func (r *PlacementReconciler) currentFreeze() *v1alpha1.ChangeFreeze {
	if r.Settings == nil {
		return nil
	}
	return r.Settings.Freeze()
}

// freezeChanged reconciles the Bundles whose rows wait for the end of a freeze, behind those that people change now. A freeze that
// begins changes no row.
func (r *PlacementReconciler) freezeChanged(string) {
	for _, uid := range r.index.listFrozen() {
		r.index.requireAllRows(uid)
		r.bundleLoop.EnqueueRecheck(uid, 0)
	}
}

// repeatAfterFreeze reconciles a Bundle again where the freeze that holds it changed during the step, which freezeChanged could not
// know yet.
func (r *PlacementReconciler) repeatAfterFreeze(s *stepInput, isFrozen bool) {
	if isFrozen && !equality.Semantic.DeepEqual(r.currentFreeze(), s.rollout.Halt.Freeze) {
		r.enqueueAllRows(s.bundle.Ref.UID)
	}
}

// isFrozen reports whether the end of a freeze may change a row: rows wait for it, or may have to return, or an application is unhealthy.
func (s *stepInput) isFrozen(out rollout.Output) bool {
	return s.rollout.Halt.Freeze != nil && (out.StageWait.Reason != "" || s.rollout.Terms.RollsBack() || s.failover.output.IsHeld)
}

// warnOfExemptChange records an Event where rows change in a freeze, since a person exempted the Bundle.
func (r *PlacementReconciler) warnOfExemptChange(s *stepInput, out rollout.Output) {
	freeze := r.currentFreeze()
	if r.Events == nil || !freeze.IsActive(s.rollout.Now) || !rollout.IsExempt(&s.bundle.Spec, freeze) || !s.startsChange(out) {
		return
	}
	by := s.bundle.Spec.FreezeExemption
	r.Events.Warn(s.bundle.Ref, atoll.ReasonFreezeExempted, "clusters change in the freeze of "+phrase.EscapeLine(freeze.By)+": "+phrase.EscapeLine(by.By)+" exempted the Bundle ("+phrase.EscapeLine(by.Message)+")")
}

// addRolloutTerms adds the terms of the Bundle's rollout to a step, and the clusters that may get their first row.
func (r *PlacementReconciler) addRolloutTerms(s *stepInput, turns turnTerms, clusters []schedule.Cluster) {
	in := &s.rollout
	in.Halt = turns.halt // a suspension of scheduling bounds no change, and keeps copies that nothing replaces
	if !turns.isBounded(len(in.Rows)) {
		return
	}
	in.Terms = turns.Terms
	in.Approvals, in.Gates = s.bundle.Spec.Approvals, r.index.readGates(s.bundle, r.Measurements, in.Now)
	if resume := s.bundle.Spec.Resume; resume != nil {
		in.ResumedAt = resume.At.Time
	}
	if latest, ok := r.Revisions.LatestOfBundle(s.bundle.Ref.UID); ok {
		in.RevisionAt = latest.CreationTimestamp.Time
	}
	if !turns.countsFirstCopies() {
		return // it has one stage, and bounds no first copy
	}
	in.NewClusters = map[string]rollout.Row{}
	for i := range clusters {
		c := &clusters[i]
		in.NewestClusterAt = max(in.NewestClusterAt, c.CreatedAt)
		row, has := in.Rows[c.Name]
		if !has && !s.choosesCluster(c.Name) {
			continue
		}
		at, windows, suspended := turns.StageOf(c.Name, c.Labels, c.CreatedAt), turns.WindowsOf(c.Labels, c.TimeZone), turns.halt.HasSuspendedCluster(c.Name)
		switch {
		case !has:
			in.NewClusters[c.Name] = rollout.Row{Online: r.isConnected(c), Stage: at, Windows: windows, Suspended: suspended}
		case row.Stage != at || row.Windows != windows || row.Suspended != suspended:
			row.Stage, row.Windows, row.Suspended = at, windows, suspended
			in.Rows[c.Name] = row
		}
	}
}

// choosesCluster reports whether the decision of the step places the Bundle in a cluster.
func (s *stepInput) choosesCluster(name string) bool {
	v, known := s.rollout.Decision.FindVerdict(name)
	return known && v.Outcome == schedule.OutcomePlaced
}

// startsChange reports whether a row takes another revision, or comes.
func (s *stepInput) startsChange(out rollout.Output) bool {
	for c, spec := range out.Changes {
		row, has := s.rollout.Rows[c]
		if isNew := !has || row.Spec.Phase == atoll.RowPending; isNew && spec != nil && spec.Phase == atoll.RowActive {
			return true
		}
	}
	return s.changesRevision(out)
}

// changesRevision reports whether a row takes another revision. A step over a part of the rows cannot count the others,
// which a bound counts too.
func (s *stepInput) changesRevision(out rollout.Output) bool {
	for c, spec := range out.Changes {
		if row, has := s.rollout.Rows[c]; has && spec != nil && row.Spec.UID == spec.UID && row.Spec.Phase != atoll.RowPending && row.Spec.Revision != spec.Revision {
			return true
		}
	}
	return false
}
