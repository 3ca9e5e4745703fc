package render

import "atoll.dev/atoll/internal/atoll"

// Row gives what a cluster gets of the content by a row of its own, as Render does, and
// the variant that the row is of now.
func (r *Renderer) Row(row atoll.RowSpec, c atoll.ClusterView) (items []atoll.Rendered, notes []Provenance, variant string) {
	rules, variant := r.Rules(&c)
	items, notes = r.Render(InputOf(row, rules, &c))
	return items, notes, variant
}

// InputOf a row is what Render takes of it, with the rules that match its cluster.
func InputOf(row atoll.RowSpec, rules []int, c *atoll.ClusterView) Input {
	return Input{Rules: rules, Cluster: c, Assigned: row.Assigned, NotYet: row.NotYet, Ordinals: row.Ordinals}
}
