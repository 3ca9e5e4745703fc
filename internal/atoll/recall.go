package atoll

import (
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// Words that AnnotationRecalled begins with.
const (
	// RecalledDeleted: the template's deletion waits for a decision.
	RecalledDeleted = "deleted"
	// RecalledKept: a person decided that the template stays.
	RecalledKept = "kept"
)

// RememberedDeletionNote reads a template's annotations: whether members recorded its deletion and no
// person has decided yet, and the note about it.
func RememberedDeletionNote(annotations map[string]string) (note string, held bool) {
	note = annotations[AnnotationRecalled]
	return note, strings.HasPrefix(note, RecalledDeleted)
}

// PlanDeletionsRememberedByMembers returns the plan of the deletions that members recorded and a
// content holds back: the hash under which they are confirmed or kept, and the items. The hash is empty when
// there are none, and does not come again for other deletions.
func PlanDeletionsRememberedByMembers(bundle string, c *Content) (hash string, items []*Item) {
	if c == nil {
		return "", nil
	}
	parts := [][]byte{[]byte("recall"), []byte(bundle)}
	for i := range c.Items {
		if item := &c.Items[i]; item.RecallNote != "" {
			items = append(items, item)
			parts = append(parts, []byte(item.Key.String()+" "+item.UID+" "+item.RecallNote))
		}
	}
	if len(items) == 0 {
		return "", nil
	}
	return HashParts(parts...)[:16], items
}

// HashPlacement returns a hash that distinguishes placements.
func HashPlacement(p v1alpha1.PlacementSpec) string { return HashJSON(p)[:16] }
