package rollout

import "atoll.dev/atoll/internal/atoll"

// gateMoves keeps rows at their revision when the next one gives items away to Bundles
// elsewhere in more clusters than an edit may take out: whether an edit shrinks a
// placement or hands an object to a smaller one, members lose the same.
func (s *step) gateMoves() {
	var losing []string
	sticky, going := false, map[string]bool{}
	for c, spec := range s.next {
		row, has := s.Rows[c]
		if spec == nil || !has || row.Spec.UID != spec.UID || spec.Phase != atoll.RowActive || row.Spec.Phase != atoll.RowActive ||
			row.Spec.Revision == spec.Revision || len(s.MovesAway[c]) == 0 {
			continue
		}
		losing = append(losing, c)
		sticky = sticky || atoll.ParseRowReason(row.Spec.Reason).Word == atoll.RowRemovalHeld
	}
	if len(losing) == 0 || s.released || s.orphans() {
		return
	}
	for _, c := range s.RecentOuts {
		going[c] = true
	}
	if s.affords(losing, going, sticky) {
		return
	}
	for _, c := range losing {
		s.holdRevision(c, s.MovesAway[c])
	}
}
