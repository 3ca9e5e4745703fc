package rollout

import "atoll.dev/atoll/internal/atoll"

// holdRowsLosingMovedItems keeps rows at their revision when the next one gives items to Bundles
// elsewhere in more clusters than an edit may take out. An edit that shrinks a placement and
// an edit that hands an object to a smaller one take the same from members.
func (s *rolloutStep) holdRowsLosingMovedItems() {
	var losing []string
	sticky := false
	for c := range s.nextSpecs {
		if s.losesMovedItems(c) {
			losing = append(losing, c)
			old := s.Rows[c].Spec
			sticky = sticky || old.Phase == atoll.RowActive && atoll.ParseRowReason(old.Reason).Reason == atoll.ReasonRemovalHeld
		}
	}
	if len(losing) == 0 || s.confirmed || s.isOrphanRemoval() {
		return
	}
	if s.spendRemovalBudget(losing, unionClusterNames(s.RecentlyRemoved), sticky) {
		return
	}
	for _, c := range losing {
		s.holdAtRevision(c, s.MovedItems[c])
	}
}

// losesMovedItems reports whether a row that stays loses items to other Bundles, and the loss was not admitted.
func (s *rolloutStep) losesMovedItems(c string) bool {
	if len(s.MovedItems[c]) == 0 || !s.isToChangeRevision(c) || s.isRemovalAdmitted(c) {
		return false
	}
	spec := s.nextSpecs[c]
	return spec.Phase == atoll.RowActive && (s.Rows[c].Spec.Phase == atoll.RowActive || s.awaitsTurn(c, spec))
}

// changesRevision reports whether a row of the cluster is about to go to another revision,
// and is not a tombstone before or after, or Pending before.
func (s *rolloutStep) changesRevision(c string) bool {
	row, has := s.Rows[c]
	spec := s.nextSpecs[c]
	return has && spec != nil && row.Spec.UID == spec.UID && row.Spec.Phase != atoll.RowRemoving && row.Spec.Phase != atoll.RowPending && spec.Phase != atoll.RowRemoving &&
		row.Spec.Revision != spec.Revision
}
