// Package decisions publishes what Placements choose, for whoever wants to know clusters
// and places nothing by Atoll.
//
// Contract: one Publisher per hub writes PlacementDecisions and the status of Placements,
// while its hub leads; each write is fenced by the resource version that it was computed
// from. It chooses by the function that places Bundles, with what it published before in
// the place of rows: what was chosen and still fits stays chosen, unless somebody asks that
// it be chosen from scratch, and where no cluster fits
// any more, what was chosen stays. Objects are written only where they change, and a
// cluster stays in the object that it is in, so that a change of some clusters costs the
// objects that hold them. A Placement that is deleted takes its PlacementDecisions along by
// their owner reference. While the hub holds after a restore, nothing is written.
// Run is called once, when the tables are synced.
package decisions
