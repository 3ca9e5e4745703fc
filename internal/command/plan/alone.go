package plan

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/offline"
	"atoll.dev/atoll/internal/plan"
	"atoll.dev/atoll/internal/schedule"
)

// changeOf a Bundle that comes of nothing: every cluster that is chosen gets a row.
func changeOf(b *offline.Bundle) plan.Change {
	c := plan.Change{
		ID: b.ID, Source: b.Source, New: true, Revision: "files", Content: b.Content,
		After: map[string]atoll.RowSpec{}, Decision: b.Decision, Problems: b.Problems, Short: b.Shares.Short,
	}
	for i := range b.Decision.Verdicts {
		v := &b.Decision.Verdicts[i]
		if v.Outcome == schedule.Placed {
			share := b.Shares.Of(v.Cluster)
			c.After[v.Cluster] = atoll.RowSpec{Revision: c.Revision, Phase: atoll.RowActive, Assigned: share.Assigned(), Ordinals: share.Ordinals()}
		}
	}
	return c
}

// placementOf a Placement that published nothing before.
func placementOf(p *offline.Placement) plan.Placement {
	out := plan.Placement{Namespace: p.Namespace, Name: p.Name, NoFit: p.Decision.NoFit, Unmet: p.Decision.Unmet}
	for i := range p.Decision.Verdicts {
		if v := &p.Decision.Verdicts[i]; v.Outcome == schedule.Placed {
			out.Added = append(out.Added, v.Cluster)
		}
	}
	out.Chosen = len(out.Added)
	return out
}
