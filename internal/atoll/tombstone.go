package atoll

import "slices"

// ID is how a report lists the tombstone once it is carried out: "key uid".
func (t Tombstone) ID() string { return t.Key.String() + " " + t.UID }

// Removed tells whether a row is Removing and its cluster has confirmed that all
// is done. status may be nil.
func (r RowSpec) Removed(status *RowStatus) bool {
	return r.Phase == RowRemoving && status != nil &&
		status.State == RowRemoved && status.Generation == r.Generation
}

// Confirmed tells whether a row needs the tombstone no more: its cluster has
// carried it out, or has removed all of the Bundle. A tombstone may be left out of
// the next Revision once that holds of every row, away ones included. status may
// be nil.
func (t Tombstone) Confirmed(spec RowSpec, status *RowStatus) bool {
	return spec.Removed(status) || status != nil && slices.Contains(status.Gone, t.ID())
}
