package atoll

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

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
	// ServiceAccount of the member, as NAMESPACE/NAME, that must have the right to each write of the object;
	// empty: the agent's own rights suffice.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Wave of the item, between MaxWave below and above zero.
	Wave int32 `json:"wave,omitempty"`
	// Hook is when members run the item's object; nil: they keep it applied.
	Hook *Hook `json:"hook,omitempty"`
	// Assessment of the item's object; nil: by its kind alone.
	Assessment *Assessment `json:"assessment,omitempty"`
	// AssessmentParts, in an encoded content alone, are the indexes of the Assessment's parts in the list of the content.
	AssessmentParts []int `json:"assessed,omitempty"`
}

// IsEmpty reports whether members treat the item's object as all others.
func (t *Treatment) IsEmpty() bool {
	return t.Update == "" && len(t.IgnoreFields) == 0 && t.Drift == "" && t.ConflictResolution == "" && t.Removal == "" && t.ServiceAccount == "" && t.Wave == 0 && t.Hook == nil && t.Assessment == nil && len(t.AssessmentParts) == 0
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

// OwnRemoval returns the item's own removal mode; empty: that of its content.
func (t *Treatment) OwnRemoval() v1alpha1.RemovalMode {
	if t == nil {
		return ""
	}
	return t.Removal
}

// WritingServiceAccount returns the ServiceAccount of the member that must have the right to each write; empty: none.
func (t *Treatment) WritingServiceAccount() string {
	if t == nil {
		return ""
	}
	return t.ServiceAccount
}

// StatedWave returns the wave of the item; 0 where none is stated.
func (t *Treatment) StatedWave() int32 {
	if t == nil {
		return 0
	}
	return t.Wave
}

// StatedHook returns when members run the item's object; nil: they keep it applied, or only observe it. Read-only.
func (t *Treatment) StatedHook() *Hook {
	if t == nil || t.Observation() != "" {
		return nil
	}
	return t.Hook
}

// StatedAssessment returns how members assess the item's object; nil: by its kind alone. Read-only.
func (t *Treatment) StatedAssessment() *Assessment {
	if t == nil {
		return nil
	}
	return t.Assessment
}

// IgnoredFields returns the fields that belong to the member. Read-only.
func (t *Treatment) IgnoredFields() []string {
	if t == nil {
		return nil
	}
	return t.IgnoreFields
}

// StaysAsOrphan reports whether the item stays in a member that it is taken out of while its Bundle exists. c is its content.
func (it *Item) StaysAsOrphan(c *Content) bool {
	return it.Treatment.OwnRemoval() == v1alpha1.RemoveWithBundle || it.StaysWithoutBundle(c)
}

// StaysWithoutBundle reports whether the item stays in members although its Bundle is deleted. c is its content.
func (it *Item) StaysWithoutBundle(c *Content) bool {
	if own := it.Treatment.OwnRemoval(); own != "" {
		return own == v1alpha1.RemoveOrphan
	}
	return c.Removal == v1alpha1.RemoveOrphan
}

// MustConfirmRemoval reports whether a person must confirm each removal of the item.
func (t *Treatment) MustConfirmRemoval() bool { return t.OwnRemoval() == v1alpha1.RemoveConfirm }

// IsRemovedLast reports whether members remove the item after all others of its content that they remove.
func (t *Treatment) IsRemovedLast() bool { return t.OwnRemoval() == v1alpha1.RemoveLast }

// MustConfirmRemovals reports whether a person must confirm that a row of the content goes. A nil content has
// no such item.
func (c *Content) MustConfirmRemovals() bool {
	return c != nil && slices.ContainsFunc(c.Items, func(item Item) bool { return item.Treatment.MustConfirmRemoval() })
}

// PlanUnconfirmedRemovals returns the plan of the removals that wait for a confirmation as treatments state: the
// hash under which they are confirmed, and the items. The hash is empty when there are none. It covers since when
// each item waits, so that it does not come again for other removals.
func PlanUnconfirmedRemovals(bundle string, c *Content) (hash string, items []*Item) {
	if c == nil {
		return "", nil
	}
	parts := [][]byte{[]byte("unconfirmed"), []byte(bundle)}
	for i := range c.Items {
		if item := &c.Items[i]; item.State == ItemUnconfirmed {
			items = append(items, item)
			parts = append(parts, fmt.Appendf(nil, "%s %s %s %d", item.Key, item.UID, item.RemovalCause, item.RemovalRevision))
		}
	}
	if len(items) == 0 {
		return "", nil
	}
	return HashParts(parts...)[:16], items
}
