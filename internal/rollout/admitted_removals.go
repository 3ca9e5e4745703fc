package rollout

import (
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// isToChangeRevision reports whether a row changes its revision in this step, or in its turn of a rollout. The losses
// of all rows are counted before the first of them changes.
func (s *rolloutStep) isToChangeRevision(c string) bool {
	spec := s.nextSpecs[c]
	return s.changesRevision(c) || spec != nil && spec.Phase != atoll.RowRemoving && s.awaitsTurn(c, spec)
}

// isRemovalAdmitted reports whether what the row loses was counted with the losses of all other rows, or confirmed,
// in an earlier step.
func (s *rolloutStep) isRemovalAdmitted(c string) bool {
	admitted := s.Rows[c].Spec.AdmittedRemoval
	return admitted != "" && admitted == s.hashLosses(c)
}

// hashLosses returns the hash of the items that the target revision takes out of a row, and of how they go; empty: of
// none. Items that were admitted to be orphaned are not admitted to be deleted.
func (s *rolloutStep) hashLosses(c string) string {
	row := s.Rows[c].Spec
	var excluded []string
	for _, u := range s.ExcludedItems[c] {
		if u.UID != "" {
			excluded = append(excluded, fmt.Sprintf("%s %s %t", u.Key, u.UID, u.MustConfirm))
		}
	}
	deleted, moved := s.DeletedItems[row.Revision], s.MovedItems[c]
	if len(deleted)+len(moved)+len(excluded) == 0 {
		return ""
	}
	return atoll.HashJSON([][]string{deleted, moved, excluded, {string(s.RemovalMode)}})[:16]
}

// admitRemovals marks the rows that lose items in a later turn, where the loss is counted and nothing holds it. Bounds
// and confirmations are about the whole change, and not about each turn.
func (s *rolloutStep) admitRemovals() {
	if !s.turns.isBounded {
		return
	}
	for c, spec := range s.nextSpecs {
		if spec == nil || !s.awaitsTurn(c, spec) {
			continue
		}
		loss := s.hashLosses(c)
		if !s.isLossCounted(c, spec) || s.pendingRemoval.clusters[c] && spec.AdmittedRemoval != loss {
			loss = ""
		}
		spec.AdmittedRemoval = loss
	}
}

// isLossCounted reports whether the bounds of removals count what the row loses. The items of a row that leaves or is
// held count as a whole row. They are no loss of their own until the row stays.
func (s *rolloutStep) isLossCounted(c string, spec *atoll.RowSpec) bool {
	return spec.Phase == atoll.RowActive || len(s.MovedItems[c])+len(s.ExcludedItems[c]) == 0
}

// dropTakenBackRemoval drops the mark that a loss was admitted once the target revision takes
// nothing out of the row. The same loss counts again when it is stated again.
func (s *rolloutStep) dropTakenBackRemoval(c string, spec *atoll.RowSpec) {
	if spec.AdmittedRemoval != "" && s.hashLosses(c) == "" {
		spec.AdmittedRemoval = ""
	}
}
