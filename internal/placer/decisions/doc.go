// Package decisions publishes what Placements choose, for readers that place nothing by Atoll.
//
// Contract: one Publisher per hub writes PlacementDecisions and the status of Placements, while
// its hub leads. Each write is fenced by the resource version that it was computed from. It
// chooses by the function that places Bundles, with its published decisions in place of rows. A
// chosen cluster that still fits stays chosen, unless a rebalance is requested. When no cluster
// fits any more, the choice stays. Objects are written only when they change. A cluster stays in
// its object, so that a change costs the objects of the changed clusters. A deleted Placement
// takes its PlacementDecisions along by their owner reference. While the hub holds after a
// restore, nothing is written. Run is called once, when the tables are synced.
package decisions
