package preview

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// lacksNewerOverrides reports whether a row that would stay as it is lacks what newer overrides make of it:
// those of policies with apply: WithNextChange.
func (c *bundleComparison) lacksNewerOverrides(cluster string) bool {
	row, has := c.After[cluster]
	if !c.NewRevision || c.Content == nil || isAbsentHeldOrLeaving(row, has) || row.Revision == c.Revision || !atoll.IsAcceptableRevision(row.Revision, c.Revision, c.Content.MinRevision) {
		return false
	}
	next := row
	next.Revision = c.Revision
	items, _ := c.itemChanges(cluster, &row, &next)
	return len(items) > 0
}

// orphanedItems returns the items that stay in clusters that the Bundle leaves.
func (c *bundleComparison) orphanedItems() (out []string) {
	if c.Content == nil {
		return nil
	}
	for i := range c.Content.Items {
		if item := &c.Content.Items[i]; item.StaysAsOrphan(c.Content) && c.in.mayReadItem(item.Key) {
			out = append(out, item.Key.Kind+"/"+item.Key.Name)
		}
	}
	return out
}

// itemsLosingPlacement returns the items that a policy places, or a template names as a dependency, now and
// not afterwards.
func (c *bundleComparison) itemsLosingPlacement() (out []string) {
	if !c.NewRevision || c.Content == nil {
		return nil
	}
	placed := map[atoll.ItemKey]bool{}
	for _, content := range c.Contents {
		if content == nil {
			continue
		}
		for i := range content.Items {
			if content.Items[i].State == "" {
				placed[content.Items[i].Key] = true
			}
		}
	}
	for i := range c.Content.Items {
		item := &c.Content.Items[i]
		if (item.State == atoll.ItemUnclaimed || item.State == atoll.ItemUnreferenced) && placed[item.Key] && c.in.mayReadItem(item.Key) {
			out = append(out, item.Key.Kind+"/"+item.Key.Name)
		}
	}
	slices.Sort(out)
	return out
}

// unknownClusters returns the clusters that the placement names and that would not exist after the
// change.
func (c *bundleComparison) unknownClusters() []string {
	return slices.DeleteFunc(schedule.NamedClusters(&c.Placement), func(name string) bool {
		_, known := c.in.ViewsAfter[name]
		return known
	})
}

// unknownSuspendedClusters returns the clusters that an edit of the suspension names and that would not exist after the change.
func (c *bundleComparison) unknownSuspendedClusters() (out []string) {
	if !c.SuspensionEdited || !c.Suspension.HasSuspendedClusters() {
		return nil
	}
	for _, name := range c.Suspension.DispatchingOnClusters.ClusterNames {
		if _, known := c.in.ViewsAfter[name]; !known {
			out = append(out, name)
		}
	}
	return out
}

// hiddenRemovals stands for removals that wait, where the user may not read all items.
const hiddenRemovals = string(atoll.ReasonRemovalHeld + ": removals of items that you may not all read")

// visibleHeldRemovals returns the removals that wait for a confirmation, of items that the user may
// read.
func (c *bundleComparison) visibleHeldRemovals() (out []string) {
	_, items := atoll.PlanUnconfirmedRemovals("", c.Content)
	for _, item := range items {
		if c.in.mayReadItem(item.Key) {
			out = append(out, fmt.Sprintf("remove %s/%s, as the object states (removal: Confirm)", item.Key.Kind, item.Key.Name))
		}
	}
	switch {
	case c.Held == nil && len(out) == len(items):
		return out
	case c.mayReadAll():
		return append(out, c.Held.Lines...)
	}
	return append(out, hiddenRemovals)
}
