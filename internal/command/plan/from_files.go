package plan

import (
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/preview/offline"
	"atoll.dev/atoll/internal/schedule"
)

// newBundleAddition plans a Bundle that comes of nothing: every cluster that is chosen gets a row.
func newBundleAddition(b *offline.Bundle) preview.BundleChange {
	c := preview.BundleChange{
		ID: b.ID, Source: b.Source, New: true, Revision: "files", Content: b.Content,
		After: map[string]atoll.RowSpec{}, Decision: b.Decision, Problems: b.Problems, Short: b.Shares.Shortages,
		RolloutEdit: preview.NewRolloutEdit(nil, &v1alpha1.BundleSpec{Rollout: b.Spec.Rollout, RolloutStrategy: b.Strategy}),
	}
	for i := range b.Decision.Verdicts {
		v := &b.Decision.Verdicts[i]
		if v.Outcome == schedule.OutcomePlaced {
			share := b.Shares.ShareOf(v.Cluster)
			c.After[v.Cluster] = atoll.RowSpec{Revision: c.Revision, Phase: atoll.RowActive, Assigned: share.AssignedReplicas(), OrdinalStarts: share.OrdinalStarts()}
		}
	}
	return c
}

// newPlacementPlan plans a Placement that published nothing before.
func newPlacementPlan(p *offline.Placement) preview.PlacementPlan {
	out := preview.PlacementPlan{Namespace: p.Namespace, Name: p.Name, NoFit: p.Decision.NoFit, Unmet: p.Decision.UnmetSpread}
	for i := range p.Decision.Verdicts {
		if v := &p.Decision.Verdicts[i]; v.Outcome == schedule.OutcomePlaced {
			out.Added = append(out.Added, v.Cluster)
		}
	}
	out.Chosen = len(out.Added)
	return out
}
