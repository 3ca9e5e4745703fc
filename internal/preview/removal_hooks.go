package preview

import (
	"fmt"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// addRemoval adds what becomes of the objects of a row that goes, and the hooks that its removal runs.
func (c *bundleComparison) addRemoval(out *RowGroup, was atoll.RowSpec) {
	out.Change, out.Orphaned = ChangeRemoved, c.Content != nil && c.Content.Removal == v1alpha1.RemoveOrphan
	if !out.Orphaned {
		out.Stays, out.Hooks = c.orphanedItems(), c.removalHooks(was)
	}
	out.Replicas = c.replicaChanges(was, atoll.RowSpec{})
}

// contentOf returns the content that a row has; nil where it is not known.
func (c *bundleComparison) contentOf(row *atoll.RowSpec) *atoll.Content {
	if row.Revision == c.Revision {
		return c.Content
	}
	return c.Contents[row.Revision]
}

// removalHooks returns the hooks that the removal of a row runs, in the order of its items, as far as the user may read them.
func (c *bundleComparison) removalHooks(row atoll.RowSpec) (names []string) {
	content := c.contentOf(&row)
	if content == nil {
		return nil
	}
	for _, phase := range []atoll.HookPhase{atoll.PhasePreDelete, atoll.PhasePostDelete} {
		for i := range content.Items {
			item := &content.Items[i]
			if !row.IncludesItem(item.Key) || !c.in.mayReadItem(item.Key) || !item.Treatment.RunsInRemoval(phase) {
				continue
			}
			names = append(names, fmt.Sprintf("%s/%s (%s)", item.Key.Kind, item.Key.Name, phase))
		}
	}
	return names
}
