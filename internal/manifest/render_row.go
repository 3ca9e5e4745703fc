package manifest

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// RenderRow returns what a cluster gets of the content by its row, as RenderItems does, and the
// row's current variant.
func (r *Renderer) RenderRow(row atoll.RowSpec, c atoll.ClusterView) (items []atoll.RenderedItem, notes []overrides.Provenance, variant string) {
	rules, variant := r.MatchRules(&c)
	items, notes = r.RenderItems(RenderInputOf(row, rules, &c))
	return items, notes, variant
}

// RenderInputOf returns the part of a row that RenderItems takes, with the rules that match its
// cluster.
func RenderInputOf(row atoll.RowSpec, rules []int, c *atoll.ClusterView) RenderInput {
	return RenderInput{Rules: rules, Cluster: c, Assigned: row.Assigned, ExcludedPending: row.ExcludedPending, Ordinals: row.OrdinalStarts}
}
