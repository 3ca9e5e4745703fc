package rollout

import "atoll.dev/atoll/internal/atoll"

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

// hashLosses returns the hash of the items that the target revision takes out of a row; empty: of none.
func (s *rolloutStep) hashLosses(c string) string {
	row := s.Rows[c].Spec
	var excluded []string
	for _, u := range s.ExcludedItems[c] {
		if u.UID != "" {
			excluded = append(excluded, u.Key+" "+u.UID)
		}
	}
	deleted, moved := s.DeletedItems[row.Revision], s.MovedItems[c]
	if len(deleted)+len(moved)+len(excluded) == 0 {
		return ""
	}
	return atoll.HashJSON([][]string{deleted, moved, excluded})[:16]
}

// admitRemovals marks the rows that lose items in a later turn, where nothing holds the loss. Bounds and
// confirmations are about the whole change, and not about each turn.
func (s *rolloutStep) admitRemovals() {
	if !s.turns.isBounded || len(s.DeletedItems)+len(s.MovedItems)+len(s.ExcludedItems) == 0 {
		return
	}
	for c, spec := range s.nextSpecs {
		if spec == nil || !s.awaitsTurn(c, spec) {
			continue
		}
		loss := s.hashLosses(c)
		if s.pendingRemoval.clusters[c] && spec.AdmittedRemoval != loss {
			loss = ""
		}
		spec.AdmittedRemoval = loss
	}
}
