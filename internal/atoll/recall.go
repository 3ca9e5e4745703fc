package atoll

import (
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// Words that AnnotationRecalled begins with.
const (
	// RecalledDeleted: the template's deletion waits for a decision.
	RecalledDeleted = "deleted"
	// RecalledKept: somebody decided that the template stays.
	RecalledKept = "kept"
)

// Recalled reads a template's annotations: whether members remember its deletion and
// nobody has decided yet, and what is said of it.
func Recalled(annotations map[string]string) (note string, held bool) {
	note = annotations[AnnotationRecalled]
	return note, strings.HasPrefix(note, RecalledDeleted)
}

// RecallPlan of the deletions that members remember and a content holds back: the
// hash under which they are confirmed or kept, and the items. The hash is empty when
// there are none, and does not come again for other deletions.
func RecallPlan(bundle string, c *Content) (hash string, items []*Item) {
	if c == nil {
		return "", nil
	}
	parts := [][]byte{[]byte("recall"), []byte(bundle)}
	for i := range c.Items {
		if item := &c.Items[i]; item.Recalled != "" {
			items = append(items, item)
			parts = append(parts, []byte(item.Key.String()+" "+item.UID+" "+item.Recalled))
		}
	}
	if len(items) == 0 {
		return "", nil
	}
	return Hash(parts...)[:16], items
}

// PlacementHash tells placements apart.
func PlacementHash(p v1alpha1.PlacementSpec) string { return HashJSON(p)[:16] }
