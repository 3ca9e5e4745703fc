package atoll

import "slices"

// ID is how a report lists the tombstone once it is carried out: "key uid".
func (t Tombstone) ID() string { return t.Key.String() + " " + t.UID }

// IsRemovalDone reports whether a row is Removing and its cluster has confirmed that all
// is done. status may be nil.
func (r RowSpec) IsRemovalDone(status *RowStatus) bool {
	return r.Phase == RowRemoving && status != nil &&
		status.State == RowRemoved && status.Generation == r.Generation
}

// IsDoneInRow reports whether a row needs the tombstone, which the revision carries, no
// more: its cluster has carried it out, or has removed all of the Bundle. A tombstone
// may be left out of the next Revision once that holds of every row, away ones
// included. status may be nil.
//
// A report about an older generation confirms nothing: the item may have come back
// since, and be here under the same UID. A declined order is such a report.
func (t Tombstone) IsDoneInRow(revision string, spec RowSpec, status *RowStatus) bool {
	switch {
	case spec.IsRemovalDone(status), spec.Phase == RowPending:
		return true
	case status == nil || status.Generation != spec.Generation || status.IsOrderDeclined():
		return false
	}
	return status.AllTombstonesDone && spec.Revision == revision || slices.Contains(status.DoneTombstones, t.ID())
}
