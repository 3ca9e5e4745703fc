package plan

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// later tells whether a row that would stay as it is lacks what newer overrides make of it:
// those of policies with apply: WithNextChange.
func (c *comparing) later(cluster string) bool {
	row, has := c.After[cluster]
	if !c.Anew || c.Content == nil || going(row, has) || row.Revision == c.Revision || !atoll.MayStay(row.Revision, c.Revision, c.Content.Base) {
		return false
	}
	next := row
	next.Revision = c.Revision
	items, _ := c.items(cluster, &row, &next)
	return len(items) > 0
}

// frozen lists the items that somebody places, or names as a dependency, now and nobody
// would.
func (c *comparing) frozen() (out []string) {
	if !c.Anew || c.Content == nil {
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
		if (item.State == atoll.ItemUnclaimed || item.State == atoll.ItemUnnamed) && placed[item.Key] && c.in.sees(item.Key) {
			out = append(out, item.Key.Kind+"/"+item.Key.Name)
		}
	}
	slices.Sort(out)
	return out
}

// unknown clusters that the placement would name.
func (c *comparing) unknown() []string {
	return slices.DeleteFunc(schedule.NamedClusters(&c.Placement), func(name string) bool {
		_, known := c.in.ViewsAfter[name]
		return known
	})
}
