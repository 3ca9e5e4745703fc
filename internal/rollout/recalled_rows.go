package rollout

import (
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"

	"atoll.dev/atoll/internal/phrase"
)

// mustStayRemoved reports whether the row must not come back by itself: its member recorded its
// removal, and the restored hub did not. This holds while the placement is the one
// that the hub was restored to, until an administrator keeps the row.
func (s *rolloutStep) mustStayRemoved(spec atoll.RowSpec) bool {
	r := spec.Recall
	return r != nil && r.Placement == s.PlacementHash && (r.Confirmed || !s.restoreRecalled)
}

// holdRowRemovedBeforeRestore sets the spec of a recalled row: the row stays as it is and requests a
// confirmation.
func (s *rolloutStep) holdRowRemovedBeforeRestore(c string) {
	spec := s.Rows[c].Spec
	if s.confirmed && !spec.Recall.Confirmed {
		confirmed := *spec.Recall
		confirmed.Confirmed = true
		spec.Recall = &confirmed
	}
	at := phrase.FormatTime(time.Unix(spec.Recall.RemovedAt, 0))
	spec.Reason = atoll.RowReason{Reason: atoll.ReasonRemovedBeforeRestore, Text: "the member removed it at " + at + "; editing the placement ends this"}.String()
	s.nextSpecs[c] = &spec
	if !spec.Recall.Confirmed {
		s.pendingRemoval.add(pendingRemovalEntry{
			cluster: c, reasonCode: atoll.ReasonRemovedBeforeRestore, reasonText: "the member removed it at " + at + ", before the hub was restored",
			hashedText:  fmt.Sprintf("recalled %s %s %d %d", c, spec.UID, spec.Since, spec.Recall.RemovedAt),
			displayLine: fmt.Sprintf("leave %s without the Bundle, which it removed at %s, before the hub was restored", c, at),
		})
	}
}

// addRecalledDeletionReasons adds the deletions that the revision holds back, after a restore or for a
// confirmation, to the reason of every row that has no other reason. When all have one, the first row without a
// plan has both: a plan that no row shows cannot be confirmed.
func (s *rolloutStep) addRecalledDeletionReasons() {
	s.addHeldBackReason(s.Recalled, atoll.ReasonRemovedBeforeRestore)
	s.addHeldBackReason(s.Unconfirmed, atoll.ReasonWaitsForConfirmation)
}

func (s *rolloutStep) addHeldBackReason(of HeldBackDeletions, reason atoll.Reason) {
	if of.PlanHash == "" || of.PlanHash == s.ConfirmedPlan || of.PlanHash == s.KeptPlan {
		return
	}
	shown, first := false, (*atoll.RowSpec)(nil)
	for _, c := range s.staying {
		spec := s.nextSpecs[c]
		switch {
		case spec.Reason == "":
			spec.Reason, shown = atoll.RowReason{Reason: reason, Plan: of.PlanHash, Text: of.Text}.String(), true
		case first == nil && atoll.ParseRowReason(spec.Reason).Plan == "":
			first = spec
		}
	}
	if !shown && first != nil {
		first.Reason = atoll.RowReason{Reason: reason, Plan: of.PlanHash, Text: of.Text + "; " + first.Reason}.String()
	}
}
