package atoll

import "atoll.dev/atoll/api/v1alpha1"

// Treatment is how members treat an item, where that is not how they treat all others.
type Treatment struct {
	// Update is UpdateCreateOnly, UpdateReadOnly or UpdateRecreate, or empty for UpdateApply.
	Update v1alpha1.UpdateMode `json:"update,omitempty"`
	// IgnoreFields lists JSON Pointers of fields that belong to the member. Sorted.
	IgnoreFields []string `json:"ignoreFields,omitempty"`
	// Drift is DriftReport or DriftApprove, or empty for DriftCorrect.
	Drift v1alpha1.DriftMode `json:"drift,omitempty"`
	// ConflictResolution of the item; empty: that of its content.
	ConflictResolution v1alpha1.ConflictResolution `json:"conflictResolution,omitempty"`
	// Removal of the item; empty: that of its content.
	Removal v1alpha1.RemovalMode `json:"removal,omitempty"`
}

// IsCreateOnly reports whether members own the item's object as soon as they created it.
func (t *Treatment) IsCreateOnly() bool { return t != nil && t.Update == v1alpha1.UpdateCreateOnly }

// Observation returns what members report of the item's object instead of writing it; empty where they
// write it.
func (t *Treatment) Observation() Observation {
	switch {
	case t == nil:
		return ""
	case t.Update == v1alpha1.UpdateReadOnly:
		return ObserveHealth
	case t.Drift == v1alpha1.DriftReport:
		return ObserveDrift
	case t.Drift == v1alpha1.DriftApprove:
		return ObserveForApproval
	}
	return ""
}

// IsRecreated reports whether members delete and create the object again where they refuse an edit.
func (t *Treatment) IsRecreated() bool { return t != nil && t.Update == v1alpha1.UpdateRecreate }

// OwnResolution returns the item's own resolution of conflicts; empty: that of its content.
func (t *Treatment) OwnResolution() v1alpha1.ConflictResolution {
	if t == nil {
		return ""
	}
	return t.ConflictResolution
}

// IgnoredFields returns the fields that belong to the member. Read-only.
func (t *Treatment) IgnoredFields() []string {
	if t == nil {
		return nil
	}
	return t.IgnoreFields
}

// StaysAsOrphan reports whether the item stays in a member that it is taken out of. c is its content.
func (it *Item) StaysAsOrphan(c *Content) bool {
	if it.Treatment != nil && it.Treatment.Removal != "" {
		return it.Treatment.Removal == v1alpha1.RemoveOrphan
	}
	return c.Removal == v1alpha1.RemoveOrphan
}
